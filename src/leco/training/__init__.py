"""What turns terms into trained weights: schedules, averages, the hand-over between periods."""

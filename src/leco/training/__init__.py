"""Training: the loop, optimisers and schedules, weight averaging, checkpoints, loggers."""

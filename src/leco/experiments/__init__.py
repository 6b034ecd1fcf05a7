"""What is run as a whole: for now, the walk-through of `leco demo`."""

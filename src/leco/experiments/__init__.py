"""What is run as a whole: typed configs, recipes, stages, their store, and engines."""

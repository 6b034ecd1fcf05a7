"""Experiments: typed configuration, stages, their store, grids and engines."""

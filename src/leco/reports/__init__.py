"""Stored runs as tables and figures; knows no training."""

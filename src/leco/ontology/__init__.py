"""Versions, transitions, evidence, changes, inference from co-labelled data, files."""

"""Manifests: tables of files, labels and versions, checked before training."""

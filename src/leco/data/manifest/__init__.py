"""Manifests of own data: tables of files, labels and versions, checked before anything is trained."""

"""A classifier over feature arrays that scikit-learn's tools take as one of their own."""

from leco.estimator.classifier import LecoClassifier

__all__ = ["LecoClassifier"]

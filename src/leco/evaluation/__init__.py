"""One confusion matrix over the whole set -> mAcc, mIoU, per-class tables, at any ontology version."""

from leco.evaluation.confusion import NAMELESS, at_version, confusion, known_labels, predict_at, without_nameless
from leco.evaluation.scores import Scores, mistake_severity, scores

__all__ = [
    "NAMELESS",
    "Scores",
    "at_version",
    "confusion",
    "known_labels",
    "mistake_severity",
    "predict_at",
    "scores",
    "without_nameless",
]

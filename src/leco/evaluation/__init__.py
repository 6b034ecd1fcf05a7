"""One confusion matrix over the whole set -> mAcc, mIoU, per-class tables, at any ontology version."""

from leco.evaluation.confusion import at_version, confusion, predict_at
from leco.evaluation.labels import NAMELESS, known_labels, without_nameless
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

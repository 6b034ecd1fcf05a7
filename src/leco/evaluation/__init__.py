"""One confusion matrix over the whole set -> mAcc, mIoU, per-class tables, at any ontology version."""

from leco.evaluation.confusion import at_version, confusion, predict_at
from leco.evaluation.scores import Scores, mistake_severity, scores

__all__ = ["Scores", "at_version", "confusion", "mistake_severity", "predict_at", "scores"]

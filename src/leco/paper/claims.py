"""The paper's conclusions, each as pairs of cells of its tables."""

from dataclasses import dataclass
from typing import Literal

from leco.paper.cell import Key

Pairs = tuple[tuple[Key, Key], ...]


@dataclass(frozen=True)
class Claim:
    """A conclusion: on average, the first cell of each pair is better than the second, or similar to it.

    "better than the mean" is of one cell against the mean of several, all of which are needed.

    Cells are those of TP1; a claim is meant for the newest period, whichever that is.
    """

    text: str
    pairs: Pairs
    kind: Literal["better", "similar", "better than the mean"] = "better"


SCRATCH = Key(1, strategy="scratch")
FREEZE = Key(1, strategy="freeze")
FINETUNE = Key(1)
RELABEL = Key(1, annotation="relabel-old")
JOINT = Key(1, "joint")
LPL = Key(1, "lpl")
BEST = Key(1, "lpl+st-hard/cond")
ALL_FINE = Key(1, annotation="all-fine")


def _with_pseudo_labels(better: str, worse: str) -> Pairs:
    """One pair for each kind of pseudo-label."""
    kinds = ("st-hard", "st-soft", "pl", "fixmatch")
    return tuple((Key(1, better.format(kind)), Key(1, worse.format(kind))) for kind in kinds)


MAIN_CLAIMS = (
    Claim("start from the previous model, not from scratch (section 4)", ((FINETUNE, SCRATCH),)),
    Claim("train the whole model, not only the head (section 4)", ((FINETUNE, FREEZE),)),
    Claim("old labels help in a head of their own: joint (section 5)", ((JOINT, FINETUNE),)),
    Claim("old labels help as partial labels: lpl (section 6)", ((LPL, FINETUNE),)),
    Claim("conditioned pseudo-labels beat new labels alone (section 6)", ((BEST, FINETUNE),)),
    Claim("conditioned pseudo-labels beat partial labels alone (section 6)", ((BEST, LPL),)),
    Claim("all-fine remains the upper bound", ((ALL_FINE, BEST),)),
)
CLAIMS = (
    *MAIN_CLAIMS,
    Claim("training from scratch beats frozen features (appendix F)", ((SCRATCH, FREEZE),)),
    Claim("label-new and relabel-old are similar with cross-entropy (section 4)", ((FINETUNE, RELABEL),), "similar"),
    Claim("label-new beats relabel-old once old labels are used (section 8)", ((BEST, RELABEL),)),
    Claim("pseudo-labels on old data help (section 5)", _with_pseudo_labels("ce+{}", "ce")),
    Claim("pseudo-labels help joint training (section 5)", _with_pseudo_labels("joint+{}", "joint")),
    Claim("joint training helps pseudo-labels (section 5)", _with_pseudo_labels("joint+{}", "ce+{}")),
    Claim("partial labels beat joint training (section 6)", ((LPL, JOINT),)),
    Claim(
        "partial labels beat joint training, both with pseudo-labels (section 6)",
        _with_pseudo_labels("lpl+{}", "joint+{}"),
    ),
    Claim(
        "filtering pseudo-labels by old labels helps lpl (section 6)", _with_pseudo_labels("lpl+{}/filter", "lpl+{}")
    ),
    Claim(
        "conditioning pseudo-labels on old labels helps lpl (section 6)", _with_pseudo_labels("lpl+{}/cond", "lpl+{}")
    ),
    Claim("filtering helps pseudo-labels alone (appendix F)", _with_pseudo_labels("ce+{}/filter", "ce+{}")),
    Claim("conditioning helps pseudo-labels alone (appendix F)", _with_pseudo_labels("ce+{}/cond", "ce+{}")),
    Claim(
        "lpl+st-hard/cond closes most of the gap between ce and all-fine (section 6)",
        ((BEST, FINETUNE), (BEST, ALL_FINE)),
        "better than the mean",
    ),
)

"""A method by name: `lpl+st-hard/cond` is learning with partial labels, self-training, conditioned pseudo-labels."""

from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

from leco.errors import LecoError, nearest

Coarse = Literal["ce", "joint", "lpl"]
PseudoLabels = Literal["none", "st-hard", "st-soft", "pl", "fixmatch"]
Refine = Literal["plain", "filter", "cond"]


@dataclass(frozen=True)
class Method:
    """Which losses are added up (Table 12 of the paper): one of three for coarse labels, one of five for history.

    >>> Method.parse("lpl+st-hard/cond")
    Method(coarse='lpl', pseudo='st-hard', refine='cond')
    >>> str(Method("joint", "pl"))
    'joint+pl'
    """

    coarse: Coarse = "ce"
    pseudo: PseudoLabels = "none"
    refine: Refine = "plain"

    def __post_init__(self) -> None:
        if self.pseudo == "none" and self.refine != "plain":
            raise LecoError(f"{self.coarse}/{self.refine}: there are no pseudo-labels to refine; add one of {_PSEUDO}")

    def __str__(self) -> str:
        pseudo = "" if self.pseudo == "none" else f"+{self.pseudo}"
        return self.coarse + pseudo + ("" if self.refine == "plain" else f"/{self.refine}")

    @classmethod
    def parse(cls, text: str) -> "Method":
        """Read what `str` writes."""
        if text not in _BY_NAME:
            raise LecoError(f"{text!r} is no method{nearest(text, _BY_NAME)}")
        return _BY_NAME[text]

    @property
    def needs_teacher(self) -> bool:
        """Whether another network, trained on the new samples alone, makes the pseudo-labels."""
        return self.pseudo in ("st-hard", "st-soft")


_PSEUDO = ", ".join(name for name in get_args(PseudoLabels) if name != "none")

# All 39 combinations of the paper.
ALL_METHODS = tuple(
    Method(coarse, pseudo, refine)
    for coarse, pseudo, refine in product(get_args(Coarse), get_args(PseudoLabels), get_args(Refine))
    if pseudo != "none" or refine == "plain"
)
_BY_NAME = {str(method): method for method in ALL_METHODS}

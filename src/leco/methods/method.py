"""A method by name: `lpl+st-hard/cond` is learning with partial labels, self-training, conditioned pseudo-labels."""

import re
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

from leco.arguments import checks_arguments
from leco.errors import LecoError, nearest

Refine = Literal["plain", "filter", "cond"]
Kind = Literal["coarse", "pseudo"]

# The paper's losses; `declare` adds others.
_COARSE = {"ce": False, "joint": True, "lpl": False}  # whether older versions need a head of their own
_PSEUDO = {"none": False, "st-hard": True, "st-soft": True, "pl": False, "fixmatch": False}  # whether it has a teacher


@dataclass(frozen=True)
class Method:
    """The sum of losses (Table 12 of the paper): one of three for coarse labels, one of five for history.

    >>> Method.parse("lpl+st-hard/cond")
    Method(coarse='lpl', pseudo='st-hard', refine='cond')
    >>> str(Method("joint", "pl"))
    'joint+pl'
    """

    coarse: str = "ce"
    pseudo: str = "none"
    refine: Refine = "plain"

    def __post_init__(self) -> None:
        if self.pseudo == "none" and self.refine != "plain":
            names = ", ".join(name for name in _PSEUDO if name != "none")
            raise LecoError(f"{self.coarse}/{self.refine}: no pseudo-labels to refine; add one of {names}")

    def __str__(self) -> str:
        pseudo = "" if self.pseudo == "none" else f"+{self.pseudo}"
        return self.coarse + pseudo + ("" if self.refine == "plain" else f"/{self.refine}")

    @classmethod
    @checks_arguments
    def parse(cls, text: str) -> "Method":
        """Return the method with this name, as given by `str`."""
        known = {str(method): method for method in _combinations(tuple(_COARSE), tuple(_PSEUDO))}
        if text not in known:
            raise LecoError(f"{text!r} is not a method{nearest(text, known)}")
        return known[text]

    @property
    def needs_teacher(self) -> bool:
        """Whether a second network, trained on the new samples only, makes the pseudo-labels."""
        return _PSEUDO[self.pseudo]

    @property
    def needs_old_heads(self) -> bool:
        """Whether every version has a head of its own, as in joint training."""
        return _COARSE[self.coarse]


def declare(name: str, kind: Kind, *, needs_teacher: bool = False, needs_old_heads: bool = False) -> None:
    """Make a name usable in methods, in place of one of the paper's coarse losses or pseudo-labels."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name):
        raise LecoError(f"a term is named with letters, digits and hyphens, not {name!r}")
    if kind not in get_args(Kind):
        raise LecoError(f"{name}: the kind of a term is coarse or pseudo, not {kind!r}")
    if kind == "coarse":
        _COARSE.setdefault(name, needs_old_heads)
    else:
        _PSEUDO.setdefault(name, needs_teacher)


def registered(kind: Kind) -> tuple[str, ...]:
    """Return the names of all losses for coarse labels, or for pseudo-labels."""
    return tuple(name for name in (_COARSE if kind == "coarse" else _PSEUDO) if name != "none")


def _combinations(coarse: tuple[str, ...], pseudo: tuple[str, ...]) -> list[Method]:
    every = product(coarse, pseudo, get_args(Refine))
    return [Method(*parts) for parts in every if parts[1] != "none" or parts[2] == "plain"]


# All 39 combinations of the paper.
ALL_METHODS = tuple(_combinations(tuple(_COARSE), tuple(_PSEUDO)))

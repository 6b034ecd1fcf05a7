"""Losses and pseudo-label refinement: tensors in, tensors out; the class dimension is 1, anything may trail it.

Names are imported when first used: `Method` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leco.methods.losses import evidence_nll, hard_pseudo_nll, joint_nll, soft_pseudo_nll
    from leco.methods.method import Method
    from leco.methods.pixels import Guess, guess, label_nll, soft_guess_nll
    from leco.methods.refine import agrees, condition
    from leco.methods.terms import Term, register_term

__all__ = [
    "Guess",
    "Method",
    "Term",
    "agrees",
    "condition",
    "evidence_nll",
    "guess",
    "hard_pseudo_nll",
    "joint_nll",
    "label_nll",
    "register_term",
    "soft_guess_nll",
    "soft_pseudo_nll",
]
_HOMES = {
    **dict.fromkeys(("evidence_nll", "hard_pseudo_nll", "joint_nll", "soft_pseudo_nll"), "losses"),
    **dict.fromkeys(("Guess", "guess", "label_nll", "soft_guess_nll"), "pixels"),
    **dict.fromkeys(("agrees", "condition"), "refine"),
    **dict.fromkeys(("Term", "register_term"), "terms"),
    "Method": "method",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"leco.methods.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'leco.methods' has no attribute {name!r}")

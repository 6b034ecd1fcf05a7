"""Losses and pseudo-label refinement: tensors in, tensors out; the class dimension is 1, anything may trail it."""

from leco.methods.indexed import Guess, guess, label_nll, soft_guess_nll
from leco.methods.losses import evidence_nll, hard_pseudo_nll, joint_nll, soft_pseudo_nll
from leco.methods.refinement import agrees, condition

__all__ = [
    "Guess",
    "agrees",
    "condition",
    "evidence_nll",
    "guess",
    "hard_pseudo_nll",
    "joint_nll",
    "label_nll",
    "soft_guess_nll",
    "soft_pseudo_nll",
]

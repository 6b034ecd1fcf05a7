"""The head `best`: cross-validation on the newest labels decides whether old labels are used."""

import pytest
import torch
from torch import Tensor

from leco.methods.linear import linear_head
from leco.training.finish import HEADS, best_head

OPEN, SHUT = 0.0, -torch.inf


def clusters(each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Four classes that overlap, in eight dimensions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat(each)
    centres = 1.6 * torch.randn(4, 8, generator=torch.Generator().manual_seed(7))
    return centres[labels] + torch.randn(len(labels), 8, generator=generator), labels


def evidence_of(labels: Tensor) -> Tensor:
    return torch.full((len(labels), 4), SHUT).scatter(1, labels[:, None], OPEN)


def accuracy(head: tuple[Tensor, Tensor]) -> float:
    features, labels = clusters(500, seed=3)
    weight, bias = head
    return ((features @ weight.T + bias).argmax(dim=1) == labels).float().mean().item()


def heads(parent: Tensor) -> tuple[float, float]:
    """Accuracy of a head on few newest labels, and of `best` with many old ones, which `parent` gives each class."""
    (new, fine), (old, hidden) = clusters(4, seed=1), clusters(100, seed=2)
    coarse = torch.where(parent[hidden][:, None] == torch.tensor([0, 0, 1, 1]), OPEN, SHUT)
    features, evidence = torch.cat([new, old]), torch.cat([evidence_of(fine), coarse])
    return accuracy(linear_head(new, evidence_of(fine))), accuracy(best_head(features, evidence))


def test_useful_old_labels_are_used():
    alone, best = heads(torch.tensor([0, 0, 1, 1]))
    assert best > alone + 0.02


@pytest.mark.parametrize("parent", [[1, 1, 0, 0], [1, 0, 0, 1]])
def test_wrong_old_labels_do_no_harm(parent):
    alone, best = heads(torch.tensor(parent))
    assert best >= alone - 0.01


def test_it_is_registered():
    assert HEADS["best"] is best_head

"""The head `best`: cross-validation on the newest labels decides whether old labels are used."""

import pytest
import torch
from torch import Tensor

from leco.methods.choice import choose_head, mean_over_classes
from leco.methods.gaussian import gaussian_head
from leco.methods.linear import fit_linear, linear_head
from leco.training.finish import HEADS, Head, best_head

DRAWS = 6
LABELS = torch.arange(4).repeat(10)  # of the new samples
ONTOLOGY = torch.tensor([0, 0, 1, 1])  # the old class of each newest class


def clusters(each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Four classes that overlap, in eight dimensions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat(each)
    centres = 0.9 * torch.randn(4, 8, generator=torch.Generator().manual_seed(7))
    return centres[labels] + torch.randn(len(labels), 8, generator=generator), labels


def evidence_of(labels: Tensor, classes: Tensor) -> Tensor:
    """Evidence (n, c) of labels, given the label that each newest class would have."""
    return torch.where(labels[:, None] == classes, 0.0, -torch.inf)


def labelled(parents: list[int], draw: int) -> tuple[Tensor, Tensor]:
    """Features and evidence of a few new labels, and of many old ones that were given to each class as in `parents`."""
    (new, fine), (old, hidden) = clusters(10, seed=10 + draw), clusters(100, seed=50 + draw)
    coarse = torch.tensor(parents)[hidden]
    evidence = torch.cat([evidence_of(fine, torch.arange(4)), evidence_of(coarse, ONTOLOGY)])
    return torch.cat([new, old]), evidence


def accuracy(head: Head) -> float:
    features, labels = clusters(500, seed=3)
    weight, bias = head
    return ((features @ weight.T + bias).argmax(dim=1) == labels).double().mean().item()


def mean_accuracies(parents: list[int]) -> tuple[float, float, float]:
    """Mean accuracy over several draws: of new labels alone, of a Gaussian head in any case, and of the choice."""
    rows = []
    for draw in range(DRAWS):
        features, evidence = labelled(parents, draw)
        new = slice(0, 40)
        heads = (linear_head(features[new], evidence[new]), gaussian_head(features, evidence))
        rows.append([accuracy(head) for head in (*heads, best_head(features, evidence))])
    alone, forced, best = torch.tensor(rows).mean(dim=0).tolist()
    return alone, forced, best


def test_useful_old_labels_are_used():
    alone, _, best = mean_accuracies([0, 0, 1, 1])
    assert best > alone + 0.015


@pytest.mark.parametrize("parents", [[1, 1, 0, 0], [1, 0, 0, 1], [0, 1, 0, 1]])
def test_wrong_old_labels_do_hardly_any_harm(parents):
    alone, forced, best = mean_accuracies(parents)
    assert best > alone - 0.025
    assert best > forced + 0.03


@pytest.mark.parametrize("parents", [[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]])
def test_held_out_samples_never_speak_against_the_choice(parents):
    for draw in range(DRAWS):
        features, evidence = labelled(parents, draw)
        new = slice(0, 40)
        mine, alone = (
            mean_over_classes((head.held_out_mc[new].argmax(dim=1) == LABELS).double(), LABELS)[0]
            for head in (choose_head(features, evidence)[1], fit_linear(features[new], evidence[new]))
        )
        assert mine >= alone - 1e-9


def test_it_is_registered():
    assert HEADS["best"] is best_head

"""What the released code computes, by a reference with loops that was written from its description: two periods."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from leco import Ontology
from leco.data.batches import Batch, Step
from leco.methods.method import ALL_METHODS, Method
from leco.methods.terms import HISTORY, NEW, Request, combine, terms
from leco.settings import HistorySettings, PseudoLabelSettings

PARENTS = (0, 0, 1, 1, 1, 2, 3, 3)  # the coarse class of each fine one
ONTOLOGY = Ontology.from_taxonomy("t", ["coarse", "fine"], [(f"c{p}", f"f{i}") for i, p in enumerate(PARENTS)])
EVIDENCE = ONTOLOGY.evidence()
TEACHER = Request("teacher", "history", "strong")
RELEASED = PseudoLabelSettings(st_soft_masked=True)
CELLS = [method for method in ALL_METHODS if method.pseudo == "st-soft" and method.refine != "cond"]


class Released(NamedTuple):
    """Logits of the fine and coarse heads on one batch of new samples, and one of history; labels of both."""

    new: dict[str, Tensor]
    history: dict[str, Tensor]
    teacher: Tensor
    fine: Tensor  # of the new samples
    coarse: Tensor  # of history


def draw(seed: int, samples: int = 12) -> Released:
    generator = torch.Generator().manual_seed(seed)

    def logits(classes: int) -> Tensor:
        return 2 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)

    heads = [{"fine": logits(8).requires_grad_(), "coarse": logits(4).requires_grad_()} for _ in range(2)]
    fine, old = (torch.randint(8, (samples,), generator=generator) for _ in range(2))
    return Released(*heads, logits(8), fine, torch.tensor(PARENTS)[old])


def softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(z - max(logits)) for z in logits]
    return [weight / sum(weights) for weight in weights]


def released_st_soft(student: Tensor, teacher: Tensor, coarse: list[int], filtering: bool) -> tuple[float, Tensor]:
    """The mean over a batch of ``sum over the coarse label's children of q (log q - log p)``, and its gradient.

    With filtering, a sample counts zero if the teacher's likeliest class is not a child.
    """
    loss, gradient = 0.0, torch.zeros_like(student)
    for i, (z, t, label) in enumerate(zip(student.tolist(), teacher.tolist(), coarse, strict=True)):
        p, q = softmax(z), softmax(t)
        if filtering and PARENTS[q.index(max(q))] != label:
            continue
        children = [c for c in range(8) if PARENTS[c] == label]
        loss += sum(q[c] * (math.log(q[c]) - math.log(p[c])) for c in children) / len(coarse)
        for c in range(8):
            gradient[i, c] = (sum(q[k] for k in children) * p[c] - (q[c] if c in children else 0.0)) / len(coarse)
    return loss, gradient


def found_loss(
    method: Method, case: Released, settings: PseudoLabelSettings | None = None, history: HistorySettings | None = None
) -> dict[str, float]:
    """Value of each term of ours; gradients are left in the logits of the case."""
    versions = ONTOLOGY.translate(case.fine, "fine", "coarse"), torch.full_like(case.coarse, -1)
    ids = torch.arange(len(case.fine))
    step = Step(
        Batch(ids, ids, EVIDENCE.ids(case.fine, "fine"), {"coarse": versions[0], "fine": case.fine}),
        Batch(ids, ids, EVIDENCE.ids(case.coarse, "coarse"), {"coarse": case.coarse, "fine": versions[1]}),
    )
    outputs = {NEW: case.new, HISTORY: case.history, TEACHER: {"fine": case.teacher}}
    found = combine({term.name: term.loss(outputs, step, EVIDENCE) for term in terms(method, settings, history)})
    found.loss.backward()
    return found.terms


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", CELLS, ids=str)
def test_st_soft_can_be_that_of_the_released_code(method, seed):
    case = draw(seed)
    terms_found = found_loss(method, case, RELEASED)
    loss, gradient = released_st_soft(
        case.history["fine"], case.teacher, case.coarse.tolist(), method.refine == "filter"
    )
    (mine,) = (value for name, value in terms_found.items() if name.startswith("st-soft"))
    assert mine == pytest.approx(loss, abs=1e-14)
    without = draw(seed)
    found_loss(Method(method.coarse), without, RELEASED)
    before = without.history["fine"].grad
    added = case.history["fine"].grad - (0 if before is None else before)
    torch.testing.assert_close(added, gradient, atol=1e-15, rtol=1e-13)


@pytest.mark.parametrize("method", CELLS, ids=str)
def test_st_soft_of_the_paper_is_another_loss_than_the_released_one(method):
    gradients = []
    for settings in (PseudoLabelSettings(), RELEASED):
        case = draw(0)
        found_loss(method, case, settings)
        gradients.append(case.history["fine"].grad)
    assert (gradients[0] - gradients[1]).abs().max() > 0.01


def test_the_released_st_soft_is_conditioning_weighted_by_the_teachers_probability_of_the_coarse_label():
    masked, conditioned = draw(3), draw(3)
    found_loss(Method("ce", "st-soft"), masked, RELEASED)
    found_loss(Method("ce", "st-soft", "cond"), conditioned, PseudoLabelSettings())
    probs = masked.teacher.softmax(dim=1)
    mass = torch.stack([probs[i, torch.tensor(PARENTS) == label].sum() for i, label in enumerate(masked.coarse)])
    expected = mass[:, None] * conditioned.history["fine"].grad
    torch.testing.assert_close(masked.history["fine"].grad, expected, atol=1e-15, rtol=1e-12)


def test_golden_values_of_the_released_st_soft():
    # By hand: one sample of class c0 = {f0, f1}; q = (1/2, 1/4, 1/4, 0, ...), p uniform over eight classes.
    teacher = torch.tensor([[2.0, 1.0, 1.0] + [1e-30] * 5], dtype=torch.float64).log()
    student = torch.zeros(1, 8, dtype=torch.float64)
    loss, gradient = released_st_soft(student, teacher, [0], filtering=False)
    assert loss == pytest.approx(0.5 * math.log(4) + 0.25 * math.log(2))
    expected = torch.tensor([0.75 / 8 - 0.5, 0.75 / 8 - 0.25] + [0.75 / 8] * 6, dtype=torch.float64)
    torch.testing.assert_close(gradient[0], expected)
    case = draw(0, samples=1)._replace(teacher=teacher, coarse=torch.tensor([0]))
    case.history["fine"].data.zero_()
    assert found_loss(Method("ce", "st-soft"), case, RELEASED)["st-soft"] == pytest.approx(loss)
    torch.testing.assert_close(case.history["fine"].grad, gradient)


@pytest.mark.parametrize("coarse", ["joint", "lpl"])
def test_the_papers_sums_are_twice_the_released_mean_of_coarse_losses(coarse):
    case = draw(1)
    papers = found_loss(Method(coarse), case, history=HistorySettings(sums=True))
    total = 0.0
    parents = torch.tensor(PARENTS)
    for heads, labels in ((case.new, parents[case.fine]), (case.history, case.coarse)):
        for i, label in enumerate(labels.tolist()):
            if coarse == "joint":
                total -= math.log(softmax(heads["coarse"][i].tolist())[label])
            else:
                probs = softmax(heads["fine"][i].tolist())
                total -= math.log(sum(p for p, parent in zip(probs, PARENTS, strict=True) if parent == label))
    samples = len(case.fine)
    assert papers[coarse] == pytest.approx(total / samples)  # the paper's sums, divided by K like all of its losses
    released = found_loss(Method(coarse), draw(1))
    assert released[coarse] == pytest.approx(total / (2 * samples))  # one mean over K + M
    assert released["ce"] == papers["ce"]

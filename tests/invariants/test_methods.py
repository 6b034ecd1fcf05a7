"""What holds for every method of the paper."""

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from leco import LecoError, Ontology
from leco.data.batches import Batch, Step
from leco.methods.method import ALL_METHODS, Method
from leco.methods.terms import HISTORY, NEW, Request, combine, forward_once, terms
from leco.settings import PseudoLabelSettings

ONTOLOGY = Ontology.from_taxonomy(
    "t", ["v0", "v1", "v2"], [("a", "aa", "aaa"), ("a", "aa", "aab"), ("a", "ab", "aba"), ("b", "ba", "baa")]
)
EVIDENCE = ONTOLOGY.evidence()
SIZE = 6


def make_step() -> Step:
    """New samples labelled in v2; history half in v0, half in v1."""
    generator = torch.Generator().manual_seed(0)
    new, old = (torch.randint(4, (SIZE,), generator=generator) for _ in range(2))
    none = torch.full((SIZE,), -1)
    in_v1 = torch.arange(SIZE) % 2 == 0
    v0, v1 = ONTOLOGY.translate(old, "v2", "v0"), ONTOLOGY.translate(old, "v2", "v1").where(in_v1, none)
    rows = torch.where(in_v1, EVIDENCE.ids(v1, "v1"), EVIDENCE.ids(v0, "v0"))
    ids = torch.arange(SIZE)
    labels = {"v0": ONTOLOGY.translate(new, "v2", "v0"), "v1": ONTOLOGY.translate(new, "v2", "v1"), "v2": new}
    inputs = torch.zeros(SIZE, 5)
    history = Batch(ids, inputs, rows, {"v0": v0, "v1": v1, "v2": none})
    return Step(Batch(ids, inputs, EVIDENCE.ids(new, "v2"), labels), history)


class Counting:
    """A linear network with one head per version, which counts its calls."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.heads = {v.name: torch.randn(5, len(v), generator=generator).requires_grad_() for v in ONTOLOGY.versions}
        self.calls: Counter[int] = Counter()

    def __call__(self, inputs: Tensor) -> dict[str, Tensor]:
        self.calls[id(inputs)] += 1
        return {version: inputs @ weight for version, weight in self.heads.items()}


def make_views() -> dict[tuple[str, str], Tensor]:
    generator = torch.Generator().manual_seed(1)
    keys = [(part, view) for part in ("new", "history") for view in ("weak", "strong")]
    return {key: torch.randn(SIZE, 5, generator=generator) * 3 for key in keys}


def run(method: Method, settings: PseudoLabelSettings | None = None) -> tuple[Tensor, dict[str, Counting]]:
    networks = {"student": Counting(2), "teacher": Counting(3)}
    summands = terms(method, settings)
    outputs = forward_once(networks, make_views(), summands)
    return combine({term.name: term.loss(outputs, make_step(), EVIDENCE) for term in summands}).loss, networks


def test_there_are_the_39_combinations_of_the_paper():
    assert len(ALL_METHODS) == len(set(map(str, ALL_METHODS))) == 39


@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_a_method_is_read_as_it_is_written(method):
    assert Method.parse(str(method)) == method


@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_every_method_forwards_each_network_once_per_view_and_no_more_than_it_needs(method):
    _, networks = run(method)
    student, teacher = networks["student"].calls, networks["teacher"].calls
    assert set(student.values()) | set(teacher.values()) <= {1}
    uses_history = method.coarse != "ce" or method.pseudo != "none"
    assert len(student) == 1 + uses_history + (method.pseudo == "fixmatch")
    assert len(teacher) == method.needs_teacher


@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_every_method_trains_the_student_and_leaves_the_teacher_alone(method):
    loss, networks = run(method)
    assert loss.isfinite()
    loss.backward()
    assert networks["student"].heads["v2"].grad.isfinite().all()
    assert networks["student"].heads["v2"].grad.abs().sum() > 0
    assert all(weight.grad is None for weight in networks["teacher"].heads.values())
    old_head = networks["student"].heads["v0"].grad
    assert (old_head is not None) == (method.coarse == "joint")


@torch.no_grad()
def naive_loss(method: Method) -> float:
    """The sum of the paper's equations, sample by sample."""
    student, teacher, views, step = Counting(2), Counting(3), make_views(), make_step()
    logits = {key: student(value) for key, value in views.items()}
    new, history = logits["new", "strong"], logits["history", "strong"]
    loss = F.cross_entropy(new["v2"], step.new.labels["v2"]).item()
    for version in ("v0", "v1") if method.coarse != "ce" else ():
        edges = ONTOLOGY.transition("v2", version).shares
        per_sample = []
        for batch, out in ((step.new, new), (step.history, history)):
            for i, label in enumerate(batch.labels[version].tolist()):
                if label < 0:
                    continue
                if method.coarse == "lpl":
                    per_sample.append(-math.log(float(out["v2"][i].softmax(0) @ edges[:, label])))
                else:
                    per_sample.append(-float(out[version][i].log_softmax(0)[label]))
        loss += sum(per_sample) / len(per_sample)
    if method.pseudo == "none":
        return loss
    source = {"pl": history, "fixmatch": logits["history", "weak"]}.get(method.pseudo) or teacher(
        views["history", "strong"]
    )
    total = 0.0
    for i in range(SIZE):
        q = source["v2"][i].softmax(0)
        version = "v1" if step.history.labels["v1"][i] >= 0 else "v0"
        allowed = ONTOLOGY.transition("v2", version).shares[:, step.history.labels[version][i]]
        if method.refine == "filter" and allowed[q.argmax()] == 0:
            continue
        if method.refine == "cond":
            q = q * allowed / (q * allowed).sum()
        if method.pseudo in ("pl", "fixmatch") and q.max() <= 0.95:
            continue
        log_p = history["v2"][i].log_softmax(0)
        total += -float(log_p[q.argmax()]) if method.pseudo != "st-soft" else -float((q * log_p).sum())
    return loss + total / SIZE


@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_every_method_is_the_sum_of_the_papers_equations(method):
    loss, _ = run(method)
    assert loss.item() == pytest.approx(naive_loss(method), rel=1e-4)


@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_in_the_first_period_every_method_is_cross_entropy(method):
    first = ONTOLOGY.until("v0")
    labels = torch.tensor([0, 1, 0, 1, 1, 0])
    step = Step(Batch(labels, torch.zeros(6, 5), first.evidence().ids(labels, "v0"), {"v0": labels}), None)
    views = {key: value for key, value in make_views().items() if key[0] == "new"}
    network = Counting(2)
    summands = terms(method)
    outputs = forward_once({"student": network}, views, summands)
    loss = combine({term.name: term.loss(outputs, step, first.evidence()) for term in summands}).loss
    torch.testing.assert_close(loss, F.cross_entropy(network(views["new", "strong"])["v0"], labels))


def test_pseudo_labels_may_be_soft_as_the_paper_writes_them():
    hard, soft = (
        run(Method("ce", "fixmatch", "cond"), PseudoLabelSettings(threshold=0.0, soft=s))[0] for s in (False, True)
    )
    assert not torch.isclose(hard, soft)


def test_the_threshold_is_taken_after_conditioning():
    kept = [run(Method("ce", "pl", refine))[0].item() for refine in ("plain", "cond")]
    assert kept[1] > kept[0]  # conditioning makes more of them sure


def test_requests_name_what_a_term_needs():
    needs = terms(Method.parse("lpl+fixmatch/filter"))[2].needs
    assert needs == (Request("student", "history", "weak"), HISTORY)
    assert terms(Method.parse("ce"))[0].needs == (NEW,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lpl+st-hrd/cond", r"'lpl\+st-hrd/cond' is not a method; did you mean 'lpl\+st-hard/cond'\?"),
        ("lpl/cond", "is not a method"),
        ("", "is not a method"),
    ],
)
def test_unknown_methods_are_named(text, message):
    with pytest.raises(LecoError, match=message):
        Method.parse(text)
    with pytest.raises(LecoError, match="no pseudo-labels to refine"):
        Method("lpl", "none", "cond")


@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_losses_of_logits_in_half_precision_are_computed_in_float32(method):
    summands = terms(method)
    outputs = forward_once({"student": Counting(2), "teacher": Counting(3)}, make_views(), summands)
    found = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        # Values that all of them can represent, so that the losses are equal if nothing is rounded on the way.
        rounded = {
            request: {name: z.bfloat16().half().to(dtype) for name, z in logits.items()}
            for request, logits in outputs.items()
        }
        losses = {term.name: term.loss(rounded, make_step(), EVIDENCE) for term in summands}
        assert all(mean.total.dtype == torch.float32 for loss in losses.values() for mean in loss.means)
        found.append(combine(losses).loss.item())
    assert found[1] == found[0]
    assert found[2] == found[0]

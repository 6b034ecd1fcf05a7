"""The memory of a step, estimated from two small ones."""

import pytest
from tests.unit.experiments.test_check import folder, look  # noqa: F401 (a fixture)

from leco import LecoError
from leco.experiments import memory as memory_module
from leco.experiments.memory import StepMemory, check_batches, least_memory, step_memory


def test_what_a_step_keeps_follows_from_the_layers(folder):  # noqa: F811
    """A linear layer keeps its inputs, and a ReLU its outputs."""
    found = look(folder, network__backbone="wrn-10-1", batches__size="64")
    stage = found.plan.stages[-1]
    memory = step_memory(stage, found.periods, "cpu")
    assert memory.size == 64
    network = 78_000 * 4  # parameters of WRN-10-1
    assert 5.5 * network < memory.weights < 7.5 * network  # network, average, best, teacher, gradients, momentum
    side = found.periods.shape[-1]
    maps = 16 * side * side * 4  # bytes of the first layer's output, of which a WRN-10-1 keeps several and smaller ones
    assert 4 * maps < memory.sample < 16 * maps
    more = look(folder, network__backbone="wrn-16-1", batches__size="64")
    deeper = step_memory(more.plan.stages[-1], more.periods, "cpu")
    assert deeper.sample > 1.3 * memory.sample


def test_a_teacher_keeps_no_activations(folder):  # noqa: F811
    """Nor do activations at places in memory that its weights had before they were moved count as weights."""
    found = look(folder, network__backbone="wrn-28-2")
    taught, plain = found.plan.stages[-1], found.plan.stages[-2]
    assert (taught.teacher, plain.teacher) == (plain, None)
    ours, theirs = (step_memory(stage, found.periods, "cpu") for stage in (taught, plain))
    assert ours.sample == pytest.approx(theirs.sample, rel=0.05)
    assert ours.weights > 1.1 * theirs.weights


def test_recomputing_shows_in_the_estimate(folder):  # noqa: F811
    plain, saving = (
        look(folder, network__backbone="wrn-28-2", network__recompute=recompute) for recompute in ("false", "true")
    )
    kept = [step_memory(found.plan.stages[-1], found.periods, "cpu").sample for found in (plain, saving)]
    assert kept[1] < kept[0] / 2


@pytest.mark.parametrize(
    ("available", "largest", "parts", "says"),
    [
        (None, None, 1, None),
        (14_000, 990, 1, None),
        (1_400, 90, 2, "a batch of 128 takes about 1.9 kB, but 1.4 kB are free; set training.batches.parts to 2"),
        (700, 40, 4, "set training.batches.parts to 4, or training.network.recompute to true"),
        (140, 0, None, "not enough for two samples; use a smaller backbone"),
    ],
)
def test_the_batch_that_fits_is_found(available, largest, parts, says):
    memory = StepMemory(weights=100, sample=10, size=128, available=available)
    assert (memory.largest, memory.parts) == (largest, parts)
    assert memory.problem is None if says is None else says in memory.problem


def test_a_batch_that_is_too_large_for_the_memory_is_refused_before_it_is_taken(folder, monkeypatch):  # noqa: F811
    found = look(folder, network__backbone="wrn-10-1", batches__size="65536")
    monkeypatch.setattr(memory_module, "available_memory", lambda: 10**9)
    with pytest.raises(
        LecoError, match=r"^training\.batches\.size: a batch of 65,536 takes about .* fits as a whole is "
    ):
        check_batches(found.plan, found.periods, "cpu")
    memory = step_memory(found.plan.stages[-1], found.periods, "cpu")
    parts = look(folder, network__backbone="wrn-10-1", batches__size="65536", batches__parts=str(memory.parts))
    check_batches(parts.plan, parts.periods, "cpu")


@pytest.mark.parametrize("backbone", ["wrn-10-1", "wrn-28-2", "resnet18"])
def test_the_least_that_a_step_takes_is_known_without_a_step(folder, backbone):  # noqa: F811
    found = look(folder, network__backbone=backbone, network__weights="random", batches__size="64")
    stage = found.plan.stages[-1]
    least, measured = least_memory(stage, found.periods), step_memory(stage, found.periods, "cpu")
    assert least.sample == pytest.approx(measured.sample, rel=0.1)
    assert 0.6 < least.weights / measured.weights < 1
    half = look(folder, network__backbone=backbone, network__weights="random", network__precision="bf16-mixed")
    assert least_memory(half.plan.stages[-1], half.periods).sample == least.sample // 2


def test_a_small_batch_of_large_inputs_is_refused_without_a_step(folder, monkeypatch):  # noqa: F811
    found = look(folder, network__backbone="wrn-28-2", batches__size="512")
    measured: list[object] = []

    def never(*_: object) -> StepMemory:
        measured.append(_)
        return StepMemory(0, 0, 0, None)

    monkeypatch.setattr(memory_module, "step_memory", never)
    monkeypatch.setattr(memory_module, "available_memory", lambda: 10**9)
    (problem,) = look(folder, network__backbone="wrn-28-2", batches__size="512").problems  # of `leco check`
    assert problem.message.startswith("training.batches.size: a batch of 512 takes")
    with pytest.raises(LecoError, match=r"a batch of 512 takes about 2\.\d GB, but 1.*; the largest .* is 1\d\d$"):
        check_batches(found.plan, found.periods, "cpu")
    assert measured == []
    monkeypatch.setattr(memory_module, "available_memory", lambda: 4 * 10**9)  # near enough to be measured
    check_batches(found.plan, found.periods, "cpu")
    assert len(measured) == 1
    monkeypatch.setattr(memory_module, "available_memory", lambda: 10**9)
    saving = look(folder, network__backbone="wrn-28-2", batches__size="512", network__recompute="true")  # keeps less
    assert len(measured) == 2
    assert saving.problems == []
    measured.clear()
    monkeypatch.setattr(memory_module, "available_memory", lambda: 4 * 10**10)
    check_batches(found.plan, found.periods, "cpu")
    assert measured == []

"""How many stages share a GPU."""

from pathlib import Path

import pytest

from leco.experiments.experiment import experiment
from leco.experiments.grid import Graph
from leco.experiments.sharing import fitting, on_a_gpu
from leco.experiments.stages import Stage

GB = 2**30


def graph(*methods: str, **settings: str) -> Graph:
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    return Graph.of([experiment("digits-leco", {"method": name, "size": 40}, changed) for name in methods], Path())


def test_the_most_demanding_stage_of_a_network_is_measured_once():
    found, asked = graph("ce", "joint", "lpl+st-soft/cond"), []

    def measure(name: str) -> tuple[int, int]:
        asked.append(str(found.stages[name]))
        return GB, 24 * GB

    assert on_a_gpu(found, found.stages, 4, measure) == dict.fromkeys(found.stages, 4)
    assert [name.split(",")[0] for name in asked] == ["TP1 lpl+st-soft/cond"]


def test_networks_and_batches_are_measured_apart():
    small, large = graph("ce"), graph("ce", training__batches__size="1024")
    both = Graph((), small.stages | large.stages, small.needed_by | large.needed_by, 4)
    sizes = {name: stage.training.batches.size for name, stage in both.stages.items()}
    found = on_a_gpu(both, both.stages, 4, lambda name: (sizes[name] * GB // 64, 24 * GB))
    assert {sizes[name]: count for name, count in found.items()} == {1024: 1, min(sizes.values()): 4}


def test_what_cannot_be_measured_has_a_gpu_of_its_own():
    found = graph("ce")
    assert set(on_a_gpu(found, found.stages, 4, lambda _: None).values()) == {1}


def test_a_stage_of_freeze_has_a_gpu_of_its_own_for_its_cached_views():
    cell = {"method": "lpl", "strategy": "freeze", "size": 40}
    found = Graph.of([experiment("digits-leco", cell, {})], Path())
    shared = on_a_gpu(found, found.stages, 4, lambda _: (GB, 24 * GB))
    assert {found.stages[name].strategy: count for name, count in shared.items()} == {"scratch": 4, "freeze": 1}


def test_nothing_is_measured_where_it_would_not_matter(monkeypatch):
    found = graph("ce")

    def refuse(_: str) -> tuple[int, int]:
        raise AssertionError("measured")

    assert set(on_a_gpu(found, found.stages, 1, refuse).values()) == {1}
    monkeypatch.setattr(Stage, "on_features", True)
    assert set(on_a_gpu(found, found.stages, 4, refuse).values()) == {4}


@pytest.mark.parametrize("step", [GB // 10, GB, 4 * GB, 12 * GB, 100 * GB])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_stages_that_share_a_gpu_leave_some_of_its_memory_free(step, most):
    count = fitting(step, 24 * GB, most)
    assert 1 <= count <= most
    assert count == 1 or count * step < 24 * GB / 2

from collections import Counter
from pathlib import Path

import pytest
import torch

from leco import LecoError, Ontology
from leco.data.batches import Order, Steps, loader
from leco.data.periods import Annotated, Part
from leco.data.samples import Files, InMemory, Samples

ONTOLOGY = Ontology.from_taxonomy(
    "t", ["v0", "v1", "v2"], [("a", "aa", "aaa"), ("a", "aa", "aab"), ("a", "ab", "aba"), ("b", "ba", "baa")]
)


def make_samples(count: int = 60) -> Samples:
    newest = torch.arange(count) % 4
    labels = {v.name: InMemory(ONTOLOGY.translate(newest, "v2", v.name)) for v in ONTOLOGY.versions}
    return Samples(InMemory(torch.arange(count).view(-1, 1, 1, 1).to(torch.uint8)), labels)


def make_steps(samples: Samples | None = None, batch_size: int = 8, seed: int = 0) -> Steps:
    parts = torch.arange(60).split(20)
    annotated = Annotated(
        Part("v2", parts[2]), (Part("v0", parts[0]), Part("v1", parts[1])), Part("v2", torch.empty(0).long())
    )
    return Steps(samples or make_samples(), annotated, ONTOLOGY.evidence(), batch_size, seed, steps=50)


def test_an_epoch_holds_every_number_once_whatever_the_batch_size():
    order = Order(13, seed=4, name="new")
    for batch in (1, 5, 13, 40):
        drawn = torch.cat([order.stretch(step * batch, batch) for step in range(13)])
        assert torch.equal(drawn, torch.cat([order.stretch(0, 13 * batch)]))
        for epoch in drawn.split(13):
            assert sorted(epoch.tolist()) == list(range(13))
    assert not torch.equal(order.stretch(0, 13), order.stretch(13, 13))
    others = [Order(13, 5, "new"), Order(13, 4, "history"), Order(13, 3, "history")]
    assert not any(torch.equal(order.stretch(0, 13), other.stretch(0, 13)) for other in others)


def test_a_long_permutation_is_made_once_an_epoch_also_beside_a_pool_of_a_few_samples(monkeypatch):
    lengths = []
    monkeypatch.setattr(torch, "randperm", lambda n, generator: lengths.append(n) or torch.arange(n))
    long, short = (Order(count, seed=-1, name="once") for count in (10_000, 3))
    for step in range(20):
        long.stretch(64 * step, 64)
        short.stretch(64 * step, 64)  # of 22 epochs
    assert lengths.count(10_000) == 1


def test_new_and_history_are_drawn_in_equal_numbers_from_all_periods():
    seen = Counter()
    for step in loader(make_steps()):
        assert len(step.new) == len(step.history) == 8
        assert (step.new.ids >= 40).all()
        assert (step.history.ids < 40).all()
        seen.update(step.history.ids.tolist())
    assert set(seen.values()) == {10}  # 50 steps of 8 from 40 samples


def test_every_sample_carries_the_evidence_of_its_own_label():
    evidence = ONTOLOGY.evidence()
    for step in loader(make_steps()):
        for batch in (step.new, step.history):
            for sample, row in zip(batch.ids.tolist(), batch.rows, strict=True):
                version = f"v{sample // 20}"
                label = ONTOLOGY.translate([sample % 4], "v2", version)
                assert torch.equal(evidence.gather(row.view(1)), evidence.rows(label, version))


def test_labels_are_known_in_the_samples_version_and_older_ones_only():
    step = make_steps()[0]
    assert (step.new.labels["v2"] == step.new.ids % 4).all()
    assert torch.equal(step.new.labels["v0"], ONTOLOGY.translate(step.new.ids % 4, "v2", "v0"))
    first = step.history.ids < 20
    assert (step.history.labels["v2"] == -1).all()
    assert (step.history.labels["v1"][first] == -1).all()
    assert (step.history.labels["v1"][~first] >= 0).all()
    assert (step.history.labels["v0"] >= 0).all()


def test_a_resumed_run_draws_what_it_would_have_drawn():
    whole = [step.new.ids for step in loader(make_steps())]
    rest = [step.new.ids for step in loader(make_steps(), start=31)]
    assert all(torch.equal(one, other) for one, other in zip(whole[31:], rest, strict=True))


def test_ranks_share_every_batch():
    whole, parts = make_steps(), []
    for rank in range(2):
        annotated = Annotated(
            Part("v2", torch.arange(40, 60)), (Part("v0", torch.arange(20)),), Part("v2", torch.arange(0))
        )
        parts.append(Steps(make_samples(), annotated, ONTOLOGY.evidence(), 8, 0, steps=50, rank=rank, ranks=2))
    for step in (0, 7):
        ids = torch.stack([part[step].new.ids for part in parts], dim=1).flatten()
        assert torch.equal(ids, whole[step].new.ids)
    with pytest.raises(LecoError, match="cannot be divided equally among 3 ranks"):
        Steps(make_samples(), annotated, ONTOLOGY.evidence(), 8, 0, steps=50, rank=0, ranks=3)


def test_a_run_has_an_end():
    assert len(list(make_steps())) == 50
    for step in (-1, 50):
        with pytest.raises(IndexError):
            make_steps()[step]
    with pytest.raises(LecoError, match="steps and batch size must be positive, not 3 and 0"):
        Steps(
            make_samples(),
            Annotated(Part("v0", torch.arange(5)), (), Part("v0", torch.arange(0))),
            ONTOLOGY.evidence(),
            0,
            0,
            steps=3,
        )


def test_a_relabelled_sample_keeps_its_own_old_label():
    samples = make_samples()
    kept = Samples(samples.inputs, dict(samples.labels), keeps_labels=True)
    kept.labels["v0"] = InMemory(torch.ones(60, dtype=torch.int64))  # somebody said b of all of them
    assert (make_steps(kept)[0].new.labels["v0"] == 1).all()
    assert not (make_steps(samples)[0].new.labels["v0"] == 1).all()


def decode(path: Path) -> torch.Tensor:
    return torch.full((1, 1, 1), int(path.stem), dtype=torch.uint8)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_files_are_read_in_the_same_order_by_any_number_of_workers(workers):
    samples = make_samples()
    files = Samples(Files([Path(f"{n}.png") for n in range(60)], decode), samples.labels)
    expected = list(loader(make_steps()))
    found = list(loader(make_steps(files), workers=workers))
    assert all(torch.equal(a.new.inputs, b.new.inputs) for a, b in zip(expected, found, strict=True))
    assert all(torch.equal(a.history.rows, b.history.rows) for a, b in zip(expected, found, strict=True))


def test_without_history_batches_have_new_samples_only():
    annotated = Annotated(Part("v0", torch.arange(5)), (), Part("v0", torch.arange(0)))
    steps = Steps(make_samples(), annotated, ONTOLOGY.until("v0").evidence(), 8, 0, steps=3)
    assert steps[2].history is None
    assert len(steps[2].new) == 8  # more than an epoch
    with pytest.raises(LecoError, match="no sample is labelled in the newest version"):
        Steps(
            make_samples(),
            Annotated(Part("v0", torch.arange(0)), (), annotated.validation),
            ONTOLOGY.evidence(),
            8,
            0,
            steps=3,
        )


def test_label_maps_are_drawn_like_labels():
    maps = (torch.arange(60) % 4).view(-1, 1, 1).expand(60, 2, 3)
    labels = {v.name: InMemory(ONTOLOGY.translate(maps, "v2", v.name).short()) for v in ONTOLOGY.versions}
    step = make_steps(Samples(InMemory(torch.zeros(60, 3, 2, 3, dtype=torch.uint8)), labels))[0]
    assert step.history.rows.shape == (8, 2, 3)
    assert step.new.labels["v1"].shape == (8, 2, 3)

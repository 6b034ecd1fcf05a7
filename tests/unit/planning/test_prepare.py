"""Measurements are repeatable, resumed where they stopped, and never touch the test split."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.unit.planning.conftest import prepared
from torch import nn

from leco import LecoError
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.train import periods_of
from leco.planning import features, heads
from leco.planning.heads import Head
from leco.planning.plan import make_plan
from leco.planning.prepare import load_context
from leco.planning.strategies import Costs


def test_the_same_seed_gives_the_same_plan_and_nothing_is_fitted_twice(own, monkeypatch):
    first = make_plan(prepared(own), 40, Costs(1.0, 0.4), "x")
    assert make_plan(prepared(own, own / "elsewhere"), 40, Costs(1.0, 0.4), "x") == first

    def refuse(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(Head, "predict", refuse)
    assert make_plan(prepared(own), 40, Costs(1.0, 0.4), "x") == first


def test_a_stopped_plan_continues_where_it_was(own, monkeypatch):
    whole = make_plan(prepared(own, own / "whole"), 40, Costs(), "x")
    fit, calls = heads.fit_head, []

    def stop_at_15(*arguments: object) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 15:
            raise KeyboardInterrupt
        return fit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(heads, "fit_head", stop_at_15)
    with pytest.raises(KeyboardInterrupt):
        prepared(own)
    assert make_plan(prepared(own), 40, Costs(), "x") == whole
    assert len(calls) == 4 + 5 * 6 + 1  # priors, points of five draws, and the one that was cut short


def test_asked_to_stop_it_stops_after_the_current_fit(own):
    asked = iter([False, True])
    with pytest.raises(KeyboardInterrupt):
        prepared(own, stop=lambda: next(asked))
    assert len(list((own / "runs" / "plans").rglob("0-*.json"))) == 2


def test_the_test_split_is_never_read(own):
    before = make_plan(prepared(own, own / "a"), 40, Costs(), "x")
    text = (own / "labels.csv").read_text()
    without = [line for line in text.splitlines() if not line.endswith("test")]
    (own / "labels.csv").write_text("\n".join(without) + "\n")
    assert make_plan(prepared(own, own / "b"), 40, Costs(), "x") == before


def test_a_plan_is_the_same_whatever_is_wrong_with_the_test_split(own):
    before = make_plan(prepared(own, own / "a", tested=False), 40, Costs(), "x")
    lines = (own / "labels.csv").read_text().splitlines()
    broken = [
        line if not line.endswith("test") else f"gone{number}.npy,none,v2,test" for number, line in enumerate(lines)
    ]
    (own / "labels.csv").write_text("\n".join(broken) + "\n")
    after = prepared(own, own / "a", tested=False)
    assert make_plan(after, 40, Costs(), "x") == before
    assert len(list((own / "a" / "plans").iterdir())) == 1  # what was measured is found again
    with pytest.raises(LecoError, match="60 unknown label, 60 missing file"):
        prepared(own, own / "a")


def test_too_few_labels_are_refused(own):
    lines = (own / "labels.csv").read_text().splitlines()
    kept = [line for number, line in enumerate(lines) if ",v2,train" not in line or number < 9]
    (own / "labels.csv").write_text("\n".join(kept) + "\n")
    with pytest.raises(LecoError, match="a learning curve needs at least 10"):
        prepared(own)


def test_features_of_a_named_backbone_are_kept_in_the_store(tmp_path, monkeypatch):
    torch.manual_seed(0)
    network, seen = nn.Sequential(nn.Flatten(), nn.Linear(64, 12)), []
    network.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    monkeypatch.setattr(features, "build_backbone", lambda *_, **__: network)
    monkeypatch.setattr(features, "find_weights", lambda *_, **__: SimpleNamespace(source="a test", digest="1234"))
    wanted = experiment("digits-leco", {"size": 60}, {})
    periods = periods_of(wanted, Path(), tested=False)
    first, again = (load_context(wanted, periods, tmp_path, Machine("cpu"), "resnet18") for _ in range(2))
    assert sum(seen) == len(first.known.features) == 2 * 60 + 15
    uncached = replace(first.reader.extractor, embedder=None)
    plain = load_context(wanted, periods, tmp_path / "other", Machine("cpu"), uncached)
    assert not (tmp_path / "other" / "features").exists()
    assert torch.equal(first.known.features, again.known.features)
    torch.testing.assert_close(first.known.features.abs(), plain.known.features.abs(), rtol=1e-3, atol=1e-3)
    assert (first.folder.name, first.head.prior) == (plain.folder.name, plain.head.prior)

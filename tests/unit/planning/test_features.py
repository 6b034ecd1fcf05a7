import json
from pathlib import Path

import pytest
import torch
from tests.stores import make_stages, write_stage

from leco.planning.features import LearnedStore, Projection


@pytest.fixture
def stored(tmp_path: Path) -> tuple[LearnedStore, Path, str]:
    """A store with one stage as `leco run` leaves it, the stage's folder, and what it learned from."""
    stage, score = make_stages([0])[0]
    folder = write_stage(tmp_path, stage, score)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"learned": stage.untested.fingerprint}))
    return LearnedStore(tmp_path), folder, stage.untested.fingerprint


def test_a_stage_is_found_by_what_it_learned_from(stored):
    store, folder, learned = stored
    assert learned != folder.name
    assert store.folder(learned) == store.folder(folder.name) == folder
    assert store.require(learned) == store.require(folder.name)


def test_one_that_was_trained_for_a_plan_comes_first(stored):
    store, _, learned = stored
    (store.stages / learned).mkdir()
    assert store.folder(learned) == store.stages / learned


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"learned": 7}', None])
def test_what_is_damaged_is_not_found(stored, content):
    store, folder, learned = stored
    (folder / "config.json").unlink() if content is None else (folder / "config.json").write_text(content)
    assert store.result(learned) is None
    assert store.folder(learned) == store.stages / learned


def test_what_is_not_complete_hides_nothing(stored):
    store, folder, learned = stored
    (store.stages / "0000").mkdir()
    (store.stages / "0000" / "config.json").write_bytes((folder / "config.json").read_bytes())
    assert store.folder(learned) == folder


def test_principal_components_keep_what_varies_and_scale_it():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(500, 3, generator=generator) @ torch.randn(3, 400, generator=generator) + 7
    found = Projection.of(features)
    projected = found(features)
    assert projected.shape[1] == 256
    assert projected.square().sum(dim=1).mean().item() == pytest.approx(100, rel=1e-3)
    assert projected[:, 3:].abs().max() < 1e-2  # the data have three dimensions

"""The losses of the first steps, to the last digits that every CPU agrees on: a refactoring must not change them.

`python tests/golden/test_losses.py` writes them anew, after a change that is meant.
"""

import json
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from leco.experiments.config import experiment
from leco.experiments.material import make_material
from leco.experiments.running import Machine, run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store

METHODS = ("ce", "joint", "lpl", "lpl+st-hard/cond", "joint+st-soft/filter", "lpl+pl", "lpl+fixmatch/cond")
GOLDEN = Path(__file__).with_name("losses.json")
SETTINGS = {
    **{"training.model": "wrn-10-1", "training.steps": "4", "training.evaluate_every": "1"},
    # A small rate, since steps of a large one make much of how a CPU rounds.
    **{"training.batch_size": "16", "training.threshold": "0.2", "training.learning_rate": "0.001"},
}


def losses(method: str, runs: Path) -> list[dict[str, float]]:
    """The losses and the pseudo-labels' health of every step of the second period."""
    torch.set_num_threads(1)
    wanted = experiment("digits-leco", {"method": method}, SETTINGS)
    material, store = make_material(wanted, Path()), Store(runs)
    stages = plan(wanted, material)
    for stage in stages.stages:
        run_stage(stage, material, store, Machine("cpu"), lambda *_: None)
    lines = (store.stages / stages.periods[-1][0].fingerprint / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["means"] for line in lines]


@pytest.mark.parametrize("method", METHODS)
def test_the_first_losses_are_what_they_were(method, tmp_path):
    expected = json.loads(GOLDEN.read_text())[method]
    found = losses(method, tmp_path)
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = {method: losses(method, Path(folder)) for method in METHODS}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{GOLDEN}\n")

"""Losses and weights of short trainings of every kind: a refactoring must not change them.

They are compared to the digits that every CPU agrees on, and to the last bit where they were recorded.
`python tests/golden/test_losses.py` writes them anew, after a change that is meant.
"""

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from leco import LecoClassifier
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine, Stopped
from leco.experiments.run import run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of

Line = dict[str, Any]
Weights = dict[str, torch.Tensor]
Stages = list[tuple[str, list[Line], Weights]]

FOLDER = Path(__file__).parent
RELATIVE, ABSOLUTE = 5e-4, 1e-6  # on another kind of processor: masks differed by 1.1e-4 between two

# Small rates, and many numbers in every mean of BatchNorm: else much is made of how a CPU rounds.
COMMON = {
    "training.batches.steps": "4",
    "training.batches.evaluate_every": "4",
    "training.pseudo_labels.threshold": "0.2",
}
EVERY_STEP = {
    "training.batches.evaluate_every": "1"
}  # losses of every step, and the weights that are best on validation
IMAGES = {
    **COMMON,
    "training.network.backbone": "wrn-10-1",
    "training.batches.size": "16",
    "training.optimiser.learning_rate": "0.001",
}
VECTORS = {
    **COMMON,
    "training.network.backbone": "linear",
    "training.batches.size": "8",
    "training.optimiser.learning_rate": "0.1",
}
GAUSSIAN = {"training.finish.head": "gaussian"}
# Enough for two views of each of 30 samples.
BANK = {"training.batches.steps": "8", "training.transfer.draws_per_view": "1", "training.batches.evaluate_every": "8"}
MASKS = {
    **{
        **COMMON,
        "training.network.backbone": "tiny",
        "training.network.weights": "random",
        "training.batches.size": "16",
    },
    **{
        "training.segmentation.crop": "64",
        "training.segmentation.base_size": "64",
        "training.segmentation.window": "32",
    },
    **{"training.optimiser.learning_rate": "0.0002", "training.optimiser.finetune_learning_rate": "0.0002"},
}
PHOTOS = {
    **{
        **COMMON,
        **EVERY_STEP,
        "training.network.backbone": "resnet18",
        "training.network.weights": "random",
        "training.batches.steps": "2",
    },
    **{"training.batches.size": "8", "training.optimiser.learning_rate": "0.001"},
}


class Case(NamedTuple):
    """An experiment on a benchmark, or on data that `DRAWN` draws."""

    source: str
    changes: dict[str, Any]
    settings: dict[str, str]


def digits(method: str, settings: dict[str, str] | None = None, **changes: Any) -> Case:
    return Case("digits-leco", {"method": method, **changes}, IMAGES | (settings or {}))


def vectors(method: str, settings: dict[str, str] | None = None, **changes: Any) -> Case:
    return Case("vectors", {"method": method, **changes}, VECTORS | (settings or {}))


METHODS = ("ce", "joint", "lpl", "lpl+st-hard/cond", "joint+st-soft/filter", "lpl+pl", "lpl+fixmatch/cond")
CASES: dict[str, dict[str, Case]] = {
    "digits": {method: digits(method, EVERY_STEP) for method in METHODS},
    "strategies": {
        "finetune": digits("lpl+st-hard/cond"),
        "freeze": digits("joint+fixmatch/cond", BANK, strategy="freeze", size=30),
        "freeze without a bank": digits("lpl", strategy="freeze"),
        "lp-ft": digits("lpl", {"training.transfer.head_steps": "2"}, strategy="lp-ft"),
        "head start": digits("lpl", head_start=True),
        "gaussian": digits("lpl", GAUSSIAN),
        "gaussian, frozen": digits("lpl", BANK | GAUSSIAN, strategy="freeze", size=30),
    },
    "vectors": {
        **{method: vectors(method, EVERY_STEP) for method in ("ce", "lpl+st-hard/cond", "lpl+fixmatch/cond")},
        "balance": vectors("lpl+st-hard/cond", {"training.pseudo_labels.balance": "true"}),
        "adjust": vectors("lpl", {"training.finish.adjust": "0.5"}),
        "balance and adjust": vectors(
            "lpl+st-hard/cond", {"training.pseudo_labels.balance": "true", "training.finish.adjust": "0.5"}
        ),
        "gaussian": vectors("lpl", GAUSSIAN),
        "head start": vectors("lpl", head_start=True),
        "two rates": vectors("lpl", {"training.optimiser.learning_rate": "0.1,0.02"}),
        "mlp": vectors("joint", {"training.network.backbone": "mlp", "training.optimiser.learning_rate": "0.01"}),
    },
    "masks": {
        "lpl+st-soft/cond": Case("masks", {"method": "lpl+st-soft/cond"}, MASKS),
        "joint": Case("masks", {"method": "joint"}, MASKS | EVERY_STEP),
    },
    "photos": {"lpl": Case("photos", {"method": "lpl"}, PHOTOS)},
}
TWO_PROCESSES = {
    "lpl+st-soft/cond": digits("lpl+st-soft/cond", EVERY_STEP),
    "freeze": CASES["strategies"]["freeze"],
    "masks": Case("masks", {"method": "joint"}, MASKS),
}
RESUMED = [
    *[("digits", "lpl+st-hard/cond"), ("strategies", "freeze"), ("strategies", "lp-ft")],
    *[("vectors", "lpl+fixmatch/cond"), ("masks", "lpl+st-soft/cond")],
]
FITS: dict[str, dict[str, Any]] = {
    "lpl": {},
    "an mlp": {"method": "lpl+st-hard/cond", "model": "mlp", "head_start": True, "learning_rate": 0.01},
    "tuned": {"method": "lpl+fixmatch/cond", "threshold": 0.2, "balance": True, "adjust": 0.5},
    "gaussian": {"head": "gaussian"},
}

# What each kind of animal is called in every version.
ANIMALS = [
    ("cat", "cat", "cat"),
    ("dog", "husky", "sled-dog"),
    ("dog", "malamute", "sled-dog"),
    ("dog", "poodle", "toy-poodle"),
    ("dog", "poodle", "large-poodle"),
]
ONTOLOGY = {
    "name": "animals",
    "versions": [
        {"name": "v1", "classes": ["cat", "dog"]},
        {"name": "v2", "classes": {"cat": None, **{name: {"from": "dog"} for name in ("husky", "malamute", "poodle")}}},
        {
            "name": "v3",
            "classes": {
                "cat": None,
                "sled-dog": {"from": ["husky", "malamute"]},
                **{name: {"from": "poodle"} for name in ("toy-poodle", "large-poodle")},
            },
        },
    ],
}


def trained(source: str, changes: dict[str, Any], settings: dict[str, str], folder: Path, pause: int = 0) -> Stages:
    """Train what is not yet trained in a folder, and stop each stage once after `pause` steps, if any."""
    torch.set_num_threads(1)
    wanted = experiment(source, changes, settings)
    periods, store = periods_of(wanted, folder), Store(folder / "runs")
    found = []
    for stage in plan(wanted, periods).stages:
        machine = Machine("cpu", stop=once_after(pause))
        if pause:
            with pytest.raises(Stopped):
                run_stage(stage, periods, store, machine)
        run_stage(stage, periods, store, machine)
        lines = (store.folder(stage.fingerprint) / "metrics.jsonl").read_text().splitlines()
        weights = load_file(store.weights(stage.fingerprint))
        found.append((str(stage), [json.loads(line) for line in lines], weights))
    return found


def once_after(steps: int) -> Callable[[], bool]:
    """Asked after every step, true a single time."""
    asked = itertools.count(1)
    return lambda: next(asked) == steps


def run(case: Case, folder: Path, pause: int = 0) -> Stages:
    source = str(draw(case.source, folder)) if case.source in DRAWN else case.source
    return trained(source, case.changes, case.settings, folder, pause)


def run_in_two_processes(folder: Path) -> dict[str, Stages]:
    """Train in processes that work together, and read what they found."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", __file__, folder]
    for case in TWO_PROCESSES.values():
        if case.source in DRAWN:
            draw(case.source, folder)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    found = sorted(folder.glob("runs/stages/*/result.json"))
    assert {json.loads(path.read_text())["processes"] for path in found} == {2}
    stages = {name: run(case, folder) for name, case in TWO_PROCESSES.items()}
    assert sorted(folder.glob("runs/stages/*/result.json")) == found  # nothing was trained here
    return stages


def fit(parameters: dict[str, Any]) -> Stages:
    """Fit a classifier to labels of two versions; its probabilities beside its weights."""
    torch.set_num_threads(1)
    kinds, features = animals(40)
    versions = ["v2" if number % 2 else "v3" for number in range(40)]
    y = [ANIMALS[kind][int(version[1]) - 1] for kind, version in zip(kinds, versions, strict=True)]
    fitted = LecoClassifier(ONTOLOGY, steps=4, batch_size=16, **{"learning_rate": 0.1, **parameters})
    fitted.fit(features, y, versions)
    probs = {f"predict_proba {version}": fitted.predict_proba(features, version) for version in ("v1", "v2", "v3")}
    weights = dict(fitted.network_.state_dict())
    return [("fit", [], weights | {name: torch.from_numpy(array) for name, array in probs.items()})]


def animals(count: int) -> tuple[list[int], np.ndarray]:
    """Kinds, some of them rare, and vectors of 6 numbers around the centre of each."""
    generator = np.random.default_rng(0)
    kinds = [(0, 0, 0, 1, 1, 2, 3, 4)[number % 8] for number in generator.permutation(count)]
    centres = 2 * generator.normal(size=(len(ANIMALS), 6))
    return kinds, (centres[kinds] + generator.normal(size=(count, 6))).astype(np.float32)


def draw(data: str, folder: Path) -> Path:
    """Write own data with three versions, unless they are there; their experiment.yaml."""
    project = folder / data
    file = project / "experiment.yaml"
    if not file.is_file():
        project.mkdir(parents=True)
        (project / "labels.csv").write_text("\n".join(DRAWN[data](project)) + "\n")
        (project / "ontology.json").write_text(json.dumps(ONTOLOGY))
        file.write_text("data: {manifest: labels.csv, ontology: ontology.json, image_size: 32}\n")
    return file


def version_and_split(number: int) -> tuple[int, str]:
    return number % 3, "test" if number % 5 == 4 else "train"


def draw_vectors(project: Path) -> list[str]:
    kinds, features = animals(90)
    np.save(project / "vectors.npy", features)
    rows = ["features,label,version,split"]
    for number, kind in enumerate(kinds):
        version, split = version_and_split(number)
        rows.append(f"vectors.npy#{number},{ANIMALS[kind][version]},v{version + 1},{split}")
    return rows


def draw_photos(project: Path) -> list[str]:
    """Images of 40 pixels a side, which are scaled."""
    rows = ["image,label,version,split"]
    for number in range(45):
        version, split = version_and_split(number)
        kind = number // 3 % len(ANIMALS)
        pixels = np.random.default_rng(number).integers(0, 100, (40, 40, 3))
        pixels[8 * kind : 8 * kind + 8] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(project / f"{number}.png")
        rows.append(f"{number}.png,{ANIMALS[kind][version]},v{version + 1},{split}")
    return rows


def draw_masks(project: Path) -> list[str]:
    """Squares of 8 pixels a side, each of one kind."""
    rows = ["image,mask,version,split"]
    for number in range(45):
        version, split = version_and_split(number)
        generator = np.random.default_rng(number)
        kinds = generator.integers(0, len(ANIMALS), (4, 4)).repeat(8, axis=0).repeat(8, axis=1)
        classes = list(dict.fromkeys(names[version] for names in ANIMALS))
        ids = np.array([classes.index(names[version]) for names in ANIMALS], dtype=np.uint8)
        pixels = kinds[..., None] * (50, 30, 10) + generator.integers(0, 50, (32, 32, 3))
        Image.fromarray(ids[kinds]).save(project / f"mask-{number}.png")
        Image.fromarray(pixels.astype(np.uint8)).save(project / f"{number}.png")
        rows.append(f"{number}.png,mask-{number}.png,v{version + 1},{split}")
    return rows


DRAWN: dict[str, Callable[[Path], list[str]]] = {"vectors": draw_vectors, "photos": draw_photos, "masks": draw_masks}


def environment() -> dict[str, str]:
    """Where numbers are the same to the last bit."""
    file = Path("/proc/cpuinfo")
    kinds = re.findall(
        r"^(?:model name|cpu family|model|stepping|flags)\s*:.*$", file.read_text() if file.is_file() else "", re.M
    )
    cpu = hashlib.sha256("\n".join(sorted(set(kinds))).encode()).hexdigest()[:16]
    return {"torch": torch.__version__, "cpu": cpu, "capability": torch.backends.cpu.get_cpu_capability()}


def record(stages: Stages) -> dict[str, Any]:
    """What is kept of stages."""
    return {
        name: {
            "bits": digest(weights),
            "losses": [line["means"] for line in lines],
            "scores": [line["score"] for line in lines],
            "weights": {part: summary(tensor) for part, tensor in sorted(weights.items())},
        }
        for name, lines, weights in stages
    }


def digest(weights: Weights) -> str:
    content = hashlib.sha256()
    for _, tensor in sorted(weights.items()):
        content.update(tensor.contiguous().numpy().tobytes())
    return content.hexdigest()


def summary(tensor: torch.Tensor) -> list[float]:
    """How many numbers there are, their sum, and the sum of their absolute values."""
    values = tensor.double()
    return [tensor.numel(), *(float(f"{total.item():.8g}") for total in (values.sum(), values.abs().sum()))]


def compare(stages: Stages, family: str, case: str) -> None:
    """Fail where stages are not what they were."""
    golden = json.loads((FOLDER / f"{family}.json").read_text())
    found, expected = record(stages), golden["cases"][case]
    assert list(found) == list(expected)
    for stage in expected:
        compare_nearly(found[stage], expected[stage])
        if golden["environment"] == environment():
            assert found[stage]["losses"] == expected[stage]["losses"]
            assert found[stage]["scores"] == expected[stage]["scores"]
            assert found[stage]["bits"] == expected[stage]["bits"]


def compare_nearly(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert len(found["losses"]) == len(expected["losses"])
    for one, other in zip(found["losses"], expected["losses"], strict=True):
        assert one == pytest.approx(other, rel=RELATIVE, abs=ABSOLUTE)
    assert found["weights"].keys() == expected["weights"].keys()
    for part, (count, total, size) in expected["weights"].items():
        # Numbers of both signs may add up to next to nothing, and still are rounded as large ones are.
        tolerance = RELATIVE * size + ABSOLUTE * count
        assert found["weights"][part] == [count, *(pytest.approx(n, abs=tolerance) for n in (total, size))], part


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all cases are trained, so that stages that several have are trained once."""
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize(("family", "case"), [(family, case) for family in CASES for case in CASES[family]])
def test_losses_and_weights_are_what_they_were(family, case, folder):
    compare(run(CASES[family][case], folder), family, case)


@pytest.mark.parametrize(("family", "case"), RESUMED)
def test_runs_that_are_stopped_and_resumed_end_as_the_others_do(family, case, tmp_path):
    compare(run(CASES[family][case], tmp_path, pause=2), family, case)


@pytest.mark.parametrize("case", FITS)
def test_a_fitted_classifier_is_what_it_was(case):
    compare(fit(FITS[case]), "estimator", case)


@pytest.mark.slow
def test_two_processes_find_what_they_found(tmp_path):
    for case, stages in run_in_two_processes(tmp_path).items():
        compare(stages, "processes", case)


def write(family: str, cases: dict[str, Stages]) -> None:
    content = {"environment": environment(), "cases": {name: record(stages) for name, stages in cases.items()}}
    text = json.dumps(content, indent=1)
    short = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda found: " ".join(found[0].split()), text)
    (FOLDER / f"{family}.json").write_text(short + "\n")
    sys.stdout.write(f"{FOLDER / family}.json\n")


def write_all(folder: Path) -> None:
    for family, cases in CASES.items():
        write(family, {name: run(case, folder) for name, case in cases.items()})
    write("estimator", {name: fit(parameters) for name, parameters in FITS.items()})
    write("processes", run_in_two_processes(folder / "processes"))


if __name__ == "__main__":
    if sys.argv[1:]:  # one of two processes
        for case in TWO_PROCESSES.values():
            run(case, Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            write_all(Path(temporary))

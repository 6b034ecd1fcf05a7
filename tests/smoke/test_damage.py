"""Damaged stores, bundles, manifests, ontologies and experiments: an answer, or one message; never a traceback."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image
from tests.commands import leco
from tests.damage import DAMAGES, KINDS, Damage, apply, check, fresh
from tests.stores import make_stages, write_store
from tests.trainings import train_digits

from leco.io import SUMS

ONTOLOGY = """\
name: pets
versions:
  - name: v1
    classes: [cat, dog]
  - name: v2
    classes:
      tabby: {from: cat}
      lynx: {from: cat}
      husky: {from: dog}
"""
EXPERIMENT = """\
data: {manifest: labels.csv, ontology: ontology.yaml, image_size: 8}
method: lpl
seed: 0
training:
  network: {backbone: wrn-10-1, weights: random}
  batches: {steps: 3, size: 8, evaluate_every: 3}
  optimiser: {learning_rate: [0.1]}
"""
EXAMPLES = 200
AS_OFTEN = pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(5_000, marks=pytest.mark.thorough)])


def with_damages(test, examples: int) -> None:
    """Call a test with many damages, the same ones in every run."""
    many = settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    many(given(DAMAGES)(test))()


@pytest.fixture(scope="module")
def valid(tmp_path_factory) -> SimpleNamespace:
    """A store, another one with a plan, a bundle and own data, none of them damaged."""
    folder = tmp_path_factory.mktemp("valid")
    trained = train_digits(folder / "digits", {"training.batches.steps": "2", "training.batches.evaluate_every": "2"})
    write_store(folder / "many", make_stages([0], {"ce": 0.5, "lpl": 0.6}, cells=()))
    short = ["--size", 60, "--set", "training.batches.steps=2", "--draws", 5, "--budget", 30]
    planned = leco("plan", "digits-leco", *short, "--json", "--runs", folder / "planned")
    (folder / "many" / "plans" / "digits").mkdir(parents=True)
    (folder / "many" / "plans" / "digits" / "plan-0.json").write_text(planned.stdout)
    own = folder / "own"
    own.mkdir()
    rows = ["image,label,version,split"]
    for number in range(24):
        Image.fromarray(np.full((8, 8, 3), 10 * number, dtype=np.uint8)).save(own / f"{number}.png")
        label, version = (
            (("cat", "dog")[number % 2], "v1") if number < 12 else (("tabby", "lynx", "husky")[number % 3], "v2")
        )
        rows.append(f"{number}.png,{label},{version},{'test' if number > 20 else 'train'}")
    (own / "labels.csv").write_text("\n".join(rows) + "\n")
    (own / "ontology.yaml").write_text(ONTOLOGY)
    (own / "experiment.yaml").write_text(EXPERIMENT)
    return SimpleNamespace(runs=trained.store.stages.parent, bundle=trained.folders[-1], many=folder / "many", own=own)


def files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.stat().st_size and path.suffix != ".png"
    )


@AS_OFTEN
def test_a_damaged_store_is_listed_and_reported(valid, tmp_path, examples):
    def damaged(damage: Damage) -> None:
        runs = fresh(valid.many if damage.file % 2 else valid.runs, tmp_path / "runs")
        apply(damage, files(runs))
        assert check(tmp_path, "runs", "runs")[0] == 0
        assert check(tmp_path, "report", "runs", "-o", f"report.{('md', 'html', 'csv')[damage.value % 3]}")[0] == 0
        assert check(tmp_path, "report", "runs", "-o", "report.md", "--strict")[0] in (0, 2)

    with_damages(damaged, examples)


@AS_OFTEN
def test_no_stage_with_damaged_weights_becomes_a_bundle(valid, tmp_path, examples):
    (stage,) = sorted(path.name for path in (valid.runs / "stages").iterdir())[:1]

    def damaged(damage: Damage) -> None:
        runs = fresh(valid.runs, tmp_path / "runs")
        path = apply(damage, files(runs / "stages" / stage))
        status, _ = check(tmp_path, "bundle", "runs", stage, "-o", f"bundle-{status_of(damage)}")
        if path.name in ("model.safetensors", "bundle.json", "result.json") and not damage.signed:
            assert status == 2 or path.read_bytes() == (valid.runs / "stages" / stage / path.name).read_bytes()

    with_damages(damaged, examples)


def status_of(damage: Damage) -> str:
    return str(KINDS.index(damage.kind))


@AS_OFTEN
def test_a_damaged_bundle_never_answers(valid, tmp_path, examples):
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "image.png")

    def damaged(damage: Damage) -> None:
        bundle = fresh(valid.bundle, tmp_path / "bundle")
        path = apply(damage, files(bundle))
        same = same_without_the_card(path, valid.bundle / path.name)
        knowingly = ["--no-verify"] if damage.signed else []
        status, answers = check(tmp_path, "predict", "bundle", "image.png", *knowingly)
        if not (damage.signed or same or path.name == "README.md"):
            assert (status, answers) == (2, "")
        if damage.value % 5 == 0:
            check(tmp_path, "evaluate", "bundle", "labels.csv", *knowingly)
            check(tmp_path, "upgrade", "bundle", "--ontology", "bundle/ontology.yaml", "-o", "newer", *knowingly)

    with_damages(damaged, examples)


def same_without_the_card(path: Path, other: Path) -> bool:
    """Whether a file is as it was, or lacks only the digest of the card, which people may edit."""
    if path.name == SUMS and path.is_file():
        needed = [line for line in other.read_bytes().splitlines() if not line.endswith(b"  README.md")]
        return set(needed) <= set(path.read_bytes().splitlines())
    return path.is_file() and path.read_bytes() == other.read_bytes()


@AS_OFTEN
@pytest.mark.parametrize("name", ["labels.csv", "ontology.yaml", "experiment.yaml"])
def test_damaged_descriptions_of_own_data_are_refused_or_read(valid, tmp_path, name, examples):
    def damaged(damage: Damage) -> None:
        own = fresh(valid.own, tmp_path / "own")
        apply(damage, [own / name])
        check(own, "run", "experiment.yaml", "--dry-run")
        if name == "ontology.yaml":
            check(own, "ontology", "check", "ontology.yaml")

    with_damages(damaged, examples)

"""`leco run experiment.yaml` on own images: digits as PNG files, old ones labelled by stroke, new ones by digit."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from tests.commands import assert_refused, leco
from tests.trainings import assert_consistent

from leco.data.benchmarks import digits


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder as a user would have it."""
    bunch = load_digits()
    ontology = digits.ontology()
    ontology.save(tmp_path / "ontology.yaml")
    rows = ["image,label,version,split"]
    for index in range(240):
        name = f"{index}.png"
        Image.fromarray((bunch.images[index] * 15).astype(np.uint8)).resize((16, 16)).convert("RGB").save(
            tmp_path / name
        )
        fine = str(bunch.target[index])
        coarse = ontology.translate([fine], "v2", "v1")[0]
        split = "test" if index % 4 == 0 else "train"
        old = split == "train" and index % 2
        rows.append(f"{name},{coarse if old else fine},{'v1' if old else 'v2'},{split}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml, image_size: 16}\nmethod: lpl+st-hard/cond\n"
        "training: {network: {backbone: mlp}, batches: {steps: 200, evaluate_every: 100}}\n"
    )
    return tmp_path


def test_own_images_are_trained_over_both_versions(own, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")  # paths are relative to the file
    result = leco("run", own / "experiment.yaml", "--runs", "runs", cwd=elsewhere)
    assert result.returncode == 0, result.stderr
    results = [json.loads(path.read_text()) for path in elsewhere.glob("runs/stages/*/result.json")]
    assert len(results) == 3
    assert {found["version"] for found in results} == {"v1", "v2"}
    newest = next(found for found in results if "lpl" in found["stage"])
    assert newest["test"]["v2"]["macc"] > 0.3  # chance is 0.1
    assert newest["test"]["v1"]["macc"] > newest["test"]["v2"]["macc"]  # old names follow from the new labels


def test_own_data_without_new_labels_are_refused(own):
    text = (own / "labels.csv").read_text()
    kept = [line for line in text.splitlines() if ",v2," not in line or line.endswith("test")]
    (own / "labels.csv").write_text("\n".join(kept) + "\n")
    assert_refused(["run", "experiment.yaml"], "no training sample is labelled in the newest version v2", own)


def test_a_newest_class_without_labels_is_the_same_warning_in_check_and_in_run(own):
    lines = (own / "labels.csv").read_text().splitlines()
    (own / "labels.csv").write_text("\n".join(line for line in lines if ",7,v2,train" not in line) + "\n")
    checked = leco("check", "experiment.yaml", "--no-timing", cwd=own)
    run = leco("run", "experiment.yaml", "--dry-run", cwd=own)
    assert (checked.returncode, run.returncode) == (0, 0), checked.stderr + run.stderr
    (warning,) = (line for line in checked.stdout.splitlines() if "without any training label: '7'" in line)
    assert warning in run.stderr


def test_what_own_data_are_split_into_makes_another_stage(own):
    from leco.experiments.experiment import experiment
    from leco.experiments.stages import plan
    from leco.experiments.train import periods_of

    def name() -> str:
        wanted = experiment(str(own / "experiment.yaml"), {}, {})
        return plan(wanted, periods_of(wanted, own)).periods[-1][0].fingerprint

    before = name()
    text = (own / "labels.csv").read_text()
    (own / "labels.csv").write_text(text.replace(",v2,train", ",v2,test", 1))
    assert name() != before
    (own / "labels.csv").write_text(text)
    (own / "experiment.yaml").write_text(
        (own / "experiment.yaml").read_text().replace("image_size: 16", "image_size: 8")
    )
    assert name() != before


def test_what_a_later_model_is_validated_with_was_never_trained_on(own):
    """All samples have labels of both versions; each period holds some out."""
    from leco.experiments.experiment import experiment
    from leco.experiments.train import periods_of

    rows = [line.split(",") for line in (own / "labels.csv").read_text().splitlines()[1:]]
    ontology = digits.ontology()
    fine = [row for row in rows if row[2] == "v2"]
    coarse = [[row[0], ontology.translate([row[1]], "v2", "v1")[0], "v1", row[3]] for row in fine]
    lines = ["image,label,version,split", *(",".join(row) for row in [*fine, *coarse])]
    (own / "labels.csv").write_text("\n".join(lines) + "\n")
    wanted = experiment(str(own / "experiment.yaml"), {}, {})
    periods = periods_of(wanted, own)
    first, second = (periods.annotated(period, "label-new") for period in (0, 1))
    held_out = set(second.validation.indices.tolist())
    assert held_out
    for part in (first.newest, *first.history, second.newest, *second.history):
        assert not held_out & set(part.indices.tolist())


def trained(folder: Path, **settings: str) -> list[dict[str, object]]:
    """The results of an experiment, in the order of its stages."""
    from leco.experiments.experiment import experiment
    from leco.experiments.machine import Machine
    from leco.experiments.run import run_stage
    from leco.experiments.stages import plan
    from leco.experiments.store import Store
    from leco.experiments.train import periods_of

    changed = {f"training.{key.replace('__', '.')}": value for key, value in settings.items()}
    wanted = experiment(str(folder / "experiment.yaml"), {}, changed)
    periods, store = periods_of(wanted, folder), Store(folder / "runs")
    stages = plan(wanted, periods).stages
    for stage in stages:
        run_stage(stage, periods, store, Machine("cpu"))
    return [store.require(stage.fingerprint).model_dump(mode="json", by_alias=True) for stage in stages]


def write_project(folder: Path, header: str, rows: list[str]) -> None:
    """Write an experiment that only refers to data elsewhere."""
    (folder / "project").mkdir()
    (folder / "project" / "labels.csv").write_text("\n".join([header, *rows]) + "\n")
    (folder / "project" / "ontology.yaml").write_text(
        "versions:\n  - {name: v1, classes: [a]}\n  - {name: v2, classes: {b: {from: a}, c: {from: a}}}\n"
    )
    (folder / "project" / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml, root: ../data, image_size: 32}\n"
    )


def test_own_features_need_no_settings(tmp_path):
    (tmp_path / "data").mkdir()
    chance = np.random.default_rng(0)
    np.save(tmp_path / "data" / "x.npy", chance.normal(size=(60, 8)) + 3 * (-1) ** np.arange(60)[:, None])
    labels = ["a,v1," if n < 20 else f"{'bc'[n % 2]},v2,{'test' if n >= 40 else ''}" for n in range(60)]
    write_project(tmp_path, "features,label,version,split", [f"x.npy#{n},{label}" for n, label in enumerate(labels)])
    *_, newest = trained(tmp_path / "project", batches__steps="30")
    assert newest["test"]["v2"]["macc"] > 0.95


def test_own_masks_need_no_settings_either(tmp_path):
    (tmp_path / "data").mkdir()
    rows = []
    for n in range(12):
        fine = np.zeros((24, 32), dtype=np.uint8)
        fine[:, : 4 + 2 * n] = 1
        Image.fromarray(np.stack([fine * 200] * 3, axis=-1)).save(tmp_path / "data" / f"{n}.png")
        Image.fromarray(fine if n > 4 else fine * 0).save(tmp_path / "data" / f"m{n}.png")
        rows.append(f"{n}.png,m{n}.png,{'v2' if n > 4 else 'v1'},{'test' if n > 9 else 'train'}")
    write_project(tmp_path, "image,mask,version,split", rows)
    *_, newest = trained(tmp_path / "project", batches__steps="3", batches__evaluate_every="3", batches__size="4")
    assert newest["metric"] == "miou"
    assert_consistent(newest["test"]["v2"], "miou")

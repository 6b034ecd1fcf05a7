"""Batches for annotators."""

import csv
import io
import json

import torch
from tests.commands import assert_refused, leco
from tests.unit.planning.conftest import HISTORY, UNLABELLED, draw, rows_of

from leco import Ontology
from leco.data.manifest.manifest import read_manifest
from leco.planning.batches import make_batch, pick, to_csv
from leco.planning.label_studio import NONE_OF_THESE, tasks

STROKES = {"loop": {"0", "6", "8", "9"}, "straight": {"1", "4", "7"}, "open-curve": {"2", "3", "5"}}


def test_picks_are_distinct_in_proportion_and_the_same_again(planned):
    chosen = pick(planned.context, 30)
    assert len(chosen) == 30 == len(set(chosen.tolist()))
    history = planned.context.known.history
    assert torch.isin(chosen, history.samples[history.relabellable]).all()
    labels = {int(s): int(v) for s, v in zip(history.samples, history.label, strict=True)}
    counts = torch.bincount(torch.tensor([labels[s] for s in chosen.tolist()]))
    whole = torch.bincount(history.label[history.relabellable])
    assert ((counts - 30 * whole / HISTORY).abs() < 1).all()
    assert torch.equal(chosen, pick(planned.context, 30))


def test_an_old_sample_offers_only_the_children_of_its_old_class(planned):
    manifest, _ = read_manifest(
        planned.context.folder.parents[2] / "labels.csv", planned.context.periods.ontology, decode=False
    )
    questions = make_batch(planned.context, manifest, 5, 20)
    assert [question.kind for question in questions] == ["relabel"] * 20 + ["new"] * 5
    for question in questions:
        offered = STROKES.get(question.old_label, set().union(*STROKES.values()))
        assert set(question.choices) == offered
        assert question.suggestion in offered
        assert 1 / len(offered) <= question.probability <= 1
    task = tasks(questions, "image", "http://x/?f=", "m")[0]
    assert [choice["value"] for choice in task["data"]["choices"]] == [*questions[0].choices, NONE_OF_THESE]
    assert task["data"]["image"] == "http://x/?f=" + questions[0].sample.replace("#", "%23")
    assert task["predictions"][0]["result"][0]["value"] == {"choices": [questions[0].suggestion]}
    row = next(csv.DictReader(io.StringIO(to_csv(questions, "features", "label"))))
    assert json.loads(row["choices"]) == list(questions[0].choices)
    assert row["label"] == ""


def test_a_batch_goes_out_and_comes_back_as_csv(own):
    options = ["--draws", 5, "--seed", 3]
    planned = leco(
        "plan", "experiment.yaml", "--budget", 30, "--cost-relabel", 0.5, "-o", "plan.json", *options, cwd=own
    )
    assert planned.returncode == 0, planned.stderr
    chosen = json.loads((own / "plan.json").read_text())["chosen"]
    result = leco("batch", "export", "experiment.yaml", "--plan", "plan.json", "-o", "batch", cwd=own)
    assert result.returncode == 0, result.stderr
    assert json.loads((own / "batch" / "batch.json").read_text())["seed"] == 3  # that of the plan
    exported = list(csv.DictReader(io.StringIO((own / "batch" / "batch.csv").read_text())))
    assert len(exported) == chosen["relabel"] + min(chosen["new"], UNLABELLED)
    assert len(json.loads((own / "batch" / "tasks.json").read_text())) == len(exported)
    for row in exported:
        row |= {"label": row["suggestion"], "annotator": "me", "time": "2026-01-01"}
    with (own / "answers.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(exported[0]))
        writer.writeheader()
        writer.writerows(exported)
    names = ["--manifest", "labels.csv", "--ontology", "ontology.yaml"]
    result = leco("batch", "import", "answers.csv", *names, cwd=own)
    assert f"{len(exported)} answers added, 0 conflicts" in result.stdout, result.stderr
    again = leco("batch", "import", "answers.csv", *names, cwd=own)
    assert f"0 answers added, 0 conflicts, {len(exported)} already known" in " ".join(again.stdout.split())


def test_a_batch_measures_no_curve_and_is_never_overwritten(own):
    call = ["batch", "export", "experiment.yaml", "--relabel", 3, "-o", "batch"]
    result = leco(*call, cwd=own)
    assert result.returncode == 0, result.stderr
    assert [path.name for path in (own / "runs" / "plans").rglob("*.json")] == ["prior.json"]
    assert_refused(call, "batch: already holds a batch", own)


def test_images_without_a_mask_can_be_picked_and_every_class_of_an_old_mask_is_offered(tmp_path):
    history = {"v1": ["dog", "cat"], "v2": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}}
    ontology = Ontology.from_dict({"versions": [{"name": name, "classes": c} for name, c in history.items()]})
    ontology.save(tmp_path / "ontology.yaml")
    rows = ["image,mask,version"]
    for number in range(20):
        draw(tmp_path, f"{number}.png", [[number * 12] * 8 + [0] * 12] * 4)
        version = "v2" if number < 14 else "v1"
        # Of the old masks, one pixel in hundreds is a cat.
        values = (
            [[number % 3] * 10 + [2] * 10] * 4 if version == "v2" else [[0] * 19 + [int(row == 0)] for row in range(4)]
        )
        draw(tmp_path, f"masks/{number}.png", values)
        rows.append(f"{number}.png,masks/{number}.png,{version}" if number < 18 else f"{number}.png,,")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml, image_size: 32}\nmethod: lpl\n"
    )
    call = ["batch", "export", "experiment.yaml", "--relabel", 4, "--new", 9, "--backbone", "pixels", "-o", "batch"]
    result = leco(*call, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "4 to relabel, 2 to label" in result.stdout
    assert "7 more new samples are needed" in result.stdout
    batch = rows_of(tmp_path / "batch" / "batch.csv")
    assert {row["image"] for row in batch if row["kind"] == "new"} == {"18.png", "19.png"}
    assert all(json.loads(row["choices"]) == ["poodle", "husky", "cat"] for row in batch)


def test_wrong_calls_are_refused(own):
    export = ["batch", "export", "experiment.yaml", "-o", "b"]
    assert_refused(["batch", "export", "digits-leco", "--new", "1", "-o", "b"], "cannot be annotated", own)
    assert_refused(export, "pass either --plan, or the numbers", own)
    lines = (own / "labels.csv").read_text().splitlines()
    (own / "labels.csv").write_text("\n".join(line for line in lines if ",,," not in line) + "\n")
    result = leco(*export, "--new", 7, cwd=own)
    assert result.returncode == 2
    assert "nothing to export: collect 7 new samples" in result.stderr
    plan = leco("plan", "experiment.yaml", "--budget", 5, "--draws", 5, "--json", cwd=own)
    (own / "plan.json").write_text(json.dumps(json.loads(plan.stdout) | {"versions": ["a"]}))
    assert_refused([*export, "--plan", "plan.json"], "is a plan for other data, with the versions a", own)

"""What annotators are asked, and what becomes of their answers."""

import csv
import io
import json

import pytest
import torch
from tests.commands import assert_refused, leco
from tests.unit.planning.conftest import HISTORY, UNLABELLED

from leco import LecoError, Ontology
from leco.data.manifest.manifest import read_manifest
from leco.planning.batches import CRITERIA, entropy, make_batch, pick, suggestions, to_csv
from leco.planning.label_studio import DOUBT, labelling_config, read_export, tasks

STROKES = {"loop": {"0", "6", "8", "9"}, "straight": {"1", "4", "7"}, "open-curve": {"2", "3", "5"}}


@pytest.mark.parametrize("criterion", CRITERIA)
def test_picks_are_distinct_in_proportion_and_the_same_again(planned, criterion):
    chosen = pick(planned.ground, 30, criterion)
    assert len(chosen) == 30 == len(set(chosen.tolist()))
    history = planned.ground.known.history
    assert torch.isin(chosen, history.samples[history.relabellable]).all()
    labels = {int(s): int(v) for s, v in zip(history.samples, history.label, strict=True)}
    counts = torch.bincount(torch.tensor([labels[s] for s in chosen.tolist()]))
    whole = torch.bincount(history.label[history.relabellable])
    assert ((counts - 30 * whole / HISTORY).abs() < 1).all()
    assert torch.equal(chosen, pick(planned.ground, 30, criterion))


def test_uncertain_ones_are_more_uncertain_and_balanced_ones_more_balanced(planned):
    known = planned.ground.known

    def said(criterion: str) -> torch.Tensor:
        return suggestions(planned.ground.head, pick(planned.ground, 40, criterion))[0]

    assert entropy(said("uncertain")).mean() > entropy(said("random")).mean()
    spread = {
        criterion: (known.labelled + torch.bincount(said(criterion).argmax(dim=1), minlength=10)).var()
        for criterion in ("random", "balanced")
    }
    assert spread["balanced"] < spread["random"]


def test_an_old_sample_offers_only_the_children_of_its_old_class(planned):
    manifest, _ = read_manifest(
        planned.ground.folder.parents[2] / "labels.csv", planned.ground.material.ontology, decode=False
    )
    questions = make_batch(planned.ground, manifest, 5, 20, "mixed")
    assert [question.kind for question in questions] == ["relabel"] * 20 + ["new"] * 5
    for question in questions:
        offered = STROKES.get(question.old_label, set().union(*STROKES.values()))
        assert set(question.choices) == offered
        assert question.suggestion in offered
        assert 1 / len(offered) <= question.probability <= 1
    task = tasks(questions, "image", "http://x/?f=", "m")[0]
    assert [choice["value"] for choice in task["data"]["choices"]] == [*questions[0].choices, DOUBT]
    assert task["data"]["image"] == "http://x/?f=" + questions[0].sample.replace("#", "%23")
    assert task["predictions"][0]["result"][0]["value"] == {"choices": [questions[0].suggestion]}
    row = next(csv.DictReader(io.StringIO(to_csv(questions, "features", "label"))))
    assert json.loads(row["choices"]) == list(questions[0].choices)
    assert row["label"] == ""


@pytest.mark.parametrize("kind", ["image", "features", "mask"])
def test_the_configuration_is_xml_that_takes_its_choices_from_the_task(kind):
    from xml.etree import ElementTree

    tree = ElementTree.fromstring(labelling_config(kind))
    control = next(node for node in tree if node.get("name") == "label")
    assert control.get("value") == "$choices"
    assert control.get("toName") == tree[0].get("name")
    assert tree[0].tag == ("Text" if kind == "features" else "Image")
    assert not tree.findall(".//Choice")  # Label Studio refuses a `Choices` tag with a single one


def answer(sample: str, label: str, who: object = 7, **more: object) -> dict[str, object]:
    """A task as Label Studio exports it."""
    value = {"choices": [label]}
    result = [{"from_name": "label", "to_name": "object", "type": "choices", "value": value}] if label else []
    annotation = {"completed_by": who, "created_at": "2026-01-02T03:04:05Z", "was_cancelled": False, "result": result}
    return {"id": 1, "data": {"sample": sample}, "annotations": [annotation | more], "predictions": []}


def test_answers_come_back_with_version_annotator_and_time_and_conflicts_are_listed(own):
    rows = list(csv.DictReader(io.StringIO((own / "labels.csv").read_text())))
    loops = [row["features"] for row in rows if row["label"] == "loop"]
    export = [
        answer(loops[0], "8", {"id": 3, "email": "ada@example.org"}),
        answer(loops[1], "1"),  # no loop
        answer(loops[2], "9", was_cancelled=True),
        answer(loops[3], "eight"),
        answer(loops[4], DOUBT),
        answer(loops[5], "0"),
        answer(loops[5], "6", 8),  # somebody else disagrees
        answer(loops[6], "6"),
        answer(loops[6], "6", 8),
        answer("elsewhere.npy#0", "6"),
        answer(rows[0]["features"], "1" if rows[0]["label"] != "1" else "2"),
    ]
    (own / "export.json").write_text(json.dumps(export))
    options = ["--manifest", own / "labels.csv", "--ontology", own / "ontology.yaml", "-o", own / "labels2.csv"]
    result = leco("batch", "import", own / "export.json", *options, "--conflicts", own / "conflicts.csv")
    assert result.returncode == 0, result.stderr
    assert "2 answers taken, 7 contradict, 1 say what is known, 1 without an answer" in " ".join(result.stdout.split())
    assert "task 2: " in result.stderr
    assert "'1' is none of what 'loop' (v1) can be" in result.stderr
    kinds = [row["kind"] for row in csv.DictReader(io.StringIO((own / "conflicts.csv").read_text()))]
    assert sorted(kinds) == sorted(
        ["outside the old class", "unknown class", "old label doubted", "no such sample", "labelled otherwise"]
        + ["annotators disagree"] * 2
    )
    added = list(csv.DictReader(io.StringIO((own / "labels2.csv").read_text())))[len(rows) :]
    assert [(row["features"], row["label"], row["version"]) for row in added] == [
        (loops[0], "8", "v2"),
        (loops[6], "6", "v2"),
    ]
    assert (added[0]["annotator"], added[0]["time"]) == ("ada@example.org", "2026-01-02T03:04:05Z")
    manifest, problems = read_manifest(own / "labels2.csv", Ontology.load(own / "ontology.yaml"))
    assert not problems
    index = manifest.inputs.index(loops[0])
    assert (manifest.labels["v1"][index], manifest.labels["v2"][index]) == (0, 8)


@pytest.mark.usefixtures("few_levels")
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
    assert f"{len(exported)} answers taken, 0 contradict" in result.stdout, result.stderr
    again = leco("batch", "import", "answers.csv", *names, cwd=own)
    assert f"0 answers taken, 0 contradict, {len(exported)} say what is known" in " ".join(again.stdout.split())


def test_what_is_not_an_export_is_refused(tmp_path):
    for content in (
        '{"a": 1}',
        '[{"data": {}}]',
        "[1]",
        "[]",
        '[{"data": {"sample": "a"}, "annotations": [1]}]',
        '[{"data": {"sample": "a"}, "annotations": [{"result": 3}]}]',
        "[" * 9000,
    ):
        (tmp_path / "export.json").write_text(content)
        with pytest.raises(LecoError, match=r"export\.json"):
            read_export(tmp_path / "export.json")


def test_wrong_calls_are_refused(own):
    budget = ["plan", "experiment.yaml", "--budget"]
    assert_refused([*budget, "0"], "--budget 0: must be above 0", own)
    assert_refused([*budget, "nan"], "--budget nan", own)
    assert_refused([*budget, "5", "--cost-new", "-1"], "--cost-new -1", own)
    assert_refused(["batch", "export", "digits-leco", "--new", "1", "-o", "b"], "nobody to label it", own)
    assert_refused(["batch", "export", "experiment.yaml", "-o", "b"], "say either --plan, or how many", own)
    names = ["--manifest", "labels.csv", "--ontology", "ontology.yaml"]
    assert_refused(["batch", "import", "labels.txt", *names], "the ending says which format", own)
    assert_refused(["batch", "import", "labels.csv", *names, "-o", "x.txt"], "valid: .csv, .jsonl, .parquet", own)
    assert_refused(["batch", "import", "a.csv", *names, "--conflicts", "labels.csv"], "name another file", own)
    assert_refused(
        ["batch", "export", "experiment.yaml", "--new", "1", "-o", "b", "--pick", "uncertan"], "'uncertain'", own
    )
    (own / "plan.json").write_text('{"format": 1, "chosen": [1]}')
    assert_refused(
        ["batch", "export", "experiment.yaml", "--plan", "plan.json", "-o", "b"], "is no plan: it lacks", own
    )
    plan = {"format": 1, "seed": 0, "versions": ["a"], "chosen": {"new": 1, "relabel": 1}}
    (own / "plan.json").write_text(json.dumps(plan))
    assert_refused(
        ["batch", "export", "experiment.yaml", "--plan", "plan.json", "-o", "b"], "a plan for other data", own
    )
    (own / "answers.csv").write_text("picture,label\na,b\n")
    assert_refused(["batch", "import", "answers.csv", *names], "needs a column `image`, `features` or `sample`", own)


def imported(own, name: str, *more: object) -> str:
    result = leco("batch", "import", name, "--manifest", "labels.csv", "--ontology", "ontology.yaml", *more, cwd=own)
    assert result.returncode == 0, result.stderr
    return " ".join(result.stdout.split()) + result.stderr


def loops_of(own) -> list[str]:
    rows = csv.DictReader(io.StringIO((own / "labels.csv").read_text()))
    return [row["features"] for row in rows if row["label"] == "loop"]


def test_every_export_of_label_studio_says_the_same(own):
    loops = loops_of(own)
    minimal = [
        {"id": 1, "sample": loops[0], "choices": [{"value": "8"}], "label": "8", "annotator": 7, "updated_at": "t"},
        {"id": 2, "sample": loops[1], "choices": [{"value": "8"}], "label": DOUBT, "annotator": 7},
        {"id": 3, "sample": loops[2], "label": {"choices": ["8", "9"]}, "annotator": 7},
        {"id": 4, "sample": loops[3], "annotator": 7},
    ]
    (own / "min.json").write_text(json.dumps(minimal))
    told = imported(own, "min.json", "-o", "a.csv")
    assert "1 answers taken, 2 contradict, 0 say what is known, 1 without an answer" in told
    assert "none of what 'loop' (v1) can be by 7" in told
    assert "'8 + 9' is not a class of v2" in told
    text = f"annotation_id,annotator,id,image,label,sample,updated_at\n1,7,1,/data/local-files/?d=x,8,{loops[0]},t\n"
    (own / "export.csv").write_text(text)
    assert "1 answers taken, 0 contradict" in imported(own, "export.csv", "-o", "b.csv")
    assert (own / "a.csv").read_text() == (own / "b.csv").read_text()
    assert (own / "a.csv").read_text().splitlines()[-1].endswith(",8,v2,,7,t")


def test_three_annotators_of_whom_one_disagrees_are_all_listed(own):
    sample = loops_of(own)[0]
    (own / "answers.csv").write_text(f"features,label,annotator\n{sample},0,a\n./{sample},6,b\n{sample},0,c\n")
    before = (own / "labels.csv").read_bytes()
    told = imported(own, "answers.csv")
    assert "0 answers taken, 3 contradict, 0 say what is known" in told
    assert "'6', but others say '0' by b" in told
    assert "labels.csv stays as it is" in told
    assert (own / "labels.csv").read_bytes() == before


def test_annotators_who_agree_are_all_named_with_the_time_of_the_last(own):
    first, second, third = loops_of(own)[:3]
    rows = [
        *(f"{first},8,{who},{time}" for who, time in (("zoe", "2026-01-03"), ("ada", "2026-01-09"), ("zoe", ""))),
        *(f"{second},8,{who},{time}" for who, time in (("ada", "Monday"), ("", ""), ("bob; ada", "Friday"))),
        *(f"{third},8,,{time}" for time in ("2026-01-03T10:00:00+02:00", "2026-01-03T09:00:00+00:00")),
    ]
    (own / "answers.csv").write_text("\n".join(["features,label,annotator,time", *rows]) + "\n")
    assert "3 answers taken, 0 contradict, 5 say what is known" in imported(own, "answers.csv")
    added = list(csv.DictReader(io.StringIO((own / "labels.csv").read_text())))[-3:]
    assert [(row["annotator"], row["time"]) for row in added] == [
        ("zoe; ada", "2026-01-09"),
        ("ada; bob", "Friday"),
        ("", "2026-01-03T09:00:00+00:00"),
    ]
    before = (own / "labels.csv").read_bytes()
    assert "0 answers taken, 0 contradict, 8 say what is known" in imported(own, "answers.csv")
    assert (own / "labels.csv").read_bytes() == before


def test_answers_of_another_version_are_not_taken(own):
    first, second = loops_of(own)[:2]
    (own / "answers.csv").write_text(f"features,label,version\n{first},loop,v1\n{second},8,v2\n")
    told = imported(own, "answers.csv", "-o", "new.parquet")
    assert "1 answers taken, 1 contradict" in told
    assert "'loop' is of 'v1'; answers are of v2" in told
    manifest, _ = read_manifest(own / "new.parquet", Ontology.load(own / "ontology.yaml"))
    assert manifest.labels["v2"][manifest.inputs.index(second)] == 8


@pytest.mark.usefixtures("few_levels")
def test_a_batch_measures_no_curve_and_is_never_written_over(own):
    call = ["batch", "export", "experiment.yaml", "--relabel", 3, "-o", "batch"]
    result = leco(*call, cwd=own)
    assert result.returncode == 0, result.stderr
    assert [path.name for path in (own / "runs" / "plans").rglob("*.json")] == ["prior.json"]
    assert_refused(call, "batch: holds a batch already", own)


def test_rows_that_no_file_has_are_no_samples(own):
    text = "features,label\ndigits.npy#-1,3\ndigits.npy#999999,3\ndigits.npy#x,3\nother.npy#0,3\n../digits.npy#0,3\n"
    (own / "answers.csv").write_text(text)
    told = imported(own, "answers.csv", "--conflicts", "conflicts.csv")
    assert "0 answers taken, 5 contradict" in told
    rows = csv.DictReader(io.StringIO((own / "conflicts.csv").read_text()))
    assert {row["kind"] for row in rows} == {"no such sample"}


def test_many_annotators_of_one_sample_take_no_time(own):
    sample = loops_of(own)[0]
    lines = [f"{sample},{label}" for label in ("0", "6", "8", "9") for _ in range(5_000)]
    (own / "answers.csv").write_text("\n".join(["features,label", *lines]) + "\n")
    assert "0 answers taken, 20,000 contradict" in imported(own, "answers.csv")

"""Answers of annotators, merged into the manifest."""

import csv
import io
import json

from tests.commands import assert_refused, leco
from tests.unit.planning.conftest import draw, rows_of

from leco import Ontology
from leco.data.manifest.manifest import read_manifest
from leco.planning.label_studio import NONE_OF_THESE


def answer(sample: str, label: str, who: object = 7, **more: object) -> dict[str, object]:
    """A task as Label Studio exports it."""
    value = {"choices": [label]}
    result = [{"from_name": "label", "to_name": "object", "type": "choices", "value": value}] if label else []
    annotation = {"completed_by": who, "created_at": "2026-01-02T03:04:05Z", "was_cancelled": False, "result": result}
    return {"id": 1, "data": {"sample": sample}, "annotations": [annotation | more], "predictions": []}


def imported(own, name: str, *more: object) -> str:
    result = leco("batch", "import", name, "--manifest", "labels.csv", "--ontology", "ontology.yaml", *more, cwd=own)
    assert result.returncode == 0, result.stderr
    return " ".join(result.stdout.split()) + result.stderr


def loops_of(own) -> list[str]:
    rows = csv.DictReader(io.StringIO((own / "labels.csv").read_text()))
    return [row["features"] for row in rows if row["label"] == "loop"]


def test_answers_come_back_with_version_annotator_and_time_and_conflicts_are_listed(own):
    rows = list(csv.DictReader(io.StringIO((own / "labels.csv").read_text())))
    loops = [row["features"] for row in rows if row["label"] == "loop"]
    export = [
        answer(loops[0], "8", {"id": 3, "email": "ada@example.org"}),
        answer(loops[1], "1"),  # no loop
        answer(loops[2], "9", was_cancelled=True),
        answer(loops[3], "eight"),
        answer(loops[4], NONE_OF_THESE),
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
    assert "2 answers added, 7 conflicts, 1 already known, 1 empty" in " ".join(result.stdout.split())
    assert "task 2: " in result.stderr
    assert "'1' is not a class that 'loop' (v1) may be" in result.stderr
    kinds = [row["kind"] for row in csv.DictReader(io.StringIO((own / "conflicts.csv").read_text()))]
    assert sorted(kinds) == sorted(
        ["outside the old class", "unknown class", "old label rejected", "unknown sample", "different label"]
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


def test_every_export_of_label_studio_says_the_same(own):
    loops = loops_of(own)
    minimal = [
        {"id": 1, "sample": loops[0], "choices": [{"value": "8"}], "label": "8", "annotator": 7, "updated_at": "t"},
        {"id": 2, "sample": loops[1], "choices": [{"value": "8"}], "label": NONE_OF_THESE, "annotator": 7},
        {"id": 3, "sample": loops[2], "label": {"choices": ["8", "9"]}, "annotator": 7},
        {"id": 4, "sample": loops[3], "annotator": 7},
    ]
    (own / "min.json").write_text(json.dumps(minimal))
    output = imported(own, "min.json", "-o", "a.csv")
    assert "1 answers added, 2 conflicts, 0 already known, 1 empty" in output
    assert "none of the classes that 'loop' (v1) may be (by 7)" in output
    assert "'8 + 9' is not a class of v2" in output
    text = f"annotation_id,annotator,id,image,label,sample,updated_at\n1,7,1,/data/local-files/?d=x,8,{loops[0]},t\n"
    (own / "export.csv").write_text(text)
    assert "1 answers added, 0 conflicts" in imported(own, "export.csv", "-o", "b.csv")
    assert (own / "a.csv").read_text() == (own / "b.csv").read_text()
    assert (own / "a.csv").read_text().splitlines()[-1].endswith(",8,v2,,7,t")


def test_three_annotators_of_whom_one_disagrees_are_all_listed(own):
    sample = loops_of(own)[0]
    (own / "answers.csv").write_text(f"features,label,annotator\n{sample},0,a\n./{sample},6,b\n{sample},0,c\n")
    before = (own / "labels.csv").read_bytes()
    output = imported(own, "answers.csv")
    assert "0 answers added, 3 conflicts, 0 already known" in output
    assert "'6', but other annotators say '0' (by b)" in output
    assert "labels.csv is unchanged" in output
    assert (own / "labels.csv").read_bytes() == before


def test_annotators_who_agree_are_all_named_with_the_time_of_the_last(own):
    first, second, third = loops_of(own)[:3]
    rows = [
        *(f"{first},8,{who},{time}" for who, time in (("zoe", "2026-01-03"), ("ada", "2026-01-09"), ("zoe", ""))),
        *(f"{second},8,{who},{time}" for who, time in (("ada", "Monday"), ("", ""), ("bob; ada", "Friday"))),
        *(f"{third},8,,{time}" for time in ("2026-01-03T10:00:00+02:00", "2026-01-03T09:00:00+00:00")),
    ]
    (own / "answers.csv").write_text("\n".join(["features,label,annotator,time", *rows]) + "\n")
    assert "3 answers added, 0 conflicts, 5 already known" in imported(own, "answers.csv")
    added = list(csv.DictReader(io.StringIO((own / "labels.csv").read_text())))[-3:]
    assert [(row["annotator"], row["time"]) for row in added] == [
        ("zoe; ada", "2026-01-09"),
        ("ada; bob", "Friday"),
        ("", "2026-01-03T09:00:00+00:00"),
    ]
    before = (own / "labels.csv").read_bytes()
    assert "0 answers added, 0 conflicts, 8 already known" in imported(own, "answers.csv")
    assert (own / "labels.csv").read_bytes() == before


def test_answers_of_another_version_are_left_out(own):
    first, second = loops_of(own)[:2]
    (own / "answers.csv").write_text(f"features,label,version\n{first},loop,v1\n{second},8,v2\n")
    output = imported(own, "answers.csv", "-o", "new.parquet")
    assert "1 answers added, 1 conflicts" in output
    assert "'loop' is a label of 'v1', but answers must be of v2" in output
    manifest, _ = read_manifest(own / "new.parquet", Ontology.load(own / "ontology.yaml"))
    assert manifest.labels["v2"][manifest.inputs.index(second)] == 8


def test_rows_that_no_file_has_are_not_samples(own):
    text = "features,label\ndigits.npy#-1,3\ndigits.npy#999999,3\ndigits.npy#x,3\nother.npy#0,3\n../digits.npy#0,3\n"
    (own / "answers.csv").write_text(text)
    output = imported(own, "answers.csv", "--conflicts", "conflicts.csv")
    assert "0 answers added, 5 conflicts" in output
    rows = csv.DictReader(io.StringIO((own / "conflicts.csv").read_text()))
    assert {row["kind"] for row in rows} == {"unknown sample"}


def test_many_annotators_of_one_sample_take_no_time(own):
    sample = loops_of(own)[0]
    lines = [f"{sample},{label}" for label in ("0", "6", "8", "9") for _ in range(5_000)]
    (own / "answers.csv").write_text("\n".join(["features,label", *lines]) + "\n")
    assert "0 answers added, 20,000 conflicts" in imported(own, "answers.csv")


def test_masks_that_annotators_drew_are_checked(street, masked):
    # The newest version is v3: bus is one class again.
    v3 = {name: street["v3"].index(name) for name in ("bus", "sidewalk")}
    draw(masked, "drawn/split.png", [[v3["sidewalk"], v3["bus"], v3["bus"], 255]])
    draw(masked, "drawn/easy.png", [[v3["bus"]] * 4])  # it was sidewalk, car and child
    draw(masked, "drawn/gone.png", [[200, 0, 0, 0]])
    draw(masked, "drawn/small.png", [[v3["bus"]] * 2])
    answers = ["split.png,drawn/split.png", "easy.png,drawn/easy.png", "gone.png,drawn/gone.png"]
    answers += ["both.png,drawn/small.png", "none.png,drawn/missing.png", "nowhere.png,drawn/split.png"]
    (masked / "answers.csv").write_text("\n".join(["image,mask", *answers]) + "\n")
    (masked / "labels.csv").write_text(
        (masked / "labels.csv").read_text().replace("gone.png,old/gone.png,v1", "gone.png,,")
    )
    call = ["batch", "import", "answers.csv", "--manifest", "labels.csv", "--ontology", "ontology.yaml"]
    result = leco(*call, "--conflicts", "conflicts.csv", "-o", "labels2.csv", cwd=masked)
    assert result.returncode == 0, result.stderr
    assert "1 answers added, 5 conflicts" in result.stdout
    kinds = {row["sample"]: (row["kind"], row["problem"]) for row in rows_of(masked / "conflicts.csv")}
    assert kinds["easy.png"][0] == "outside the old class"
    assert "100% of its pixels" in kinds["easy.png"][1]
    assert "has the value 200" in kinds["gone.png"][1]
    assert "is 2x5, but both.png is 4x5" in kinds["both.png"][1]
    assert "no such file" in kinds["none.png"][1]
    assert kinds["nowhere.png"][0] == "unknown sample"
    manifest, _ = read_manifest(masked / "labels2.csv", street)
    assert manifest.masks["v3"][manifest.inputs.index("split.png")] == "drawn/split.png"
    draw(masked, "drawn/again.png", [[v3["bus"]] * 4])
    (masked / "answers.csv").write_text("image,mask\nsplit.png,drawn/again.png\nsplit.png,drawn/split.png\n")
    again = leco(*call[:4], "labels2.csv", *call[5:], cwd=masked)
    assert "0 answers added, 1 conflicts, 1 already known" in " ".join(again.stdout.split())
    assert "drawn/again.png, but the manifest has drawn/split.png (v3)" in again.stderr


def test_wrong_calls_are_refused(own):
    names = ["--manifest", "labels.csv", "--ontology", "ontology.yaml"]
    assert_refused(["batch", "import", "labels.txt", *names], "unknown table format '.txt'", own)
    assert_refused(["batch", "import", "labels.csv", *names, "-o", "x.txt"], "valid: .csv, .jsonl, .parquet", own)
    assert_refused(["batch", "import", "a.csv", *names, "--conflicts", "labels.csv"], "name another file", own)
    (own / "answers.csv").write_text("picture,label\na,b\n")
    assert_refused(["batch", "import", "answers.csv", *names], "needs a column `image`, `features` or `sample`", own)

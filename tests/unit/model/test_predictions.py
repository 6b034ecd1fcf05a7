"""Answers at any version, and answers that back off."""

import csv
import io
import json

import pytest
import torch
from tests.conftest import STREET

from leco import Ontology
from leco.evaluation import NAMELESS, predict_at
from leco.evaluation.calibration import Held, Reliability, level_of, record
from leco.model.description import Record
from leco.model.predictions import Answer, Writer, backed_off, ranked


def probabilities(ontology: Ontology, number: int = 50) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (3 * torch.randn(number, len(ontology.newest), generator=generator)).softmax(dim=1)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_the_first_answer_is_that_of_predict_at(street, version):
    probs = probabilities(street)
    expected = predict_at(probs, street.transition("v3", version)).tolist()
    for answer, index in zip(ranked(probs, street, version, top=3), expected, strict=True):
        label, probability = answer.classes[0]
        assert label == ("" if index == -1 else street[version].handle(index))
        assert len(answer.classes) == 3
        assert probability >= answer.classes[1][1] >= answer.classes[2][1]


def test_probabilities_of_all_answers_sum_to_one():
    ontology = Ontology.from_dict({"versions": STREET["versions"][:2]})  # with a brand-new class
    for answer in ranked(probabilities(ontology), ontology, "v1", top=100):
        assert sum(value for _, value in answer.classes) == pytest.approx(1)
        assert {label for label, _ in answer.classes} == {*ontology["v1"].handles, ""}


def naive_back_off(probs: list[float], ontology: Ontology, threshold: float) -> tuple[str, str, bool]:
    best = {}
    for version in reversed(ontology.versions):
        sums = dict.fromkeys(version.handles, 0.0)
        for index, value in enumerate(probs):
            for parent, share in ontology.transition(ontology.newest.name, version.name).origins(index).items():
                sums[version.handle(parent)] += share * value
        label = max(sums, key=lambda name: sums[name])
        best[version.name] = sums[label], label
        if sums[label] >= threshold:
            return version.name, label, True
    highest = max(value for value, _ in best.values())
    oldest = next(version.name for version in ontology.versions if best[version.name][0] == highest)
    return oldest, best[oldest][1], False


@pytest.mark.parametrize("threshold", [0.0, 0.6, 0.9, 1.0])
def test_an_answer_is_as_fine_as_it_is_sure(street, threshold):
    probs = probabilities(street)
    nothing = Reliability({}, ["v1", "v2", "v3"], threshold)
    found = [(a.version, a.classes[0][0], a.reached) for a in backed_off(probs, street, threshold, nothing)]
    assert found == [naive_back_off(row, street, threshold) for row in probs.tolist()]
    if threshold == 0.9:
        assert {version for version, _, _ in found} == {"v1", "v2", "v3"}


def test_without_a_sure_answer_the_surest_is_given_and_of_equals_the_coarsest():
    generator = torch.Generator().manual_seed(0)
    for confidences in (torch.randint(0, 10, (500, 3), generator=generator) / 10).tolist():
        level, reached = level_of(confidences, 0.95)
        assert not reached
        assert all(confidences[level] >= other for other in confidences)
        assert all(confidences[level] > coarser for coarser in confidences[:level])


def test_what_is_brand_new_is_not_answered_with_a_class_that_it_never_was():
    versions = [{"name": "v1", "classes": ["box", "can"]}, {"name": "v2", "classes": ["box", "can", "star"]}]
    ontology = Ontology.from_dict({"versions": versions})
    (answer,) = backed_off(torch.tensor([[0.08, 0.07, 0.85]]), ontology, 0.9, Reliability({}, ["v1", "v2"], 0.9))
    assert (answer.version, answer.classes[0][0], answer.reached) == ("v2", "star", False)


def test_the_accuracy_of_an_answer_is_that_of_answers_like_it_on_validation():
    """Sixty answers at v2 that are right three times in four, forty at v1 of which the coarse half is right."""
    fine = torch.tensor([0.95] * 60 + [0.5] * 40)
    coarse = torch.tensor([0.99] * 60 + [0.92] * 30 + [0.6] * 10)
    right_fine = torch.tensor(([1, 1, 1, 0] * 15) + [0] * 40)
    right_coarse = torch.tensor([1] * 60 + [1, 0] * 15 + [-1] * 2 + [1] * 6 + [NAMELESS] * 2)
    records = {}
    for version, confidence, right in (("v1", coarse, right_coarse), ("v2", fine, right_fine)):
        true = right.clamp(max=0)
        records[version] = record(confidence, torch.where(right == 1, 0, 1), true)
    reliability = Reliability(records, ["v1", "v2"], 0.9)
    assert reliability.of(1, True, 0.96) == Held(0.75, 60)
    assert reliability.of(0, True, 0.91) == Held(0.5, 30)
    assert reliability.of(0, False, 0.3) == Held(
        0.75, 8
    )  # two of unknown label do not count, two without a name are wrong
    assert reliability.of(1, False, 0.3) is None
    assert Reliability(records, ["v1", "v2"], 0.999).of(0, True, 1.0) is None


def test_accuracy_is_measured_on_answers_that_are_about_as_sure():
    confidence = torch.arange(200) / 200
    sure = record(confidence, torch.zeros(200).long(), torch.where(torch.arange(200) < 100, 1, 0))
    reliability = Reliability({"v1": sure}, ["v1"], 0.0)
    assert reliability.of(0, True, 0.2) == Held(0.0, 50)
    assert reliability.of(0, True, 0.9) == Held(1.0, 50)
    assert reliability.of(0, True, 2.0) == Held(1.0, 50)


def test_a_record_is_as_long_as_it_says():
    with pytest.raises(ValueError, match="one for each answer"):
        Record(confidence="10001", right="1")


def write(kind: str, top: int, answers: list[Answer], backs_off: bool = False) -> str:
    file = io.StringIO()
    Writer(file, kind, top, backs_off).write([f"{n}.png" for n in range(len(answers))], iter(answers))
    return file.getvalue()


def test_control_characters_of_names_do_not_reach_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for file, shown in ((Terminal(), "z\\x1b[31m.png"), (io.StringIO(), "z\x1b[31m.png")):
        Writer(file, "csv", 1, False).write(["z\x1b[31m.png"], iter([Answer("v1", (("a", 1.0),))]))
        assert file.getvalue().splitlines()[1] == f"{shown},v1,a,1.000000"


def test_what_a_spreadsheet_takes_for_a_formula_is_text_in_a_table_unless_asked_for_verbatim():
    answers = [Answer("v1", (("=1+1", 0.75), ("-1.5", 0.25))), Answer("v1", (("-", 1.0),))]

    def cells(verbatim: bool) -> list[list[str]]:
        file = io.StringIO()
        Writer(file, "csv", 2, False, verbatim).write(["@a.png", "+b.png"], iter(answers))
        return list(csv.reader(io.StringIO(file.getvalue())))[1:]

    assert cells(False) == [
        ["'@a.png", "v1", "'=1+1", "0.750000", "-1.5", "0.250000"],
        ["'+b.png", "v1", "-", "1.000000", "", ""],
    ]
    assert [row[0] for row in cells(True)] == ["@a.png", "+b.png"]
    assert json.loads(write("jsonl", 2, answers).splitlines()[0])["answers"][0]["label"] == "=1+1"


def test_answers_are_written_as_tables_and_as_json():
    answers = [Answer("v1", (("a,b", 0.75), ("", 0.25))), Answer("v1", (('"c"', 1.0),))]
    rows = list(csv.reader(io.StringIO(write("csv", 2, answers))))
    assert rows[0] == ["input", "version", "label", "probability", "label_2", "probability_2"]
    assert rows[1:] == [["0.png", "v1", "a,b", "0.750000", "", "0.250000"], ["1.png", "v1", '"c"', "1.000000", "", ""]]
    first, second = (json.loads(line) for line in write("jsonl", 2, answers).splitlines())
    assert first["answers"] == [{"label": "a,b", "probability": 0.75}, {"label": "", "probability": 0.25}]
    assert second == {"input": "1.png", "version": "v1", "answers": [{"label": '"c"', "probability": 1.0}]}
    unsure = [Answer("v1", (("a", 0.5),), False, Held(0.25, 40)), Answer("v2", (("b", 0.9),), True, None)]
    rows = list(csv.reader(io.StringIO(write("csv", 1, unsure, backs_off=True))))
    assert [row[2:] for row in rows] == [
        ["label", "probability", "reached", "accuracy", "n"],
        ["a", "0.500000", "no", "0.2500", "40"],
        ["b", "0.900000", "yes", "", ""],
    ]
    assert json.loads(write("jsonl", 1, unsure, backs_off=True).splitlines()[0]) == {
        **{"input": "0.png", "version": "v1", "label": "a", "probability": 0.5},
        **{"reached": False, "accuracy": 0.25, "n": 40},
    }

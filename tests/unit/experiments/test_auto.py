"""`auto`: what it tries, what it chooses, and that it resumes, repeats and refits as it should."""

import csv
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from tests.commands import leco as command
from tests.own_data import paint
from tests.shapes import BACKBONE, write_project

import leco
from leco import LecoError, Ontology
from leco.evaluation.evaluate import Judge
from leco.experiments.auto import Score, decide, first_answer, refitted, score_of, share_of_variance, trials
from leco.experiments.experiment import AUTO_METHOD, experiment
from leco.experiments.machine import Machine
from leco.experiments.stages import HEAD_WITH_OLD, NEW_ALONE, REGRESSION, WITH_OLD, Plan, plan
from leco.experiments.store import Memory, Store
from leco.experiments.train import Run, periods_of
from leco.records import ClassScore, Result, VersionScores

TRIALS = [REGRESSION, HEAD_WITH_OLD, NEW_ALONE, WITH_OLD]


# The choice, given results.


def result(
    score: float | None, supports: Sequence[int] = (50, 50), *, diverged: str | None = None, **more: Any
) -> Result:
    """The result of a stage whose classes are all equally accurate."""
    return result_of([(score, count) for count in supports], score, diverged=diverged, **more)


def result_of(classes: Sequence[tuple[float | None, int]], score: float | None, **more: Any) -> Result:
    rows = tuple(ClassScore(name=str(n), support=s, accuracy=a, iou=a) for n, (a, s) in enumerate(classes))
    scores = {"v2": VersionScores(macc=score, miou=score, per_class=rows)}
    shared: dict[str, Any] = {"stage": "", "version": "v2", "seed": 0, "metric": "macc", "data": "", "ontology": ""}
    validation = None if score is None else scores
    return Result(samples=1, validation_score=score, validation=validation, test=None, seconds=1.0, **shared | more)


def decided(results: dict[str, Result]) -> str:
    store = Memory()
    for label, found in results.items():
        store.complete(label, found)
    stages: Any = {label: SimpleNamespace(fingerprint=label, method="ce") for label in results}
    return decide(Plan((), stages), store)


def test_the_error_of_a_score_follows_from_the_counts_of_each_class():
    found = score_of(result_of([(0.5, 2), (1.0, 8), (None, 0)], 0.75))
    # Of the first, 1 of 2 and so 2 of 4 with one success and one failure more; of the second, 9 of 10.
    variance = 0.5 * 0.5 / 2 + 0.9 * 0.1 / 8
    assert found.value == 0.75
    assert found.error == pytest.approx(math.sqrt(variance) / 2)


def test_more_samples_make_a_score_more_certain_and_none_make_it_worthless():
    errors = [score_of(result(0.8, (count, count))).error for count in (1, 10, 100, 1_000)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.2
    assert errors[-1] < 0.01
    assert score_of(result(None)) == Score(0.0, 1.0)
    assert score_of(result(1.0, (1,))).error > 0.3  # one sample that is right proves little


def test_scores_on_the_same_samples_are_compared_sample_by_sample():
    # 1 % of difference on 200 samples: 2 that only one model has right, or 34 against 32.
    paired = {"a": "1" * 152 + "0" * 48, "b": "1" * 150 + "0" * 50}
    crossed = {"a": "1" * 152 + "0" * 48, "b": "1" * 118 + "0" * 34 + "1" * 32 + "0" * 16}
    scores = {"a": 0.76, "b": 0.75}
    for answers, chosen in ((paired, "a"), (crossed, "b")):
        found = {name: result(score, (100, 100), validation_right=answers[name]) for name, score in scores.items()}
        assert decided(found) == chosen


def test_the_variance_of_a_difference_is_that_of_pairs():
    generator = np.random.default_rng(0)
    common = generator.random(20_000)
    right, other = (common < 0.8).astype(int), (0.5 * common + 0.5 * generator.random(20_000) < 0.6).astype(int)
    expected = np.var(right - other) / (np.var(right) + np.var(other))
    texts = ("".join(map(str, values)) for values in (right, other))
    assert share_of_variance(*texts) == pytest.approx(expected, abs=1e-3)
    assert share_of_variance("11", "00") == 1
    known = "1101" * 5
    assert share_of_variance(f"{known}-", f"{known}1") == share_of_variance(known, known) < 0.5


@pytest.mark.parametrize(
    ("results", "chosen"),
    [
        ({"a": result(0.5), "b": result(0.9)}, "b"),
        ({"a": result(0.90), "b": result(0.88)}, "b"),  # 100 samples cannot tell, and more was used
        ({"a": result(0.90, (5_000,) * 2), "b": result(0.89, (5_000,) * 2)}, "a"),  # 10,000 can
        ({"a": result(0.90, (5_000,) * 2), "b": result(0.90, (5_000,) * 2)}, "b"),
        ({"a": result(0.9), "b": result(0.6)}, "a"),
        ({"a": result(0.9, (1, 1)), "b": result(0.6, (1, 1))}, "b"),  # with two samples, nothing is known
        ({"a": result(0.5), "b": result(0.9), "c": result(0.7)}, "b"),
        ({"a": result(0.9), "b": result(0.9), "c": result(None, diverged="NaN")}, "b"),
        ({"a": result(None), "b": result(None)}, "b"),  # without validation, the one that uses the most
    ],
)
def test_the_last_trial_that_is_expected_to_be_better_is_chosen(results, chosen):
    assert decided(results) == chosen


def test_of_several_learning_rates_the_best_takes_part():
    rates = {
        f"{WITH_OLD}, learning rate {rate}": score for rate, score in {"0.1": 0.86, "0.01": 0.88, "0.001": 0.85}.items()
    }
    results = {NEW_ALONE: result(0.87)} | {label: result(score) for label, score in rates.items()}
    assert decided(results) == f"{WITH_OLD}, learning rate 0.01"


def test_if_every_trial_diverged_the_first_problem_is_reported():
    lost = {name: result(None, diverged=f"{name} is NaN") for name in "ab"}
    with pytest.raises(LecoError, match="every trial diverged: a is NaN"):
        decided(lost)


# Images, and a network that starts from a file of weights.


def prepared(file: Path, runs: Path, settings: dict[str, str] | None = None, **changes: Any) -> Run:
    wanted = experiment(str(file), changes, settings or {})
    return Run.prepare(wanted, wanted.dataset(file.parent), Store(runs), start=wanted.start, device="cpu")


def weights(store: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.parent.name: load_file(path) for path in sorted(store.glob("stages/*/model.safetensors"))}


def assert_same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@dataclass(frozen=True)
class Whole:
    file: Path
    runs: Path
    run: Run
    model: leco.Model
    read: list[str]  # what was evaluated, in order


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """A run from beginning to end."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("auto")
    run = prepared(write_project(folder), folder / "runs")
    read: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for part in ("validation", "test"):
            original = getattr(Judge, part)

            def counted(self: Judge, network: Any, part: str = part, original: Any = original) -> Any:
                read.append(part)
                return original(self, network)

            patch.setattr(Judge, part, counted)
        model = run.train(Machine("cpu"))
        yield Whole(folder / "experiment.yaml", folder / "runs", run, model, read)


def test_heads_come_first_and_networks_need_no_earlier_period(whole):
    assert list(whole.run.plan.trials) == TRIALS
    assert len(whole.run.plan.periods) == 1
    assert whole.run.to_do == []
    head, best, network, student = whole.run.plan.trials.values()
    assert [stage.on_features for stage in (head, best, network, student)] == [True, True, False, False]
    assert {stage.weights for stage in (head, best, network, student)} == {head.weights}
    assert [str(stage.method) for stage in (head, best, network, student)] == ["ce", "lpl", "ce", AUTO_METHOD]
    assert student.teacher == (network if student.method.needs_teacher else None)
    assert (head.training.finish.head, best.training.finish.head) == ("linear", "best")
    assert network.training.finish.head == "trained"


def test_only_heads_on_features_are_stored(whole):
    for label in (REGRESSION, HEAD_WITH_OLD):
        kept = weights(whole.runs)[whole.run.plan.trials[label].fingerprint]
        assert kept.keys() == {"heads.0.weight", "heads.0.bias"}
    backbone = load_file(whole.file.with_name("weights.safetensors"))
    tuned = weights(whole.runs)[whole.run.plan.trials[NEW_ALONE].fingerprint]
    assert not torch.equal(tuned["backbone.conv_head.weight"], backbone["conv_head.weight"])


def test_the_chosen_one_is_trained_again_on_all_labels(whole):
    store = whole.run.store
    trial = whole.run.plan.trials[decide(whole.run.plan, store)]
    final, periods = whole.run.final
    assert final.fingerprint not in {stage.fingerprint for stage in whole.run.plan.stages}
    assert final.teacher == trial.teacher
    assert replace(final, material=trial.material, learned=trial.learned) == trial
    annotated, held_out = periods.annotated(1, "label-new"), whole.run.periods.annotated(1, "label-new").validation
    assert len(annotated.validation.indices) == 0
    assert set(held_out.indices.tolist()) <= set(annotated.newest.indices.tolist())
    mine, before = store.require(final.fingerprint), store.require(trial.fingerprint)
    assert mine.samples == before.samples + len(held_out.indices) == 25
    assert (mine.validation, mine.validation_score) == (None, None)
    assert before.validation_score == before.validation["v2"].macc


def test_if_training_on_all_labels_diverges_the_trial_is_the_model(whole, tmp_path):
    copied = Path(shutil.copytree(whole.runs, tmp_path / "runs"))
    run = prepared(whole.file, copied)
    again, _ = run.final
    shutil.rmtree(run.store.folder(again.fingerprint))
    (run.store.partial / again.fingerprint).mkdir(parents=True)
    run.store.complete(again.fingerprint, Result(stage="", version="v2", seed=0, diverged="loss is NaN"))
    said: list[str] = []
    model = run.train(Machine("cpu", say=said.append))
    assert said == ["training on all labels failed (loss is NaN); the model is the trial"]
    assert run.final[0] == run.plan.trials[decide(run.plan, run.store)]
    assert model.description.held_out["validation"] > 0  # of the model of all labels, it would be none


def test_the_bundle_has_the_final_weights_the_trials_and_the_calibration_of_the_trial(whole):
    final, _ = whole.run.final
    chosen = decide(whole.run.plan, whole.run.store)
    description = whole.model.description
    bundled, stored = load_file(whole.run.target / "model.safetensors"), weights(whole.runs)[final.fingerprint]
    scale = whole.run.store.require(final.fingerprint).feature_scale  # of a head, which has no backbone
    assert stored.keys() == (bundled.keys() if not final.on_features else {"heads.0.weight", "heads.0.bias"})
    expected = {
        name: tensor * (scale if name.endswith("0.weight") and final.on_features else 1.0)
        for name, tensor in stored.items()
    }
    assert_same_weights({name: bundled[name] for name in stored}, expected)
    assert [trial.name for trial in description.trials] == TRIALS
    assert [trial.name for trial in description.trials if trial.chosen] == [chosen]
    for trial in description.trials:
        found = whole.run.store.require(whole.run.plan.trials[trial.name].fingerprint)
        assert (trial.validation, trial.test) == (found.validation_score, found.test["v2"].macc)
    trial = whole.run.store.folder(whole.run.plan.trials[chosen].fingerprint)
    assert description.calibration
    assert (
        json.loads(description.text())["calibration"] == json.loads((trial / "bundle.json").read_text())["calibration"]
    )
    assert description.held_out == {"validation": 0, "test": 15}


def test_the_card_lists_the_trials(whole):
    card = (whole.run.target / "README.md").read_text()
    for trial in whole.model.description.trials:
        (row,) = [line for line in card.splitlines() if trial.name in line]
        assert f"{100 * trial.validation:.1f}" in row
        assert f"{100 * trial.test:.1f}" in row
        assert ("chosen" in row) == trial.chosen
    assert "trained again on all labels" in card


def test_a_damaged_ontology_is_written_again_before_the_first_answer_is_kept(whole, tmp_path):
    shutil.copytree(whole.runs, tmp_path / "runs")
    (first,) = (tmp_path / "runs" / "bundles").glob("*first-answer*")
    shutil.rmtree(first)
    (ontology,) = (tmp_path / "runs" / "ontologies").glob("*.json")
    ontology.write_text("{")
    prepared(whole.file, tmp_path / "runs").train(Machine("cpu"))
    assert first.is_dir()


def test_the_first_answer_is_a_model_that_predicts(whole):
    (folder,) = (whole.runs / "bundles").glob("*first-answer*")
    label = first_answer(whole.run.plan, whole.run.store)
    assert label in (REGRESSION, HEAD_WITH_OLD)
    model = leco.load(folder, device="cpu")
    images = sorted(path for path in (whole.file.parent / "images").glob("v2-test-*") if int(path.stem[-2:]) < 3)
    truth = [path.stem.split("-")[2] for path in images]
    names = [answer.classes[0][0] for _, answer in model.predict(images)]
    accuracy = np.mean([np.mean([n == t for n, t in zip(names, truth, strict=True) if t == c]) for c in set(truth)])
    stored = whole.run.store.require(whole.run.plan.trials[label].fingerprint)
    assert accuracy == pytest.approx(stored.test["v2"].macc)
    assert model.description.trials == ()


def test_the_test_split_is_read_once_for_every_stage(whole):
    assert whole.read.count("test") == len(whole.run.plan.stages) + 1
    assert len(list(whole.runs.glob("stages/*"))) == len(whole.run.plan.stages) + 1


def test_a_second_call_trains_nothing(whole):
    def watch(*_: object) -> None:
        raise AssertionError("something was trained")

    before = {path: path.stat().st_mtime_ns for path in whole.runs.glob("stages/*/*")}
    again = prepared(whole.file, whole.runs)
    assert again.to_do == []
    model = again.train(Machine("cpu"), watch)
    assert {path: path.stat().st_mtime_ns for path in whole.runs.glob("stages/*/*")} == before
    assert model.description == whole.model.description


@pytest.mark.parametrize("place", [1, 4, 7, -1])  # in the second head, in each network, in the last training
def test_a_killed_run_ends_in_the_same_bits(place, whole, tmp_path, monkeypatch):
    monkeypatch.setenv("LECO_SAVE_EVERY", "0")
    stages = [*whole.run.plan.stages, whole.run.final[0]]
    killed = range(1, 1 + sum(stage.training.batches.steps for stage in stages))[place]
    seen: list[str] = []

    def watch(stage: Any, report: Any) -> None:
        seen.append(str(stage))
        if len(seen) == killed:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        prepared(whole.file, tmp_path).train(Machine("cpu"), watch)
    seen.append("")
    prepared(whole.file, tmp_path).train(Machine("cpu"), watch)
    one, other = weights(whole.runs), weights(tmp_path)
    assert one.keys() == other.keys()
    for name in one:
        assert_same_weights(one[name], other[name])


def test_other_test_labels_change_no_weight_and_no_choice(whole, tmp_path):
    file = write_project(tmp_path)
    with (tmp_path / "labels.csv").open() as rows:
        header, *lines = csv.reader(rows)
    wrong = {"circle": "star", "star": "square", "square": "ring", "ring": "triangle", "triangle": "circle"}
    poisoned = [[path, wrong[label] if split == "test" else label, *rest, split] for path, label, *rest, split in lines]
    with (tmp_path / "labels.csv").open("w", newline="") as rows:
        csv.writer(rows).writerows([header, *poisoned])
    run = prepared(file, tmp_path / "runs")
    run.train(Machine("cpu"))
    assert decide(run.plan, run.store) == decide(whole.run.plan, whole.run.store)
    for (mine, _), (other, _) in [(run.final, whole.run.final)]:
        assert mine.fingerprint != other.fingerprint
        tests = [r.store.require(s.fingerprint).test for r, s in ((run, mine), (whole.run, other))]
        assert tests[0] != tests[1]
        assert_same_weights(weights(tmp_path / "runs")[mine.fingerprint], weights(whole.runs)[other.fingerprint])
    for label in TRIALS:
        scores = [r.store.require(r.plan.trials[label].fingerprint).validation for r in (run, whole.run)]
        assert scores[0] == scores[1]


def test_validation_samples_that_were_given_are_never_trained_on(tmp_path):
    run = prepared(write_project(tmp_path, val=2), tmp_path / "runs")
    assert not run.periods.refits
    model = run.train(Machine("cpu"))
    final, periods = run.final
    assert final in run.plan.trials.values()
    assert periods is run.periods
    assert model.description.held_out["validation"] == 10
    assert "trained again on all labels" not in model.card


def test_without_history_only_new_labels_are_tried(tmp_path):
    run = prepared(write_project(tmp_path, history=0), tmp_path / "runs")
    assert list(run.plan.trials) == [REGRESSION, NEW_ALONE]
    run.train(Machine("cpu"))
    assert len(list((tmp_path / "runs" / "bundles").iterdir())) == 2  # the first answer, and the model


def test_one_version_is_enough(tmp_path):
    file = write_project(tmp_path, history=0)
    (tmp_path / "ontology.yaml").write_text(
        "versions:\n  - {name: v2, classes: [circle, ring, square, triangle, star]}\n"
    )
    run = prepared(file, tmp_path / "runs")
    assert list(run.plan.trials) == [REGRESSION, NEW_ALONE]
    assert run.train(Machine("cpu")).versions == ("v2",)


@pytest.mark.parametrize("versions", [1, 2])
def test_samples_without_any_label_are_no_old_labels(versions, tmp_path):
    file = write_project(tmp_path, history=0)
    with (tmp_path / "labels.csv").open("a") as rows:
        rows.writelines(f"{path.relative_to(tmp_path)},,,train\n" for path in sorted(tmp_path.glob("images/v1-*"))[:5])
    if versions == 1:
        (tmp_path / "ontology.yaml").write_text(
            "versions:\n  - {name: v2, classes: [circle, ring, square, triangle, star]}\n"
        )
    run = prepared(file, tmp_path / "runs")
    assert len(run.periods.annotated(len(run.periods.versions) - 1, "label-new").history) == 1
    assert list(run.plan.trials) == [REGRESSION, NEW_ALONE]


@pytest.mark.parametrize("kind", ["vectors", "a model to start from"])
def test_embedding_needs_a_backbone_of_its_own(kind, whole, tmp_path):
    network = {"embed": True, "weights": "pretrained"}
    if kind == "vectors":
        with pytest.raises(LecoError, match=r"training\.network\.embed: there is no backbone to embed with"):
            leco.train(vectors([0, 0, 1, 1]), method="lpl", network=network, store=tmp_path, progress=False)
        return
    periods = replace(whole.run.periods, start=SimpleNamespace(digest="", trained="v1", newest="v1"))
    wanted = experiment(str(whole.file), {"method": "lpl"}, {"training.network.embed": "true"})
    with pytest.raises(LecoError, match=r"training\.network\.embed: a model to start from has its own backbone"):
        plan(wanted, periods)


def test_training_says_which_weights_it_starts_from(tmp_path, capsys):
    file = write_project(tmp_path, history=0)
    data = leco.Dataset.from_manifest(tmp_path / "labels.csv", tmp_path / "ontology.yaml", image_size=32)
    settings = {"batches": {"steps": 1, "size": 8}, "store": tmp_path / "runs"}
    leco.train(
        data, method="ce", network={"backbone": BACKBONE, "weights": file.parent / "weights.safetensors"}, **settings
    )
    assert f"{BACKBONE} starts from the weights of {tmp_path / 'weights.safetensors'} (" in capsys.readouterr().err
    leco.train(data, method="ce", network={"backbone": BACKBONE, "weights": "random"}, **settings)
    assert f"{BACKBONE} starts from random weights" in capsys.readouterr().err


def test_random_weights_are_trained_through_all_periods_and_only_once(tmp_path):
    settings = {"training.network.weights": "random"}
    run = prepared(write_project(tmp_path), tmp_path / "runs", settings)
    assert list(run.plan.trials) == [NEW_ALONE, WITH_OLD]
    assert [str(stage.method) for stage in run.plan.stages] == ["ce", "ce", "lpl+st-hard/cond"]
    assert [stage.period for stage in run.plan.stages] == [0, 1, 1]
    run.train(Machine("cpu"))
    final, _ = run.final
    assert final in run.plan.trials.values()  # it starts from an earlier period, so it is not trained again
    assert not list((tmp_path / "runs" / "bundles").glob("*first-answer*"))


def test_several_learning_rates_are_several_trials(tmp_path):
    settings = {"training.optimiser.learning_rate": "0.001,0.0001"}
    run = prepared(write_project(tmp_path), tmp_path / "runs", settings)
    rates = [f"{label}, learning rate {rate}" for label in (NEW_ALONE, WITH_OLD) for rate in ("0.001", "0.0001")]
    assert list(run.plan.trials) == [REGRESSION, HEAD_WITH_OLD, *rates]
    model = run.train(Machine("cpu"))
    assert [trial.name for trial in model.description.trials] == list(run.plan.trials)
    assert len(model.description.training["training"]["optimiser"]["learning_rate"]) == 1


def test_a_trial_that_diverges_is_not_chosen(tmp_path):
    settings = {"training.optimiser.learning_rate": "1e30", "training.optimiser.name": "sgd"}
    run = prepared(write_project(tmp_path), tmp_path / "runs", settings)
    model = run.train(Machine("cpu"))
    assert run.store.require(run.plan.trials[NEW_ALONE].fingerprint).diverged
    assert decide(run.plan, run.store) in (REGRESSION, HEAD_WITH_OLD)
    lost = {trial.name: trial.validation for trial in model.description.trials}
    assert lost[NEW_ALONE] is lost[WITH_OLD] is None
    assert "| -" in model.card


def test_a_dry_run_lists_the_trials_and_trains_nothing(tmp_path):
    file = write_project(tmp_path)
    shown = command("run", file, "--runs", tmp_path / "runs", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert all(f"to do  {label} (" in shown.stdout for label in TRIALS)
    assert "4 of 4 to train" in shown.stdout
    assert "then trained on all labels" in shown.stdout
    assert not list(tmp_path.glob("runs/stages/*"))
    random = command("run", file, "--runs", tmp_path / "runs", "--dry-run", "--set", "training.network.weights=random")
    assert "then trained on all labels" not in random.stdout


def test_the_command_prints_the_trials_and_the_gain(whole):
    shown = command("run", whole.file, "--runs", whole.runs)
    assert shown.returncode == 0, shown.stderr
    assert "0 of 4 to train" in shown.stdout
    chosen = decide(whole.run.plan, whole.run.store)
    rows = {
        label: next(row for row in shown.stdout.splitlines() if row.strip().startswith(label)) for label in TRIALS[1:]
    }
    assert [label for label, row in rows.items() if " * " in row] == [chosen] * (chosen in rows)
    assert "the chosen one, trained on all labels" in shown.stdout
    if chosen != NEW_ALONE:
        store = whole.run.store
        scores = [store.require(whole.run.plan.trials[n].fingerprint).validation_score for n in (chosen, NEW_ALONE)]
        assert f"{chosen}: {100 * (scores[0] - scores[1]):+.1f} points on val against {NEW_ALONE}" in shown.stdout


def test_a_model_to_start_from_takes_the_place_of_pretrained_weights(whole, tmp_path):
    old = write_project(tmp_path / "old", new=0, test=0)
    rows = (tmp_path / "old" / "labels.csv").read_text()
    assert "v2" not in rows.replace("images/v2", "")
    (tmp_path / "old" / "ontology.yaml").write_text(
        "name: shapes\nversions:\n  - {name: v1, classes: [round, box, triangle]}\n"
    )
    first = prepared(old, tmp_path / "runs").train(Machine("cpu"))
    run = prepared(whole.file, tmp_path / "runs", start=first.place)
    assert list(run.plan.trials) == [NEW_ALONE, WITH_OLD]
    assert all(stage.start and not stage.weights for stage in run.plan.trials.values())
    model = run.train(Machine("cpu"))
    final, _ = run.final
    assert final in run.plan.trials.values()
    assert model.versions == ("v1", "v2")
    with pytest.raises(LecoError, match="is already a model of v2; the data have no later version"):
        prepared(whole.file, tmp_path / "runs", start=model.place)


def test_plans_use_the_features_that_auto_fits_heads_on(whole, tmp_path):
    arguments = ["--budget", "10", "--draws", "5", "--runs", whole.runs, "--json"]
    found = command("plan", whole.file, *arguments)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["features"].startswith(f"{BACKBONE} with the weights of ")
    assert "embedded" not in found.stderr  # they were in the store
    assert len(list(whole.runs.glob("stages/*"))) == len(whole.run.plan.stages) + 1


def test_plans_without_pretrained_weights_train_the_period_before(tmp_path):
    file = write_project(tmp_path)
    arguments = ["--budget", "10", "--draws", "5", "--runs", tmp_path / "runs", "--json"]
    found = command("plan", file, *arguments, "--set", "training.network.weights=random")
    assert found.returncode == 0, found.stderr
    assert f"{BACKBONE} of stage " in json.loads(found.stdout)["features"]


def test_checks_know_the_trials(whole):
    found = command("check", whole.file, "--json", "--no-timing")
    assert found.returncode == 0, found.stderr
    assert len(json.loads(found.stdout)["stages"]) == 4


def test_grids_and_classifiers_refuse_it(whole, tmp_path):
    refused = command("grid", whole.file, "--methods", "ce,auto", "--seeds", "0", cwd=tmp_path)
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: --methods: auto compares methods itself and chooses one; use `leco run`\n",
    )
    with pytest.raises(LecoError, match=r"method: auto .* use leco\.train"):
        leco.LecoClassifier(method="auto").fit([[0.0], [1.0]], ["a", "b"])


BAD = {
    "no duration": ({"time": "soon"}, "time: must be a duration such as 90s, 30m or 2h, not 'soon'"),
    "no time": ({"time": "0m"}, "time: must be a duration such as 90s, 30m or 2h, not '0m'"),
    "no unit": ({"time": "30"}, "not '30'"),
    "a negative time": ({"time": "-5m"}, "not '-5m'"),
    "a method": ({"time": "5m", "method": "lpl"}, "time: is for the method auto; set training.batches.steps for lpl"),
    "freeze": ({"strategy": "freeze"}, "strategy: auto chooses it itself; name a method to train with freeze"),
    "scratch": ({"strategy": "scratch"}, "strategy: auto chooses it itself; name a method to train with scratch"),
    "autoo": ({"method": "autoo"}, "'autoo' is not a method"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_auto_is_refused_in_one_line(case, whole, tmp_path):
    changes, message = BAD[case]
    arguments = [part for name, value in changes.items() for part in (f"--{name}", value)]
    refused = command("run", whole.file, *arguments, "--runs", tmp_path / "runs")
    assert refused.returncode == 2
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()
    data = leco.Dataset.from_arrays([[1.0], [2.0]], ["a", "b"])
    with pytest.raises(LecoError) as error:
        leco.train(data, **changes, store=tmp_path / "runs")
    assert message in str(error.value)


@pytest.mark.parametrize("size", ["4", "big", "5000"])
def test_a_size_of_images_that_is_none_is_refused(size, tmp_path):
    file = write_project(tmp_path)
    file.write_text(file.read_text().replace("image_size: 32", f"image_size: {size}"))
    refused = command("run", file, "--runs", tmp_path / "runs")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "data.image_size: Input should be" in refused.stderr


# Feature vectors and masks.


def vectors(parents: Sequence[int], *, new: int = 12, history: int = 100, val: int = 0, seed: int = 0) -> leco.Dataset:
    """Four classes; old samples are labelled as in `parents`, which may contradict the ontology."""
    generator = np.random.default_rng(seed)
    centres = 0.9 * np.random.default_rng(7).normal(size=(4, 8))
    names = {"v1": ["A", "B"], "v2": ["a1", "a2", "b1", "b2"]}
    classes = {name: {"from": name[0].upper()} for name in names["v2"]}
    versions = [{"name": "v1", "classes": names["v1"]}, {"name": "v2", "classes": classes}]
    features, labels, label_versions, splits = [], [], [], []
    for split, version, count in (
        ("train", "v1", history),
        ("train", "v2", new),
        ("val", "v2", val),
        ("test", "v2", 400),
    ):
        for fine in range(4):
            features.append(centres[fine] + generator.normal(size=(count, 8)))
            labels += [names["v1"][parents[fine]] if version == "v1" else names["v2"][fine]] * count
            label_versions += [version] * count
            splits += [split] * count
    return leco.Dataset.from_arrays(
        np.concatenate(features),
        labels,
        label_versions,
        ontology=Ontology.from_dict({"versions": versions}),
        split=splits,
    )


def scores_of(model: leco.Model) -> tuple[float, float]:
    """Accuracy of the model, and of logistic regression on new labels."""
    alone = next(trial.test for trial in model.description.trials if trial.name == REGRESSION)
    return model.scores["test"]["v2"].macc, alone


def test_useful_old_labels_of_vectors_raise_the_accuracy(tmp_path):
    gains = []
    for seed in range(3):
        model = leco.train(vectors([0, 0, 1, 1], seed=seed), store=tmp_path, progress=False)
        assert [trial.name for trial in model.description.trials] == [REGRESSION, HEAD_WITH_OLD]
        mine, alone = scores_of(model)
        gains.append(mine - alone)
    assert np.mean(gains) > 0.02


@pytest.mark.parametrize("parents", [[1, 1, 0, 0], [0, 1, 0, 1]])
def test_wrong_old_labels_of_vectors_do_hardly_any_harm(parents, tmp_path):
    gains = []
    for seed in range(3):
        mine, alone = scores_of(leco.train(vectors(parents, seed=seed), store=tmp_path, progress=False))
        gains.append(mine - alone)
    assert np.mean(gains) > -0.02


def test_vectors_are_fitted_again_on_all_labels_unless_validation_was_given(tmp_path):
    model = leco.train(vectors([0, 0, 1, 1]), store=tmp_path / "a", progress=False)
    assert model.description.samples == {"v2": 48, "v1": 400}
    assert model.description.held_out["validation"] == 0
    assert len(list((tmp_path / "a" / "stages").iterdir())) == 3
    model = leco.train(vectors([0, 0, 1, 1], val=5), store=tmp_path / "b", progress=False)
    assert model.description.held_out["validation"] == 20
    assert len(list((tmp_path / "b" / "stages").iterdir())) == 2
    assert not list((tmp_path / "b" / "bundles").glob("*first-answer*"))  # it is the model itself


def test_vectors_without_history_or_of_one_version_are_one_regression(tmp_path):
    model = leco.train(vectors([0, 0, 1, 1], history=0), store=tmp_path, progress=False)
    assert [trial.name for trial in model.description.trials] == [REGRESSION]
    plain = leco.Dataset.from_arrays(np.random.default_rng(0).normal(size=(40, 3)), ["a", "b"] * 20)
    model = leco.train(plain, store=tmp_path, progress=False)
    assert [(trial.name, trial.chosen) for trial in model.description.trials] == [(REGRESSION, True)]


def test_a_hidden_layer_is_one_more_trial_and_trained_through_all_periods(tmp_path):
    batches = {"steps": 3, "size": 8, "evaluate_every": 3}
    data = vectors([0, 0, 1, 1])
    model = leco.train(data, network={"backbone": "mlp"}, batches=batches, store=tmp_path, progress=False)
    assert [trial.name for trial in model.description.trials] == TRIALS
    assert [trial.method for trial in model.description.trials] == ["ce", "lpl", "ce", "lpl+st-hard/cond"]


def test_masks_are_trained_through_all_periods(tmp_path):
    paint(tmp_path)
    file = tmp_path / "street" / "experiment.yaml"
    file.write_text(file.read_text().replace("method: lpl\n", ""))
    wanted = experiment(str(file), {}, {})
    assert wanted.method == "auto"
    run = prepared(file, tmp_path / "runs")
    assert list(run.plan.trials) == [NEW_ALONE, WITH_OLD]
    model = run.train(Machine("cpu"))
    assert [trial.validation for trial in trials(run.plan, run.store)] == [
        run.store.require(stage.fingerprint).validation["v2"].miou for stage in run.plan.trials.values()
    ]
    assert "mIoU on validation" in model.card


def test_masks_with_pretrained_weights_need_no_earlier_period(tmp_path):
    paint(tmp_path)
    torch.manual_seed(0)
    save_file(timm.create_model(BACKBONE).state_dict(), tmp_path / "weights.safetensors")
    file = tmp_path / "street" / "experiment.yaml"
    file.write_text(file.read_text().replace("method: lpl\n", ""))
    network = {"training.network.backbone": BACKBONE, "training.network.weights": str(tmp_path / "weights.safetensors")}
    run = prepared(file, tmp_path / "runs", network | {"training.batches.steps": "2"})
    stages = run.plan.trials
    assert [(name, str(stage.method), stage.previous) for name, stage in stages.items()] == [
        (NEW_ALONE, "ce", ()),
        (WITH_OLD, "lpl", ()),
    ]
    assert {stage.training.optimiser.name for stage in stages.values()} == {"adamw"}
    model = run.train(Machine("cpu"))
    assert model.description.model == BACKBONE
    assert model.scores["test"]["v2"].miou is not None


def test_a_benchmark_that_asks_for_it_honours_its_annotation(tmp_path):
    settings = {"training.batches.steps": "2"}
    for annotation, expected in (("label-new", [NEW_ALONE, WITH_OLD]), ("all-fine", [NEW_ALONE])):
        wanted = experiment("digits-leco", {"method": "auto", "size": 40, "annotation": annotation}, settings)
        made = plan(wanted, periods_of(wanted, tmp_path))
        assert list(made.trials) == expected
        assert {stage.annotation for stage in made.trials.values()} == {annotation}


def test_only_own_data_default_to_it(tmp_path):
    assert experiment("digits-leco", {}, {}).method == "lpl+st-hard/cond"
    assert experiment(str(write_project(tmp_path)), {}, {}).method == "auto"


def test_a_stage_from_another_period_is_not_refitted(tmp_path):
    wanted = experiment(str(write_project(tmp_path)), {"method": "lpl"}, {"training.network.weights": "random"})
    periods = periods_of(wanted, tmp_path)
    first, second = (candidates[0] for candidates in plan(wanted, periods).periods)
    assert refitted(second, periods) == (second, periods)
    again, everything = refitted(first, periods)
    assert again != first
    assert everything.fingerprint != periods.fingerprint
    assert everything.learned != periods.learned
    assert refitted(again, everything) == (again, everything)
    untested = periods.without_test().refitted()
    assert untested.fingerprint == everything.learned  # what is learned does not depend on the test split

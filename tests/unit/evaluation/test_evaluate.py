"""`leco evaluate`: scores at every version, and whether a difference between two models is more than noise."""

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.commands import leco_processes
from tests.trainings import model_of, train_file
from typer.testing import CliRunner, Result

from leco import LecoError
from leco.cli.main import app
from leco.data.benchmarks import digits
from leco.data.samples import Files, InMemory, Samples
from leco.evaluation import NAMELESS, confusion, known_labels, scores
from leco.evaluation.compare import Difference, Pairs, compare
from leco.evaluation.evaluate import Candidate, Judged, NotFiniteError, Tally, hits, judge, tally, wins


def evaluate(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def found(*arguments: object) -> dict[str, dict]:
    result = evaluate(*arguments, "--json")
    assert result.exit_code == 0, result.exception
    return {part["version"]: part for part in json.loads(result.stdout)}


@pytest.fixture(scope="module")
def fine_labels(pictures: Path) -> Path:
    """The same test set with labels of the newest version for every image."""
    from sklearn.datasets import load_digits

    target = load_digits().target
    lines = (pictures / "labels.csv").read_text().splitlines()
    paths = [line.split(",")[0] for line in lines[1:]]
    rows = [f"{path},{target[int(Path(path).stem)]},v2,test" for path in paths]
    (pictures / "fine.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    return pictures / "fine.csv"


def test_a_bundle_scores_what_its_run_did(trained, new, fine_labels):
    result = trained.result(1)["test"]
    mine = found(new.folder, fine_labels)
    for version in ("v1", "v2"):
        assert mine[version]["macc"] == pytest.approx(result[version]["macc"], abs=1e-12)
        assert mine[version]["classes"] == result[version]["per_class"]


def test_vectors_and_pixels_are_scored_as_in_training(vectors, segmenter):
    for (bundle, result), metric in ((vectors, "macc"), (segmenter, "miou")):
        mine = found(bundle.folder, bundle.folder.parent / "labels.csv")
        assert mine["v2"][metric] == pytest.approx(result["test"]["v2"][metric], abs=1e-12)
        assert mine["v1"]["n"] > mine["v2"]["n"]  # what is labelled in v1 alone counts there


def test_own_photographs_are_scored_as_in_training(tmp_path):
    generator = np.random.default_rng(0)
    digits.ontology().save(tmp_path / "ontology.yaml")
    rows = ["image,label,version,split"]
    for number in range(80):
        size = (int(generator.integers(16, 40)), int(generator.integers(16, 40)), 3)
        pixels = generator.integers(0, 60, size) + 19 * (number % 10)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{number % 10},v2,{'test' if number % 4 == 3 else 'train'}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml, image_size: 16}\nmethod: ce\n"
        "training:\n  network: {backbone: wrn-10-1}\n  batches: {steps: 5, evaluate_every: 5, size: 16}\n"
    )
    bundle, result = train_file(tmp_path / "experiment.yaml")
    assert bundle.description.shape == (3, 16, 16)
    mine = found(bundle.folder, tmp_path / "labels.csv")
    assert mine["v2"]["classes"] == result["test"]["v2"]["per_class"]


def test_labels_of_any_version_count_where_they_say_something(new, old, pictures):
    labels = pictures / "labels.csv"
    mine = found(new.folder, labels)
    assert (mine["v1"]["n"], mine["v2"]["n"]) == (597, 398)
    refused = str(evaluate(old.folder, labels).exception)
    assert "'v2' is not a version of digits" in refused  # the old model does not know it
    assert "\n" not in refused
    digits.ontology().save(pictures / "ontology.yaml")
    assert found(old.folder, labels, "--ontology", pictures / "ontology.yaml").keys() == {"v1"}
    assert found(old.folder, labels, "--ontology", pictures / "ontology.yaml")["v1"]["n"] == 597


def test_labels_follow_from_newer_ones(street):
    given = {"v3": torch.tensor([0, -1, -1]), "v1": torch.tensor([-1, 2, 1])}
    known = known_labels(given, street)
    assert known["v3"].tolist() == [0, -1, -1]
    assert known["v2"].tolist() == [-1, -1, -1]  # merged from two: nobody knows
    assert known["v1"].tolist() == [0, 2, 1]  # both were road then
    assert known_labels({"v1": torch.tensor([3])}, street).keys() == {"v1"}


def test_a_label_follows_only_where_one_class_can_have_been_meant(street):
    labels = torch.arange(len(street["v2"]))
    known = known_labels({"v2": labels}, street)["v1"].tolist()
    for index, label in enumerate(known):
        origins = list(street.transition("v2", "v1").origins(index))
        assert label == (origins[0] if len(origins) == 1 else -1 if origins else NAMELESS)
    assert known[street["v2"].index("special-subject")] == -1
    assert known[street["v2"].index("drone")] == NAMELESS
    given = {"v1": torch.full_like(labels, 3), "v2": labels}
    assert known_labels(given, street)["v1"].tolist() == [3] * len(labels)  # what is given is believed


def test_two_models_are_compared_where_both_answer(trained, new, old, fine_labels):
    mine = found(new.folder, fine_labels, "--against", old.folder)
    assert "against" in mine["v1"]
    assert "against" not in mine["v2"]
    images = trained.periods.test.inputs.read(torch.arange(597))
    fine = trained.periods.test.labels["v2"].read(torch.arange(597))
    parents = torch.from_numpy(new.ontology.transition("v2", "v1").parents)
    fine_probs = model_of(new).predictor.probs(images)
    coarse = torch.zeros(597, 3).index_add(1, parents, fine_probs).argmax(dim=1)
    before = model_of(old).predictor.probs(images).argmax(dim=1)
    true = parents[fine]
    for row in mine["v1"]["differences"]:
        own = true == new.ontology["v1"].index(row["name"])
        won = int(((coarse == true) & (before != true) & own).sum())
        lost = int(((coarse != true) & (before == true) & own).sum())
        assert (row["won"], row["lost"], row["support"]) == (won, lost, int(own.sum()))
        assert row["gain"] == pytest.approx((won - lost) / int(own.sum()))
    won, lost = int(((coarse == true) & (before != true)).sum()), int(((coarse != true) & (before == true)).sum())
    assert (mine["v1"]["against"]["won"], mine["v1"]["against"]["lost"]) == (won, lost)
    whole = mine["v1"]["against"]
    assert whole["low"] < whole["gain"] < whole["high"]


def test_a_model_does_not_differ_from_itself(new, segmenter, fine_labels):
    for folder, labels in ((new.folder, fine_labels), (segmenter[0].folder, segmenter[0].folder.parent / "labels.csv")):
        mine = found(folder, labels, "--against", folder)
        for part in mine.values():
            assert part["against"]["verdict"] == "no difference shown"
            assert all(row["gain"] == 0 and row["p"] == 1 for row in part["differences"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_processes_share_the_samples_and_one_prints_what_one_alone_would(number, new, old, segmenter, fine_labels):
    """Of the six images of the segmenter, some of four processes have one, whose label is of v1 alone."""
    masks = segmenter[0].folder
    for arguments in ((new.folder, fine_labels, "--against", old.folder), (masks, masks.parent / "labels.csv")):
        result = leco_processes(number, "evaluate", *arguments, "--json")
        assert result.returncode == 0, result.stderr
        assert result.stdout == evaluate(*arguments, "--json").stdout


def test_if_predictions_of_one_process_are_not_finite_all_refuse_them(street, monkeypatch):
    size, sent = len(street.newest), []
    fabric = SimpleNamespace(device=torch.device("cpu"), world_size=2)
    broken, fine = Tally(street), Tally(street)
    broken.check(torch.full((1, size), torch.nan))
    fine.check(torch.zeros(1, size))
    monkeypatch.setattr("torch.distributed.all_reduce", lambda values: sent.append(values.clone()))
    broken.of_all(fabric)
    others = iter(sent)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda values: values.add_(next(others)))
    with pytest.raises(NotFiniteError, match="predictions at v3 are NaN or infinite"):
        fine.of_all(fabric).read()
    assert fine.read().keys() == {version.name for version in street.versions}


def naive_p(won: int, lost: int) -> float:
    """The chance that a fair coin is at least as one-sided."""
    from math import comb

    n = won + lost
    chances = [comb(n, k) / 2**n for k in range(n + 1)]
    return sum(c for c in chances if c <= chances[won] * (1 + 1e-9)) if n else 1.0


@pytest.mark.parametrize("workers", [0, 2])
def test_files_are_read_ahead_by_workers_with_the_same_scores(workers, street):
    newest, generator = street.newest.name, torch.Generator().manual_seed(0)
    values = torch.rand(40, 2, generator=generator)
    true = torch.randint(len(street[newest]), (40,), generator=generator)
    read_here = []

    def read(path: Path) -> torch.Tensor:
        read_here.append(path)  # in a worker, this process does not see it
        return values[int(path.name)]

    def predict(inputs: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        assert torch.equal(inputs, values[ids])
        return (inputs[:, :1] * torch.arange(len(street[newest]))).cos().softmax(dim=1)

    samples = Samples(Files([Path(str(number)) for number in range(40)], read), {newest: InMemory(true)})
    *_, judged = judge([Candidate(street, samples, predict)], torch.arange(40), street, batch_size=8, workers=workers)
    expected = torch.zeros(len(street[newest]), len(street[newest]) + 1).long()
    for index, label in enumerate(true.tolist()):
        expected[label, int(predict(values[[index]], torch.tensor([index])).argmax())] += 1
    assert torch.equal(judged.matrices(0)[newest], expected)
    assert len(read_here) == (0 if workers else 40)


def test_noise_is_no_regression_and_a_real_one_is(street):
    version = street["v1"]
    counts = [(9, 1), (0, 0), (20, 2), (1, 3), (3, 30), (5, 5), (1, 0), (0, 1)]
    better = torch.tensor([*counts, (39, 42)])
    matrix = torch.diag(torch.tensor([50] * 8))
    before, after = matrix.clone(), matrix.clone()
    for index, (won, lost) in enumerate(counts):
        before[index, index] -= won
        after[index, index] -= lost
        before[index, (index + 1) % 8] += won
        after[index, (index + 1) % 8] += lost
    mine, other = (scores(torch.cat([m, torch.zeros(8, 1).long()], dim=1), version.handles) for m in (after, before))
    pairs = Pairs()
    for index, (won, lost) in enumerate(counts):
        true = torch.full((50,), index)
        wrong = torch.full_like(true, (index + 1) % 8)
        order = torch.arange(50)
        first, second = torch.where(order < lost, wrong, true), torch.where(order >= 50 - won, wrong, true)
        pairs.add(*(tally(predicted, true, 8)[:, :2] for predicted in (first, second)))
    whole, classes = compare(Judged((), {"v1": better}, {"v1": pairs}), version, mine, other, "macc")
    by_name = {difference.name: difference for difference in classes}
    order = sorted(range(8), key=lambda index: naive_p(*counts[index]))
    adjusted, smallest = {}, 1.0
    for rank, index in reversed(list(enumerate(order, start=1))):  # Benjamini and Hochberg, from the largest
        smallest = min(smallest, naive_p(*counts[index]) * 8 / rank)
        adjusted[index] = smallest
    for index, handle in enumerate(version.handles):
        assert by_name[handle].p == pytest.approx(adjusted[index])
        assert by_name[handle].gain == pytest.approx((counts[index][0] - counts[index][1]) / 50)
    verdicts = {d.name: d.verdict for d in classes if d.verdict != "no difference shown"}
    assert verdicts == {"bus": "gain", "police-officer": "regression"}
    assert [abs(d.gain) for d in classes] == sorted((abs(d.gain) for d in classes), reverse=True)
    assert whole.verdict == "no difference shown"


def paired(first: torch.Tensor, second: torch.Tensor, true: torch.Tensor, parts: int = 2) -> Pairs:
    pairs, size = Pairs(), int(true.max()) + 1
    pairs.add(*(tally(predicted, true, size)[:, :parts] for predicted in (first, second)))
    return pairs


def naive_interval(first: torch.Tensor, second: torch.Tensor, true: torch.Tensor) -> tuple[float, float]:
    """Draw samples one by one, and score both models on them."""
    generator, size = np.random.default_rng(1), int(true.max()) + 1
    found = []
    for _ in range(1_000):
        drawn = torch.from_numpy(generator.integers(0, len(true), len(true)))
        means = [scores(confusion(part[drawn], true[drawn], size), range(size)).macc for part in (first, second)]
        found.append(means[0] - means[1])
    return float(np.quantile(found, 0.025)), float(np.quantile(found, 0.975))


def test_of_imbalanced_classes_the_mean_that_is_printed_is_tested():
    """A thousand samples of one class and forty of another: one model gains 60 of the first, and loses 20 of these."""
    true = torch.tensor([0] * 1_000 + [1] * 40)
    first, second = true.clone(), true.clone()
    second[:60] = 1
    first[-20:] = 0
    low, high = paired(first, second, true).interval([[0, 1]] * 2)  # of samples, by far the most speak for the first
    assert high < 0
    naive = naive_interval(first, second, true)
    assert (low, high) == pytest.approx(naive, abs=0.02)
    assert paired(second, first, true).interval([[0, 1]] * 2)[0] > 0
    assert paired(first, second, true).interval([[0], [0]])[0] > 0  # where the first class alone is evaluated
    assert paired(first, first, true).interval([[0, 1]] * 2) == (0, 0)
    first[-19:] = 1  # one of forty may be chance
    first[:5], second[:60] = 0, 0
    second[:1] = 1
    low, high = paired(first, second, true).interval([[0, 1]] * 2)
    assert low < 0
    assert high >= 0


def test_images_are_drawn_whole():
    """One image of ten has nearly all pixels that differ: whether it is drawn decides, however many pixels it has."""
    true = torch.zeros(10, 20, 20).long()
    true[:, :10] = 1
    first, second = true.clone(), true.clone()
    second[0] = 1 - true[0]
    low, high = paired(first, second, true, parts=3).interval([[0, 1]] * 2)
    assert low == 0
    assert high > 0.3
    second[:] = 1 - true
    assert paired(first, second, true, parts=3).interval([[0, 1]] * 2) == (1, 1)


def test_samples_are_compared_one_by_one_and_images_by_their_share():
    right = hits(tally(torch.tensor([0, 1, 1]), torch.tensor([0, 0, -1]), 2))
    np.testing.assert_array_equal(right, [[1, np.nan, 1], [0, np.nan, 0], [np.nan, np.nan, np.nan]])
    counts = tally(torch.tensor([[[0, 1], [1, 1]]]), torch.tensor([[[0, 0], [1, -1]]]), 2)
    assert counts.tolist() == [[[2, 1], [1, 1], [1, 2]]]
    maps = hits(counts)
    np.testing.assert_allclose(maps, [[0.5, 1, 2 / 3]])
    other = torch.tensor([[0.0, torch.nan, 0.0], [0.0, torch.nan, 0.0], [torch.nan, torch.nan, torch.nan]])
    assert wins(right, other).tolist() == [[1, 0], [0, 0], [1, 0]]


def test_tables_and_csv_say_the_same(new, old, fine_labels):
    result = evaluate(new.folder, fine_labels, "--csv", "--against", old.folder)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 13
    mine = found(new.folder, fine_labels)
    assert {row["class"]: float(row["accuracy"]) for row in rows if row["version"] == "v2"} == {
        row["class"]: row["accuracy"] for row in mine["v2"]["classes"]
    }
    text = evaluate(new.folder, fine_labels, "--against", old.folder).stdout
    assert f"v2: mean per-class accuracy {100 * mine['v2']['macc']:.1f} % of 597 samples (test)" in text
    assert "only this one was right" in text
    backwards = evaluate(old.folder, fine_labels, "--against", new.folder).stdout
    assert "does not predict v2" in backwards


WRONG = {
    "another split": (lambda new, labels: [new.folder, labels, "--split", "tset"], "did you mean 'test'?"),
    "no samples": (lambda new, labels: [new.folder, labels, "--split", "val"], "choose from: test, all"),
    "no manifest": (lambda new, labels: [new.folder, "nowhere.csv"], "no such file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused(case, new, fine_labels):
    make, message = WRONG[case]
    refused = evaluate(*make(new, fine_labels)).exception
    assert isinstance(refused, LecoError)
    assert message in str(refused)


def test_what_does_not_fit_is_refused(new, vectors, segmenter, fine_labels):
    features = vectors[0].folder
    assert "cannot be compared" in str(evaluate(new.folder, fine_labels, "--against", features).exception)
    assert "is for classification, but" in str(evaluate(features, fine_labels).exception)
    other = str(evaluate(new.folder, fine_labels, "--ontology", segmenter[0].folder.parent / "ontology.yaml").exception)
    assert "does not match the ontology of" in other
    assert "v1: 'loop' was renamed to 'bright'" in other


def test_vectors_that_are_no_numbers_are_named(vectors, tmp_path):
    bundle, _ = vectors
    table = np.load(bundle.folder.parent / "digits.npy").astype(np.float64)
    table[4] = 1e300
    np.save(tmp_path / "digits.npy", table)
    (tmp_path / "labels.csv").write_text((bundle.folder.parent / "labels.csv").read_text())
    result = evaluate(bundle.folder, tmp_path / "labels.csv")
    assert "digits.npy#4: value 0 is 1e+300, too large for 32 bits" in str(result.exception)


def test_a_difference_needs_more_than_a_few_samples():
    assert Difference("a", 10, 0.5, 0.6, lost=0, won=1, p=1.0).verdict == "no difference shown"
    assert Difference("a", 10, 0.5, 0.1, lost=9, won=0, p=0.004).verdict == "regression"


def test_a_class_that_is_found_more_often_but_overlaps_less_is_no_gain():
    assert Difference("a", 10, 0.5, 0.6, lost=0, won=9, p=0.004).verdict == "gain"
    assert Difference("a", 10, 0.6, 0.5, lost=0, won=9, p=0.004).verdict == "no difference shown"

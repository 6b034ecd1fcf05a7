"""LecoClassifier: scikit-learn's own checks, labels of several versions, and what must not happen."""

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, parametrize_with_checks

from leco import LecoClassifier, LecoError, Ontology
from leco.data.benchmarks import load
from leco.dataset.arrays import ArrayDataset
from leco.dataset.labels import read_labels
from leco.estimator import scale_to_ten, this_process
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage, stored_network
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.methods.method import ALL_METHODS

PETS = {
    "name": "pets",
    "versions": [
        {"name": "v1", "classes": ["dog", "cat"]},
        {"name": "v2", "classes": {"poodle": {"from": "dog"}, "husky": {"from": "dog"}, "cat": None}},
    ],
}
# What the classes of the street were called before, written out by hand.
V2 = {"road": ["road", "parking-aisle"], "bus": ["school-bus", "city-bus"], "island": ["background"]}
V2 |= {"truck": ["automobile"]}
V1 = {"road": ["road"], "bus": ["bus"], "automobile": ["car"], "truck": ["car"]}
V1 |= {name: ["background"] for name in ("traffic-cone", "island")}
V1 |= {"special-subject": ["child"] * 7 + ["police-officer"] * 3}


def pets(count: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, and the names of both versions."""
    X, y = make_blobs(count, centers=[[0, 0, 3], [3, 0, 0], [0, 4, 0]], random_state=seed)
    new = np.array(["poodle", "husky", "cat"])[y]
    return X, np.where(new == "cat", "cat", "dog"), new


def evolving(count: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels of two versions (and every fifth without), and whose version they are."""
    X, old, new = pets(count, seed)
    versions = np.array(["v1", "v2"] * (count // 2))
    y = np.where(versions == "v1", old, new)
    y[::5] = ""
    return X, y, versions


def street_samples(street: Ontology, count: int, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Features, and a name of each version."""
    generator = np.random.default_rng(seed)
    newest = generator.choice(street["v3"].classes, count)
    centres = dict(zip(street["v3"].classes, np.random.default_rng(7).normal(size=(9, 6)) * 3, strict=True))
    X = np.stack([centres[name] for name in newest]) + generator.normal(size=(count, 6))
    old = [[generator.choice(names.get(name, [name])) for name in newest] for names in (V1, V2)]
    return X, {"v1": np.array(old[0]), "v2": np.array(old[1]), "v3": newest}


@parametrize_with_checks([LecoClassifier(steps=60)])
def test_scikit_learn_takes_it_for_a_classifier(estimator, check):
    check(estimator)


def test_scikit_learn_takes_its_feature_names():
    check_dataframe_column_names_consistency("LecoClassifier", LecoClassifier(steps=2))


@pytest.mark.parametrize("labels", [[3, -1, 7], ["b", "a", "c"], [True, False, True], [0.0, 2.0, 1.0]])
def test_without_an_ontology_labels_stay_what_they_are(labels):
    X, y = make_blobs(60, random_state=0)
    y = np.array(labels)[y]
    fitted = LecoClassifier(steps=60).fit(X, y)
    assert fitted.classes_.tolist() == sorted(set(labels))
    assert fitted.predict(X).dtype == y.dtype
    assert fitted.score(X, y) == np.mean(fitted.predict(X) == y) > 0.8


@pytest.mark.parametrize("none", ["", None])
def test_without_an_ontology_every_sample_needs_a_label(none):
    X, _, y = pets()
    y = y.astype(object)
    y[5] = none
    with pytest.raises(LecoError, match="y has no label at position 5; pass an `ontology`"):
        LecoClassifier(steps=2).fit(X, y)


def test_plain_labels_are_learned_as_well_as_scikit_learn_does():
    X, y = load_iris(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    X = X * [1, 1e6, 1e-6, 1] + [0, 0, 1, -1e4]  # units do not matter
    assert cross_val_score(LecoClassifier(steps=200), X, y, cv=folds).mean() > 0.92
    assert cross_val_score(LecoClassifier(model="mlp", steps=100), X, y, cv=folds).mean() > 0.92


def test_three_versions_with_splits_merges_and_renames_are_learned_and_predicted(street):
    X, names = street_samples(street, 460)
    versions = np.array(["v1"] * 200 + ["v2"] * 200 + ["v3"] * 60)
    y = np.choose(np.repeat([0, 1, 2], [200, 200, 60]), [names["v1"], names["v2"], names["v3"]])
    fitted = LecoClassifier(street, steps=200).fit(X, y, versions)
    X, names = street_samples(street, 300, seed=1)
    assert fitted.score(X, names["v3"]) > 0.85
    assert fitted.score(X, names["v2"], "v2") > 0.7  # a road is a parking aisle as often as not
    told_apart = ~np.isin(names["v1"], ["child", "police-officer"])
    assert fitted.score(X[told_apart], names["v1"][told_apart], version="v1") > 0.9
    assert set(fitted.predict(X, "v1")) <= set(street["v1"].classes)
    assert set(fitted.predict(X, "v2")) <= {*street["v2"].classes, ""}


def test_older_versions_are_sums_through_the_ontology(street):
    X, names = street_samples(street, 100)
    fitted = LecoClassifier(street, steps=20).fit(X, names["v3"])
    now = pd.DataFrame(fitted.predict_proba(X), columns=fitted.classes_)
    old = pd.DataFrame(fitted.predict_proba(X, "v1"), columns=fitted.classes_at("v1"))
    assert list(now) == sorted(street["v3"].classes)
    assert list(old) == sorted(street["v1"].classes)
    np.testing.assert_allclose(now.sum(axis=1), 1)
    for name in old:
        expected = sum(now[new] * V1.get(new, [new]).count(name) / len(V1.get(new, [new])) for new in now)
        np.testing.assert_allclose(old[name], expected, atol=1e-7)
    assert (fitted.predict(X) == now.idxmax(axis=1)).all()
    assert (fitted.predict(X, "v1") == old.idxmax(axis=1)).all()


def test_what_had_no_name_is_predicted_as_none():
    ontology = {
        "versions": [{"name": "v1", "classes": ["cat"]}, {"name": "v2", "classes": {"cat": None, "drone": None}}]
    }
    X, y = make_blobs(60, centers=2, random_state=0)
    by_name = LecoClassifier(ontology, steps=60).fit(X, np.array(["cat", "drone"])[y])
    by_index = LecoClassifier(ontology, steps=60).fit(X, y)
    assert by_name.score(X, np.array(["cat", "drone"])[y]) > 0.9
    assert set(by_name.predict(X, "v1")) == {"cat", ""}
    assert set(by_index.predict(X, "v1")) == {0, -1}
    np.testing.assert_array_equal(by_name.predict(X, "v1") == "", by_index.predict(X) == 1)
    np.testing.assert_allclose(by_name.predict_proba(X, "v1")[:, 0], by_name.predict_proba(X)[:, 0])


def test_measured_shares_weigh_the_evidence():
    def between(of_a, of_b):
        """The probability of `a` halfway between `a` and `b`, where all samples were called `x`."""
        shares = {"a": {"x": of_a, "y": 1 - of_a}, "b": {"x": of_b, "y": 1 - of_b}}
        classes = {name: {"from": origin} for name, origin in shares.items()}
        ontology = {"versions": [{"name": "v1", "classes": ["x", "y"]}, {"name": "v2", "classes": classes}]}
        X = np.array([[-1.0], [1.0]] * 4 + [[0.0]] * 40)
        fitted = LecoClassifier(ontology, steps=100).fit(X, ["a", "b"] * 4 + ["x"] * 40, ["v2"] * 8 + ["v1"] * 40)
        return fitted.predict_proba([[0.0]])[0, 0]

    assert between(0.9, 0.1) > 0.65 > between(0.5, 0.5) > 0.35 > between(0.1, 0.9)


def test_many_old_labels_help_a_few_new_ones():
    """Cats and dogs differ in one dimension, breeds in another; eighteen more are noise."""

    def samples(count, seed):
        generator = np.random.default_rng(seed)
        new = generator.choice(["poodle", "husky", "cat"], count)
        X = generator.normal(size=(count, 20))
        X[:, 0] += 3 * (new == "cat")
        X[:, 1] += 3 * (new == "husky")
        return X, np.where(new == "cat", "cat", "dog"), new

    X, old, new = samples(300, seed=0)
    test, _, true = samples(1_000, seed=1)
    y, versions = np.r_[new[:12], old[12:]], np.repeat(["v2", "v1"], [12, 288])
    alone = LecoClassifier(PETS, method="ce", steps=100).fit(X[:12], y[:12]).score(test, true)
    assert LecoClassifier(PETS, steps=100).fit(X, y, versions).score(test, true) > alone + 0.05


@pytest.mark.parametrize("method", ALL_METHODS, ids=str)
def test_every_method_learns_from_labels_of_all_versions_and_none(method):
    X, y, versions = evolving()
    fitted = LecoClassifier(PETS, method=str(method), model="mlp", steps=12).fit(X, y, versions)
    assert fitted.score(X, pets()[2]) > 0.5
    assert set(fitted.predict(X, "v1")) <= {"dog", "cat"}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("lpl", {}),
        ("joint+st-hard", {}),
        ("lpl+st-soft/cond", {}),
        ("lpl", {"adjust": 1.5}),
        ("lpl+st-hard/cond", {"balance": True, "adjust": 0.5}),
    ],
)
def test_a_fit_is_the_last_stage_of_the_same_experiment(method, settings, tmp_path):
    X, y, versions = evolving()
    fitted = LecoClassifier(PETS, method=method, model="mlp", head_start=True, steps=5, **settings)
    fitted.fit(X, y, versions)
    scaled = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0)).float()
    labels = read_labels(y, versions, Ontology.from_dict(PETS))
    data = ArrayDataset(scaled, labels, np.full(len(X), "train"), normalise=scale_to_ten)
    periods = data.unvalidated()
    stages, store = plan(fitted._procedure(), periods), Store(tmp_path)
    for stage in stages.stages:
        run_stage(stage, periods, store, Machine("cpu"), lambda *_: None)
    expected = stored_network(stages.periods[-1][0], periods, store).state_dict()
    found = fitted.network_.state_dict()
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name].float(), expected[name])


def test_what_a_linear_model_does_not_take_over_is_not_trained(monkeypatch):
    trained = []
    monkeypatch.setattr(
        "leco.estimator.run_stage", lambda stage, *rest: trained.append(str(stage)) or run_stage(stage, *rest)
    )
    X, y, versions = evolving()

    def fit(**changes):
        trained.clear()
        LecoClassifier(PETS, steps=1, **changes).fit(X, y, versions)
        return [name.split(",")[0] for name in trained]

    assert fit() == ["TP1 lpl"]
    assert fit(method="lpl+st-hard") == ["TP1 ce", "TP1 lpl+st-hard"]
    assert fit(method="joint") == fit(method="joint", strategy="freeze") == ["TP0 ce", "TP1 joint"]
    assert fit(head_start=True) == fit(model="mlp") == ["TP0 ce", "TP1 lpl"]
    assert fit(model="mlp", strategy="scratch") == ["TP1 lpl"]


def test_missing_labels_are_spelled_in_any_way():
    X, y, versions = evolving()
    expected = LecoClassifier(PETS, steps=5, method="lpl+pl").fit(X, y, versions).predict_proba(X)
    for none in (None, np.nan, pd.NA, ""):
        labels = [label or none for label in y]
        names = [version if label else none for label, version in zip(y, versions, strict=True)]
        for given in (labels, np.array(labels, dtype=object), pd.Series(labels, dtype=object)):
            fitted = LecoClassifier(PETS, steps=5, method="lpl+pl").fit(X, given, names)
            np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    masked = np.ma.array(np.where(y == "", "cat", y), mask=y == "")
    np.testing.assert_array_equal(
        LecoClassifier(PETS, steps=5, method="lpl+pl").fit(X, masked, versions).predict_proba(X), expected
    )


def test_unlabelled_samples_are_used_by_pseudo_labels_alone():
    X, _, new = pets(200)
    y = np.where(np.arange(200) < 20, new, "")

    def probs(method):
        return LecoClassifier(PETS, method=method, steps=60).fit(X, y).predict_proba(X)

    assert np.abs(probs("ce+fixmatch") - probs("ce")).max() > 0.01
    with pytest.raises(LecoError, match="no sample is labelled in the newest version v2"):
        LecoClassifier(PETS).fit(X, [None] * 200)


def test_indices_in_indices_out():
    X, old, new = pets()
    ontology = Ontology.from_dict(PETS)
    codes = {name: ontology[name].encode(y) for name, y in (("v1", old), ("v2", new))}
    by_name = LecoClassifier(ontology, steps=30).fit(X, new)
    for y in (codes["v2"], codes["v2"].tolist(), codes["v2"].astype(float)):
        by_index = LecoClassifier(ontology, steps=30).fit(X, y)
        assert by_index.classes_.tolist() == [0, 1, 2]
        np.testing.assert_array_equal(by_index.predict(X, "v1"), ontology["v1"].encode(by_name.predict(X, "v1")))
        assert by_index.score(X, codes["v1"], "v1") == by_name.score(X, old, "v1")
        assert by_index.score(X, new) == by_name.score(X, codes["v2"])  # either will do


def test_an_ontology_is_an_object_a_dictionary_or_a_file(tmp_path):
    X, y, versions = evolving()
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(PETS))
    fitted = [LecoClassifier(o, steps=3).fit(X, y, versions) for o in (PETS, Ontology.from_dict(PETS), file, str(file))]
    for other in fitted[1:]:
        np.testing.assert_array_equal(other.predict_proba(X), fitted[0].predict_proba(X))
    assert fitted[0].classes_.tolist() == ["cat", "husky", "poodle"]


def test_a_fit_follows_from_its_seed_and_disturbs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, versions = evolving()
    estimator = LecoClassifier(PETS, method="lpl+st-hard/cond", model="mlp", steps=5)
    expected = estimator.fit(X, y, versions).predict_proba(X)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads()  # noqa: NPY002
    with torch.inference_mode():
        clone(estimator).fit(X, y, versions).predict_proba(X)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    assert torch.get_num_threads() == states[2]
    torch.manual_seed(5)
    with torch.no_grad():
        np.testing.assert_array_equal(estimator.fit(X, y, versions).predict_proba(X), expected)
    other = clone(estimator).set_params(random_state=1).fit(X, y, versions)
    assert np.abs(other.predict_proba(X) - expected).max() > 1e-3
    assert not list(tmp_path.iterdir())


def test_threads_do_not_disturb_each_other():
    X, y, versions = evolving()
    estimators = [LecoClassifier(PETS, model="mlp", steps=10, random_state=seed) for seed in (0, 1, 0, 1)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda e: e.fit(X, y, versions).predict_proba(X), estimators))
    for estimator, probs in zip(estimators[:2], found[2:], strict=True):
        np.testing.assert_array_equal(clone(estimator).fit(X, y, versions).predict_proba(X), probs)
        np.testing.assert_array_equal(estimator.predict_proba(X), probs)


def test_it_is_fitted_alone_under_torchrun(monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    this_process.cache_clear()
    assert this_process().world_size == 1


def test_a_fitted_classifier_is_pickled():
    X, y, versions = evolving()
    fitted = LecoClassifier(Ontology.from_dict(PETS), method="joint", steps=3).fit(X, y, versions)
    buffer = BytesIO()
    joblib.dump(fitted, buffer)
    buffer.seek(0)
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(buffer)):
        for version in ("v1", "v2"):
            np.testing.assert_array_equal(copy.predict_proba(X, version), fitted.predict_proba(X, version))
        assert copy.predict(X, "v1").tolist() == fitted.predict(X, "v1").tolist()


def test_a_grid_is_searched_over_methods_with_newest_samples_held_out():
    X, y, versions = evolving(120)
    new = np.flatnonzero((versions == "v2") & (y != ""))
    folds = [
        (np.setdiff1d(np.arange(120), new[test]), new[test]) for _, test in StratifiedKFold(3).split(X[new], y[new])
    ]
    grid = {"leco__method": ["ce", "lpl", "lpl+st-hard/cond"]}
    pipeline = make_pipeline(MinMaxScaler(), LecoClassifier(PETS, steps=20))
    pipeline.steps[-1] = ("leco", pipeline.steps[-1][1])
    search = GridSearchCV(pipeline, grid, cv=folds, scoring=["accuracy", "neg_log_loss"], refit="accuracy")
    search.fit(X, y, leco__versions=versions)
    assert search.best_score_ > 0.8
    assert len(set(search.cv_results_["mean_test_neg_log_loss"])) == 3
    best = search.best_estimator_
    assert set(best.predict(X, version="v1")) == {"dog", "cat"}
    true = pets(120)[2]
    assert log_loss(true, best.predict_proba(X)) < 0.5  # columns are sorted, as scikit-learn's metrics take them
    assert best.score(X, true) > 0.8


def test_samples_without_a_label_are_not_scored():
    X, y, versions = evolving()
    fitted = LecoClassifier(PETS, steps=20).fit(X, y, versions)
    new = pets()[2]
    some = np.where(np.arange(60) < 30, new, "")
    assert fitted.score(X, some) == fitted.score(X[:30], new[:30])
    weights = np.where(fitted.predict(X) == new, 3.0, 1.0)
    assert fitted.score(X, new, sample_weight=weights) >= fitted.score(X, new)
    with pytest.raises(LecoError, match="no sample has a label of v2"):
        fitted.score(X, [""] * 60)


def test_a_networks_features_may_keep_their_proportions():
    X, y = make_blobs(100, n_features=20, random_state=0)
    fitted = LecoClassifier(standardise=False, steps=60).fit(X, y)
    assert fitted.score(X, y) > 0.9
    np.testing.assert_allclose(fitted.predict_proba(X), fitted.predict_proba(1e3 * X))  # lengths do not matter


WRONG = {
    "a label of another version": (
        {},
        {"y": ["husky"] + ["dog"] * 59, "versions": "v1"},
        "label at position 0: 'husky' is not a class of v1",
    ),
    "a misspelt label": (
        {},
        {"y": ["cat"] * 58 + ["husy", "cat"], "versions": None},
        "label at position 58: 'husy' is not a class of v2; did you mean 'husky'?",
    ),
    "an index that is none": (
        {},
        {"y": [0] * 59 + [3], "versions": None},
        "label 3 at position 59 is not a class index of v2",
    ),
    "a version that is none": ({}, {"versions": ["v3"] * 60}, "'v3' is not a version of pets"),
    "a label without version": ({}, {"versions": [None] * 60}, "label 'husky' at position 1 has no version"),
    "versions without an ontology": ({"ontology": None}, {}, "`versions` need an ontology"),
    "only old labels": ({}, {"y": ["dog"] * 60, "versions": "v1"}, "no sample is labelled in the newest version v2"),
    "too few versions": ({}, {"versions": ["v2"] * 59}, "inconsistent numbers of samples: [60, 59]"),
    "too few labels": ({}, {"y": ["cat"] * 59}, "inconsistent numbers of samples: [60, 59]"),
    "no labels": ({}, {"y": None}, "requires y to be passed, but the target y is None"),
    "labels in two columns": ({}, {"y": [["cat", "dog"]] * 60}, "y should be a 1d array"),
    "a feature that is no number": ({}, {"X": np.full((60, 3), np.nan)}, "Input X contains NaN"),
    "one feature row": ({}, {"X": np.zeros(60)}, "Expected 2D array, got 1D array"),
    "features beyond all scales": ({}, {"X": pets()[0] * 1e200}, "are too large to be standardised"),
    "an unknown method": ({"method": "lpll"}, {}, "'lpll' is not a method; did you mean 'lpl'?"),
    "an unknown strategy": ({"strategy": "thaw"}, {}, "strategy: Input should be 'finetune'"),
    "an unknown model": ({"model": "lineer"}, {}, "'lineer' is not a backbone; did you mean 'linear'?"),
    "a model of images": ({"model": "resnet18"}, {}, "resnet18 takes images, but these are feature vectors"),
    "no steps": ({"steps": 0}, {}, "steps: Input should be greater than or equal to 1, not 0"),
    "an odd batch": ({"batch_size": 7}, {}, "batch_size: must be even, not 7"),
    "several rates": ({"learning_rate": (0.1, 0.2)}, {}, "learning_rate: must be one number, not (0.1, 0.2)"),
    "a rate too high": ({"learning_rate": 1e30}, {}, "try a smaller learning rate"),
    "no ontology": ({"ontology": 7}, {}, "ontology: must be a leco.Ontology, a path or a mapping, not 7"),
    "a file that is not there": ({"ontology": "nowhere.yaml"}, {}, "nowhere.yaml"),
    "a word for a truth": ({"standardise": "no"}, {}, "standardise: must be True or False, not 'no'"),
    "a number for a truth": ({"head_start": 2}, {}, "head_start: must be True or False, not 2"),
    "another number for a truth": ({"balance": 1.0}, {}, "balance: must be True or False, not 1.0"),
    "too much adjusted": ({"adjust": 3}, {}, "adjust: Input should be less than or equal to 2, not 3"),
    "many numbers": ({"adjust": np.zeros((50, 50))}, {}, "adjust: Input should be a valid number, not array([[0."),
    "many truths": ({"balance": np.zeros((50, 50))}, {}, "balance: must be True or False, not array([[0."),
    "no seed": ({"random_state": -1}, {}, "Seed must be between"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(case):
    parameters, arguments, message = WRONG[case]
    X, y, versions = evolving()
    estimator = LecoClassifier(**{"ontology": PETS, "steps": 3, **parameters})
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        estimator.fit(**{"X": X, "y": y, "versions": versions, **arguments})
    if isinstance(refused.value, LecoError):
        assert "\n" not in str(refused.value)


def test_labels_of_removed_classes_are_refused_before_training(street):
    X, names = street_samples(street, 60)
    y = names["v3"].astype(object)
    y[:3] = "fax"
    with pytest.raises(
        LecoError, match="label 'fax' of v1 is impossible: no class of v3 comes from it; remove these 3"
    ):
        LecoClassifier(street).fit(X, y, ["v1"] * 3 + ["v3"] * 57)


def test_wrong_predictions_are_refused():
    X, y, versions = evolving()
    fitted = LecoClassifier(PETS, steps=2).fit(X, y, versions)
    with pytest.raises(LecoError, match="'v3' is not a version of pets"):
        fitted.predict(X, "v3")
    for wrong in ([], 2, {"v1"}):
        with pytest.raises(LecoError, match="version: must be the name of a version, not "):
            fitted.predict(X, version=wrong)
    with pytest.raises(ValueError, match="X has 2 features, but LecoClassifier is expecting 3"):
        fitted.predict_proba(X[:, :2])
    with pytest.raises(LecoError, match="label at position 0: 'dog' is not a class of v2"):
        fitted.score(X, ["dog"] * 60)
    with pytest.raises(LecoError, match="'v2' is not a version of y"):
        LecoClassifier(steps=2).fit(X, pets()[1]).predict(X, "v2")


@pytest.mark.data
def test_old_labels_of_birds_help_to_tell_species_apart(data_root):
    """Eight labels of each species, and as many samples each with orders and families."""
    if not (data_root / "cub200-features").is_dir():
        pytest.skip(f"no features of CUB in {data_root}")
    benchmark = load("cub-leco", data_root)
    split = benchmark.split(0)
    samples = torch.cat([period.train for period in split.periods])
    versions = np.repeat([p.version for p in split.periods], [len(p.train) for p in split.periods])
    handles = {v.name: np.array(v.handles) for v in benchmark.ontology.versions}
    y = np.concatenate([handles[p.version][benchmark.pool.labels[p.version].values[p.train]] for p in split.periods])
    X, test = benchmark.pool.inputs.values[samples].numpy(), benchmark.test.inputs.values.numpy()
    true = handles["species"][benchmark.test.labels["species"].values]
    new = versions == "species"
    only_new = LecoClassifier(benchmark.ontology, method="ce").fit(X[new], y[new])
    everything = LecoClassifier(benchmark.ontology, method="lpl").fit(X, y, versions)
    assert everything.score(test, true) > only_new.score(test, true) + 0.01
    assert everything.score(test, handles["order"][benchmark.test.labels["order"].values], "order") > 0.8

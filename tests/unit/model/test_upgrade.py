"""A model for a new version: what it answered in the old ones, it still answers; and it is a start for training."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tests.trainings import model_of, train_digits
from torch import nn
from typer.testing import CliRunner

from leco import LecoError, Ontology
from leco.cli.main import app
from leco.data.benchmarks import digits
from leco.dataset.periods import Periods
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.run import make_network, previous_network, run_stage
from leco.experiments.stages import Plan, plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.model.bundle import Bundle, read_bundle
from leco.models.heads import start_from_parents

SHORT = {"training.batches.steps": "3", "training.batches.evaluate_every": "3"}
GONE_ON = {
    "v3": {
        "zero": {"renamed": "0"},
        **{f"1{kind}": {"from": "1"} for kind in "abc"},  # split into three
        "2": None,
        "2-with-loop": {"from": "2"},  # carved
        **{str(digit): None for digit in range(3, 10)},
        "letter": None,  # brand-new
    },
    "v4": {
        "zero": None,
        "1ab": {"from": "1a"},
        "1b-serif": {"from": "1b"},
        "1b-plain": {"from": "1b"},
        "1c": None,
        "2": None,
        "2-with-loop": None,
        **{str(digit): None for digit in range(3, 10)},
        "letter": None,
    },
}


def longer(*names: str, **changes: dict) -> Ontology:
    content = digits.ontology().to_dict()
    content["versions"] += [{"name": name, "classes": (GONE_ON | changes)[name]} for name in names]
    return Ontology.from_dict(content)


def inputs() -> torch.Tensor:
    return torch.randint(0, 256, (40, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def stored(bundle: Bundle, ontology: Ontology, folder: Path) -> Bundle:
    return read_bundle(model_of(bundle).upgrade(ontology).save(folder))


def assert_same_at(version: str, new: Bundle, old: Bundle) -> None:
    probs = [
        b.ontology.transition(b.description.newest, version).project(model_of(b).predictor.probs(inputs()))
        for b in (new, old)
    ]
    torch.testing.assert_close(*probs, rtol=1e-5, atol=2e-7)


@pytest.mark.parametrize("names", [("v3",), ("v3", "v4")])
def test_answers_in_old_versions_stay_what_they_were(new, names, tmp_path):
    upgraded = stored(new, longer(*names), tmp_path / "b")
    assert upgraded.description.versions == ("v1", "v2", *names)
    assert upgraded.description.trained == "v2"
    for version in ("v1", "v2"):
        assert_same_at(version, upgraded, new)
    probs = model_of(upgraded).predictor.probs(inputs())
    newest = upgraded.ontology.newest
    assert probs[:, newest.index("letter")].max() < 1e-7  # nothing is known of it
    expected = model_of(new).predictor.probs(inputs())
    torch.testing.assert_close(probs[:, newest.index("zero")], expected[:, 0])
    if names == ("v3",):
        for kind in "abc":
            torch.testing.assert_close(probs[:, newest.index(f"1{kind}")], expected[:, 1] / 3)
    else:
        torch.testing.assert_close(probs[:, newest.index("1b-serif")], expected[:, 1] / 4)


def test_a_model_of_the_first_version_alone_goes_on(old, new, tmp_path):
    upgraded = stored(old, digits.ontology(), tmp_path / "b")
    assert_same_at("v1", upgraded, old)
    assert upgraded.ontology.fingerprint == new.ontology.fingerprint
    twice = stored(upgraded, longer("v3"), tmp_path / "c")
    assert twice.description.trained == "v1"
    assert_same_at("v1", twice, old)
    text = (twice.folder / "README.md").read_text()
    assert "It was trained for v1 and upgraded since" in text
    assert "Measured before the upgrade" in text


def test_a_model_with_a_head_for_each_version_keeps_them(tmp_path):
    joint = read_bundle(train_digits(tmp_path, SHORT, method="joint").folders[1])
    assert joint.description.heads == ("v1", "v2")
    upgraded = stored(joint, longer("v3"), tmp_path / "b")
    assert upgraded.description.heads == ("v1", "v2", "v3")
    assert_same_at("v2", upgraded, joint)
    network, before = upgraded.network(), joint.network()
    assert torch.equal(network.heads[0].weight, before.heads[0].weight)


def test_answers_of_a_segmenter_stay_what_they_were(segmenter, tmp_path):
    bundle, _ = segmenter
    content = bundle.ontology.to_dict()
    content["versions"].append(
        {"name": "v3", "classes": {"bright": None, "grey": None, "ink": {"from": "black"}, "night": {"from": "black"}}}
    )
    upgraded = stored(bundle, Ontology.from_dict(content), tmp_path / "b")
    image = torch.randint(0, 256, (1, 3, 24, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    probs = [
        b.ontology.transition(b.description.newest, "v2").project(model_of(b).predictor.probs(image))
        for b in (upgraded, bundle)
    ]
    torch.testing.assert_close(*probs, rtol=1e-5, atol=2e-7)


MERGED = {**{str(digit): None for digit in (0, 2, 4, 6, 7, 8, 9)}, "3-or-5": {"from": ["3", "5"]}, "letter": None}


def test_what_was_surely_one_of_those_merged_is_now_surely_what_they_became(new, tmp_path):
    ontology = longer("v3", v3=MERGED)  # and 1 is removed
    images = torch.from_numpy((load_digits().images * 15).astype(np.uint8))[:, None]
    before, after = (model_of(b).predictor.probs(images) for b in (new, stored(new, ontology, tmp_path / "b")))
    merged, letter = (ontology.newest.index(name) for name in ("3-or-5", "letter"))
    for parent in (3, 5):
        sure = before[:, parent] > 0.9
        assert sure.sum() > 50
        assert (after[sure].argmax(dim=1) == merged).double().mean() > 0.9
    assert after[:, letter].max() < 1e-7  # also where what was removed is by far the likeliest
    for digit in (0, 2, 9):
        sure = before[:, digit] > 0.9
        assert (after[sure].argmax(dim=1) == ontology.newest.index(str(digit))).double().mean() > 0.95


def merged_head(weight: torch.Tensor, bias: torch.Tensor, origins: object) -> nn.Linear:
    old, new = nn.Linear(weight.shape[1], 10), nn.Linear(weight.shape[1], len(MERGED))
    old.load_state_dict({"weight": weight, "bias": bias})
    start_from_parents(old, new, longer("v3", v3=MERGED | {"3-or-5": {"from": origins}}), "v2", "v3")
    return new


@pytest.mark.parametrize("origins", [["3", "5"], {"3": 0.7, "5": 0.3}, ["3", "5", "1"]])
def test_a_merged_class_is_as_likely_as_each_of_its_parents_was(origins):
    head, row = merged_head(10 * torch.eye(10), torch.zeros(10), origins), list(MERGED).index("3-or-5")
    head.bias.data[-1] = -100  # the letter, which has no past
    for digit in range(10):  # an input that was surely this digit
        probs = head(torch.eye(10)[digit]).softmax(dim=0)
        if str(digit) in origins:
            assert probs[row] > 0.95
        elif digit != 1:
            assert probs.argmax() == list(MERGED).index(str(digit))
    together = head(torch.zeros(10))[[0, row]]  # nothing is known: as likely as all its parents
    number = 1.84 if isinstance(origins, dict) else len(origins)
    assert (together[1] - together[0]).exp().item() == pytest.approx(number, rel=0.01)


def test_a_class_that_nearly_all_of_a_merged_one_was_is_taken_over():
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(10, 4, generator=generator), torch.randn(10, generator=generator)
    head, row = merged_head(weight, bias, {"3": 0.9999, "5": 0.0001}), list(MERGED).index("3-or-5")
    torch.testing.assert_close(head.weight[row], weight[3], atol=0.01, rtol=0)
    torch.testing.assert_close(head.bias[row], bias[3], atol=0.01, rtol=0)


def test_where_every_class_is_brand_new_all_are_as_likely(new, tmp_path):
    upgraded = stored(new, longer("v3", v3={"a": None, "b": None}), tmp_path / "b")
    torch.testing.assert_close(model_of(upgraded).predictor.probs(inputs()), torch.full((40, 2), 0.5))


OTHER = {
    "a class renamed": (("loop", "ring"), "v1: 'loop' was renamed to 'ring'"),
    "a version renamed": (("name: v2", "name: v2b"), "version v2 is missing"),
    "another parent": (("8: {from: loop}", "8: {from: straight}"), "v2: '8' comes from 'straight', not 'loop'"),
}


@pytest.mark.parametrize("case", OTHER)
def test_another_history_is_refused_and_the_difference_named(case, new, tmp_path):
    (old_text, new_text), message = OTHER[case]
    longer("v3").save(tmp_path / "o.yaml")
    text = (tmp_path / "o.yaml").read_text().replace('"8"', "8").replace(old_text, new_text)
    (tmp_path / "o.yaml").write_text(text.replace(" 8:", ' "8":'))
    with pytest.raises(LecoError, match="does not match the ontology of") as refused:
        model_of(new).upgrade(Ontology.load(tmp_path / "o.yaml"))
    assert message in str(refused.value)


def test_there_must_be_a_new_version(new):
    with pytest.raises(LecoError, match="is already a model of v2"):
        model_of(new).upgrade(digits.ontology())


def test_the_command_says_what_it_did(new, tmp_path):
    longer("v3", v3=GONE_ON["v3"] | {"3": {"from": ["3", "5"]}, "5": {"from": []}}).save(tmp_path / "o.yaml")
    arguments = ["upgrade", str(new.folder), "--ontology", str(tmp_path / "o.yaml"), "-o", str(tmp_path / "b")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.exception
    assert "from v2 (10 classes) to v3 (14 classes)" in result.stdout
    assert "note: merged: 3, 5: predictions at v2 change there" in result.stdout
    assert read_bundle(tmp_path / "b").metrics == new.metrics


def started(start: Path, folder: Path, **changes: object) -> tuple[Periods, Plan]:
    wanted = experiment(
        "digits-leco", {"method": "lpl+st-hard/cond", "size": 100, "start": str(start), **changes}, SHORT
    )
    periods = periods_of(wanted, folder)
    return periods, plan(wanted, periods)


def test_training_starts_from_a_bundle(old, tmp_path):
    upgraded = stored(old, digits.ontology(), tmp_path / "b")
    for bundle in (old, upgraded):
        periods, stages = started(bundle.folder, tmp_path)
        assert [stage.period for stage in stages.stages] == [1, 1]  # a teacher and its student; TP0 is not trained
        teacher, student = stages.stages
        for stage in (teacher, student):
            assert stage.config()["start"] == bundle.digest
            previous = previous_network(stage, periods, Store(tmp_path / "runs"))
            network = make_network(stage, periods, previous).eval()
            probs = network(periods.normalise(inputs()))["v2"].softmax(dim=1)
            expected = model_of(old).predictor.probs(inputs())
            torch.testing.assert_close(periods.ontology.transition("v2", "v1").project(probs), expected)
            for name, tensor in old.network().backbone.state_dict().items():
                assert torch.equal(network.backbone.state_dict()[name], tensor)
    store = Store(tmp_path / "runs")
    for stage in stages.stages:
        run_stage(stage, periods, store, Machine("cpu"), lambda *_: None)
    config = json.loads((store.stages / student.fingerprint / "config.json").read_text())
    assert config["start"] == upgraded.digest


def test_a_stage_is_another_where_its_start_is(old, new, tmp_path):
    upgraded = stored(old, digits.ontology(), tmp_path / "b")
    names = [started(bundle.folder, tmp_path)[1].periods[-1][0].fingerprint for bundle in (old, upgraded)]
    plain = experiment("digits-leco", {"method": "lpl+st-hard/cond", "size": 100}, SHORT)
    names.append(plan(plain, periods_of(plain, tmp_path)).periods[-1][0].fingerprint)
    assert len(set(names)) == 3


def test_a_start_says_which_model_is_trained(old, tmp_path):
    _, stages = started(old.folder, tmp_path)
    assert stages.stages[0].training.network.backbone == "mlp"
    wanted = experiment("digits-leco", {"start": str(old.folder)}, {"training.network.backbone": "linear"})
    with pytest.raises(LecoError, match="the backbone of this model is mlp, but that of the experiment is linear"):
        periods_of(wanted, tmp_path)


def test_a_start_that_does_not_fit_is_refused(old, new, vectors, tmp_path):
    with pytest.raises(LecoError, match="is already a model of v2; the data have no later version"):
        started(new.folder, tmp_path)
    with pytest.raises(
        LecoError, match="the task of this model is features, but that of the experiment is classification"
    ):
        started(vectors[0].folder, tmp_path)
    with pytest.raises(LecoError, match="`strategy: scratch` starts from none"):
        started(old.folder, tmp_path, strategy="scratch")
    with pytest.raises(LecoError, match="no such bundle"):
        started(tmp_path / "nowhere", tmp_path)
    later = stored(new, longer("v3"), tmp_path / "b")
    with pytest.raises(LecoError, match=r"the experiment does not match the ontology of .*: version v3 is missing"):
        started(later.folder, tmp_path)


def test_a_start_is_named_beside_the_experiment(old, tmp_path):
    (tmp_path / "experiment.yaml").write_text("benchmark: digits-leco\nstart: models/old\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "old").symlink_to(old.folder)
    assert experiment(str(tmp_path / "experiment.yaml"), {}, {}).start == tmp_path / "models" / "old"

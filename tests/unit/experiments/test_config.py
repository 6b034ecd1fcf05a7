"""Experiments as they are written: benchmarks, files, settings, and what is wrong with them."""

import pytest

from leco import LecoError
from leco.experiments.config import Training, experiment
from leco.experiments.recipes import defaults


def test_the_papers_settings_are_the_defaults():
    cifar = Training(**defaults("cifar-leco-10k", "classification", "paper"))
    assert (cifar.model, cifar.steps, cifar.batch_size, cifar.weight_decay) == ("wrn-28-2", 160_000, 128, 5e-4)
    assert (cifar.momentum, cifar.average, cifar.evaluate_every, cifar.norm_momentum) == (0.9, 0.999, 1_000, 0.001)
    assert cifar.learning_rate == (0.6, 0.06, 0.006, 0.0006)
    inat = Training(**defaults("inat-leco", "classification", "paper"))
    assert (inat.model, inat.steps, inat.batch_size, inat.weight_decay) == ("resnet50", 250_000, 60, 1e-3)
    assert inat.learning_rate == (0.01, 0.001, 0.0001)


def test_a_file_says_what_an_option_may_change(tmp_path):
    file = tmp_path / "experiment.yaml"
    file.write_text(
        "benchmark: cub-leco\nmethod: lpl\nseed: 3\ntraining:\n  steps: 50\n"
        "  learning_rate: [0.5, 1e-2]\n  nesterov: yes\n"
    )
    found = experiment(str(file), {"seed": None, "method": "ce"}, {"training.steps": "70"})
    assert (found.method, found.seed, found.training.steps) == ("ce", 3, 70)
    assert found.training.learning_rate == (0.5, 0.01)
    assert found.training.nesterov is True
    assert found.training.model == "linear"  # of the recipe


BAD_FILES = {
    "unknown key": ("benchmark: cub-leco\nmetod: ce\n", ":2: metod: there is no such setting; did you mean 'method'"),
    "unknown training key": (
        "benchmark: cub-leco\ntraining:\n  stesp: 4\n",
        ":3: training.stesp: there is no such setting; did you mean 'steps'",
    ),
    "senseless value": (
        "benchmark: cub-leco\ntraining: {steps: many}\n",
        ":2: training.steps: Input should be a valid",
    ),
    "no data": ("method: ce\n", "say either `benchmark`, or `data` with `manifest` and `ontology`"),
    "unknown benchmark": ("benchmark: cub-lecco\n", "'cub-lecco' is no benchmark; did you mean 'cub-leco'"),
    "unknown method": ("benchmark: cub-leco\nmethod: st-hard\n", "'st-hard' is no method"),
    "unknown budget": ("benchmark: cub-leco\nbudget: huge\n", "'huge' is none"),
    "incomplete data": ("data: {manifest: labels.csv}\n", ":1: data.ontology: is missing"),
    "annotation of own data": (
        "data: {manifest: a.csv, ontology: o.yaml}\nannotation: all-fine\n",
        "`annotation: all-fine` is for benchmarks",
    ),
    "no table": ("- a\n- b\n", "an experiment is a table"),
    "no yaml": ("a: b: c\n", ":1: this is not YAML"),
    "a list of settings": ("benchmark: cub-leco\ntraining: [1]\n", "training: must be a table of settings"),
    "no learning rate": ("benchmark: cub-leco\ntraining: {learning_rate: []}\n", "training.learning_rate: "),
    "a rate of infinity": ("benchmark: cub-leco\ntraining: {learning_rate: .inf}\n", ":2: training.learning_rate.0: "),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_wrong_file_is_refused_with_its_place(case, tmp_path):
    text, message = BAD_FILES[case]
    file = tmp_path / "experiment.yaml"
    file.write_text(text)
    with pytest.raises(LecoError) as refused:
        experiment(str(file), {}, {})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)

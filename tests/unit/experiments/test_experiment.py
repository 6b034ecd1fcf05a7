"""Reading experiments: benchmarks, files, settings, and errors in them."""

import json

import pytest

from leco import LecoError
from leco.experiments.experiment import ExperimentError, experiment


def test_the_papers_settings_are_the_defaults():
    cifar = experiment("cifar-leco-10k", {}, {}).training
    assert (cifar.network.backbone, cifar.batches.steps, cifar.batches.size) == ("wrn-28-2", 160_000, 128)
    assert (cifar.optimiser.weight_decay, cifar.optimiser.momentum, cifar.average.decay) == (5e-4, 0.9, 0.999)
    assert (cifar.batches.evaluate_every, cifar.network.norm_momentum) == (1_000, 0.001)
    assert cifar.optimiser.learning_rate == (0.6, 0.06, 0.006, 0.0006)
    inat = experiment("inat-leco", {}, {}).training
    assert (inat.network.backbone, inat.batches.steps, inat.batches.size) == ("resnet50", 250_000, 60)
    assert (inat.optimiser.weight_decay, inat.optimiser.learning_rate) == (1e-3, (0.01, 0.001, 0.0001))


def test_an_option_overrides_a_file(tmp_path):
    file = tmp_path / "experiment.yaml"
    file.write_text(
        "benchmark: cub-leco\nmethod: lpl\nseed: 3\ntraining:\n  batches: {steps: 50}\n"
        "  optimiser:\n    learning_rate: [0.5, 1e-2]\n    nesterov: yes\n"
    )
    found = experiment(str(file), {"seed": None, "method": "ce"}, {"training.batches.steps": "70"})
    assert (found.method, found.seed, found.training.batches.steps) == ("ce", 3, 70)
    assert found.training.optimiser.learning_rate == (0.5, 0.01)
    assert found.training.optimiser.nesterov is True
    assert found.training.network.backbone == "linear"  # of the recipe


BAD_FILES = {
    "unknown key": ("benchmark: cub-leco\nmetod: ce\n", ":2: metod: is not a setting; did you mean 'method'"),
    "unknown training key": (
        "benchmark: cub-leco\ntraining:\n  batches:\n    stesp: 4\n",
        ":4: training.batches.stesp: is not a setting; did you mean 'steps'",
    ),
    "senseless value": (
        "benchmark: cub-leco\ntraining: {batches: {steps: many}}\n",
        ":2: training.batches.steps: Input should be a valid",
    ),
    "no data": ("method: ce\n", "set either `benchmark`, or `data` with `manifest` and `ontology`"),
    "unknown benchmark": ("benchmark: cub-lecco\n", "'cub-lecco' is not a benchmark; did you mean 'cub-leco'"),
    "unknown method": ("benchmark: cub-leco\nmethod: st-hard\n", "'st-hard' is not a method"),
    "unknown budget": (
        "benchmark: cub-leco\nbudget: huge\n",
        "cub-leco has no budget 'huge'; valid: 'paper', 'small'",
    ),
    "incomplete data": ("data: {manifest: labels.csv}\n", ":1: data.ontology: is missing"),
    "an image size of thousands of digits": (
        f"data: {{manifest: labels.csv, ontology: o.yaml, image_size: {'9' * 5_000}}}\n",
        ":1: data.image_size: ",
    ),
    "a start with a NUL": (
        'benchmark: cub-leco\nstart: "a\\0b"\n',
        "experiment.yaml: start: must be the path of a local file or folder, not 'a\\x00b'",
    ),
    "a manifest with a NUL": (
        'data: {manifest: "a\\0b.csv", ontology: o.yaml}\n',
        "experiment.yaml: data.manifest: must be the path of a local file or folder",
    ),
    "annotation of own data": (
        "data: {manifest: a.csv, ontology: o.yaml}\nannotation: all-fine\n",
        "`annotation: all-fine` is for benchmarks",
    ),
    "transition of own data": (
        "data: {manifest: a.csv, ontology: o.yaml}\ntransition: tree\n",
        "`transition` is for benchmarks; your own data use that of their ontology",
    ),
    "budget of own data": (
        "data: {manifest: a.csv, ontology: o.yaml}\nbudget: small\n",
        "`budget` is for benchmarks; for your own data, set `training`, or use its defaults",
    ),
    "a crop beyond memory": (
        "benchmark: camvid-leco\ntraining: {segmentation: {crop: 100000}}\n",
        ":2: training.segmentation.crop: Input should be",
    ),
    "a scale beyond memory": (
        "benchmark: camvid-leco\ntraining: {segmentation: {scale: [1, 1e9]}}\n",
        "two positive factors up to 10",
    ),
    "no table": ("- a\n- b\n", "an experiment is a table"),
    "no yaml": ("a: b: c\n", ":1: not valid YAML"),
    "a list of settings": ("benchmark: cub-leco\ntraining: [1]\n", "training: must be a table of settings"),
    "no learning rate": (
        "benchmark: cub-leco\ntraining: {optimiser: {learning_rate: []}}\n",
        "training.optimiser.learning_rate: ",
    ),
    "a rate of infinity": (
        "benchmark: cub-leco\ntraining: {optimiser: {learning_rate: .inf}}\n",
        ":2: training.optimiser.learning_rate.0: ",
    ),
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


def write_own(folder, header: str, data: str = "manifest: labels.csv, ontology: o.yaml"):
    (folder / "labels.csv").write_text(f"{header}\n")
    (folder / "experiment.yaml").write_text(f"data: {{{data}}}\n")
    return experiment(str(folder / "experiment.yaml"), {}, {})


def test_own_data_get_the_settings_of_their_kind(tmp_path):
    images = write_own(tmp_path, "image,label,version")
    assert (images.training.network.backbone, images.training.batches.size) == ("resnet18", 128)
    features = write_own(tmp_path, "features,label,version")
    assert (features.training.network.backbone, features.training.learning_rate) == ("linear", 0.5)
    masks = write_own(tmp_path, "image,mask,version", "manifest: labels.csv, ontology: o.yaml, image_size: 96")
    assert (masks.training.network.backbone, masks.training.batches.size, masks.training.segmentation.window) == (
        "tiny",
        16,
        96,
    )
    assert masks.training.network.weights == "random"  # nothing is fetched that was not asked for


@pytest.mark.parametrize("name", ["missing.csv", "labels.txt", "folder.csv", "binary.csv"])
def test_a_manifest_that_cannot_be_read_is_reported_when_it_is_read(name, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "labels.txt").touch()
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "experiment.json").write_text(json.dumps({"data": {"manifest": name, "ontology": "o.yaml"}}))
    assert experiment(str(tmp_path / "experiment.json"), {}, {}).training.network.backbone == "resnet18"


def test_paths_of_own_data_are_relative_to_the_file(tmp_path):
    found = write_own(tmp_path, "image,label,version", "manifest: labels.csv, ontology: o.yaml, root: ../photos")
    assert found.data.root == tmp_path / ".." / "photos"
    found = write_own(tmp_path, "image,label,version", "manifest: labels.csv, ontology: o.yaml, root: /photos")
    assert str(found.data.root) == "/photos"
    assert write_own(tmp_path, "image,label,version").data.root is None


def test_all_problems_are_kept_although_one_line_is_printed(tmp_path):
    (tmp_path / "experiment.yaml").write_text(
        "benchmark: cub-leco\nseed: -1\nmetod: ce\ntraining: {batches: {steps: 0}}\n"
    )
    with pytest.raises(ExperimentError) as refused:
        experiment(str(tmp_path / "experiment.yaml"), {}, {})
    assert [problem.split(": ")[1] for problem in refused.value.problems] == ["seed", "training.batches.steps", "metod"]
    assert str(refused.value) == refused.value.problems[0]

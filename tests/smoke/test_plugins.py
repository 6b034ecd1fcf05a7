"""What a user's own module registers is trained, killed, resumed, bundled and used like what leco brings along."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from tests.commands import assert_refused, leco

import leco as package
from leco import LecoError
from leco.experiments.experiment import experiment
from leco.methods.method import registered
from leco.modalities import MODALITIES
from leco.registry import IMPORTED, import_modules
from leco.settings import Settings

pytestmark = pytest.mark.usefixtures("toys")
ROOT = Path(__file__).parents[2]
PARTS = {
    "batches": {"steps": 120, "evaluate_every": 40},
    "optimiser": {"name": "careful", "schedule": "triangle"},
    "finish": {"head": "nearest-mean"},
    "pseudo_labels": {"threshold": 0.3},
}
METHOD = "brier+entropy"
SETTINGS = [f"training.{part}.{name}={value}" for part, values in PARTS.items() for name, value in values.items()]
EVERYTHING = ["waves-leco", "--method", METHOD, *(word for setting in SETTINGS for word in ("--set", setting))]
LOGGED = ["--log", "lines", "--log", "broken"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "leco", "--import", "tests.toys", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """A shell in which Python finds the toys."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def call(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    found = subprocess.run(command(*arguments), cwd=cwd, env=environment(), capture_output=True, text=True, timeout=240)
    assert found.returncode == 0, found.stderr
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with `runs` and `bundle`: everything at once, through the command line, without any disturbance."""
    folder = tmp_path_factory.mktemp("toys")
    run = call("run", *EVERYTHING, *LOGGED, "--runs", "runs", "--bundle", "bundle", cwd=folder)
    (folder / "errors.txt").write_text(run.stderr)
    return folder


def stages(runs: Path) -> list[str]:
    return sorted(path.name for path in (runs / "stages").iterdir())


def assert_same(one: Path, other: Path) -> None:
    """Weights, scores and metrics agree to the last bit."""
    assert stages(one) == stages(other)
    for name in stages(one):
        here, there = one / "stages" / name, other / "stages" / name
        weights = [load_file(folder / "model.safetensors") for folder in (here, there)]
        assert all(weights[0][key].equal(weights[1][key]) for key in weights[0])
        results = [json.loads((folder / "result.json").read_text()) for folder in (here, there)]
        assert results[0]["test"] == results[1]["test"]
        assert (here / "metrics.jsonl").read_text() == (there / "metrics.jsonl").read_text()


def test_everything_is_trained_together_through_the_command_line(trained):
    last = json.loads((trained / "bundle" / "bundle.json").read_text())
    assert last["task"] == "signals"
    assert last["modules"] == ["tests.toys"]
    assert last["training"]["method"] == METHOD
    assert last["training"]["training"]["optimiser"]["name"] == "careful"
    assert last["training"]["training"]["pseudo_labels"]["threshold"] == 0.3  # a registered term may use any setting
    lines = [(trained / "runs" / "stages" / name / "lines.txt").read_text() for name in stages(trained / "runs")]
    assert any({"brier", "entropy", "kept"} <= json.loads(text.splitlines()[0])["means"].keys() for text in lines)
    model = package.load(trained / "bundle")
    assert model.scores["test"]["v2"].macc > 0.5  # four classes


def test_a_logger_that_fails_is_reported_once_and_stops_nothing(trained):
    errors = (trained / "errors.txt").read_text()
    assert errors.count("the logger broken failed and is disabled: the server does not answer") == 1
    assert len(stages(trained / "runs")) == 2


@pytest.mark.slow
def test_a_killed_run_ends_in_the_same_bits(trained, tmp_path):
    arguments = command("run", *EVERYTHING, *LOGGED, "--runs", "runs")
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=environment(LECO_SAVE_EVERY="0"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/partial/*/checkpoint-*")) and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.glob("runs/partial/*/checkpoint-*.safetensors"))
    call("run", *EVERYTHING, *LOGGED, "--runs", "runs", cwd=tmp_path)
    assert_same(trained / "runs", tmp_path / "runs")
    for name in stages(tmp_path / "runs"):
        both = [runs / "stages" / name / "lines.txt" for runs in (trained / "runs", tmp_path / "runs")]
        assert both[0].read_text() == both[1].read_text()


@pytest.mark.slow
def test_workers_of_a_grid_import_the_module_too(trained, tmp_path):
    arguments = ["--methods", METHOD, "--seeds", "0", "--jobs", "2", "--runs", "runs"]
    call("grid", "waves-leco", *EVERYTHING[3:], *arguments, cwd=tmp_path)
    assert_same(trained / "runs", tmp_path / "runs")


def test_python_trains_the_same_as_the_command_line(trained, tmp_path):
    data = package.benchmark("waves-leco")
    model = package.train(data, method=METHOD, **PARTS, store=tmp_path / "runs", log=("lines",), progress=False)
    assert stages(tmp_path / "runs") == stages(trained / "runs")
    assert model.scores == package.load(trained / "bundle").scores


def test_a_bundle_predicts_from_arrays_and_files(toys, trained, tmp_path):
    signals, labels = toys.waves(40, seed=2)
    model = package.load(trained / "bundle", device="cpu")
    probs = model.predict_proba(signals.numpy())
    assert (probs.argmax(axis=1) == labels.numpy()).mean() > 0.5
    np.save(tmp_path / "signals.npy", signals.flatten(1).numpy())
    np.testing.assert_allclose(model.predict_proba(tmp_path / "signals.npy"), probs, rtol=1e-5)
    found = leco("--import", "tests.toys", "predict", trained / "bundle", "signals.npy", "-o", "a.csv", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 41
    saved = model.save(tmp_path / "again")
    np.testing.assert_array_equal(package.load(saved, device="cpu").predict_proba(signals.numpy()), probs)


@pytest.fixture
def project(toys, tmp_path) -> Path:
    """Own signals: an experiment.yaml that names the modality."""
    signals, labels = toys.waves(80, seed=3)
    history = toys.ontology()
    np.save(tmp_path / "signals.npy", signals.flatten(1).numpy())
    rows = ["features,label,version,split"]
    for number, label in enumerate(labels.tolist()):
        name = history.newest.handles[label]
        old = number < 40
        part = "test" if number % 5 == 0 and not old else "train"
        rows.append(f"signals.npy#{number},{name.split('-')[0] if old else name},{'v1' if old else 'v2'},{part}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "ontology.json").write_text(json.dumps(history.to_dict()))
    (tmp_path / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.json, modality: signals}\nmethod: brier+entropy\n"
        "training:\n  optimiser: {name: careful, schedule: triangle}\n  finish: {head: nearest-mean}\n"
    )
    return tmp_path


def test_own_data_of_a_registered_modality_are_checked_trained_and_evaluated(toys, project):
    toy = ("--import", "tests.toys")
    for words in (
        ["check", "experiment.yaml"],
        ["run", "experiment.yaml", "--bundle", "model"],
        ["evaluate", "model", "labels.csv"],
    ):
        found = leco(*toy, *words, cwd=project)
        assert found.returncode == 0, found.stderr + found.stdout
    model = package.load(project / "model", device="cpu")
    assert model.description.shape == (toys.CHANNELS, toys.LENGTH)
    signals = np.load(project / "signals.npy")[40:].reshape(-1, toys.CHANNELS, toys.LENGTH)
    expected = signals.mean(axis=(0, 2)).tolist()
    np.testing.assert_allclose(model.description.mean, expected, rtol=0.05)  # the toy's own statistics
    from_python = package.Dataset.from_manifest(project / "labels.csv", project / "ontology.json", modality="signals")
    assert from_python.modality is MODALITIES["signals"]


def test_a_modality_may_build_on_one_of_lecos_own(project):
    """It is only for manifests that name it, and for models of its own."""
    assert package.Dataset.from_manifest(project / "labels.csv", project / "ontology.json").modality.name == "features"
    data = package.Dataset.from_manifest(project / "labels.csv", project / "ontology.json", modality="spectra")
    model = package.train(data, method="lpl", batches={"steps": 20}, store=project / "runs", progress=False)
    assert model.description.task == "spectra"
    from_path, from_data = (model.evaluate(source)["v2"] for source in (project / "labels.csv", data))
    assert int(from_path.support.sum()) == 8
    assert from_path.accuracy.equal(from_data.accuracy)


UNREGISTERED = """
import leco
try:
    leco.load({bundle!r})
except leco.LecoError as error:
    print(error)
import sys
print("tests.toys" in sys.modules)
"""


def test_a_bundle_says_which_module_it_needs_and_imports_nothing(trained):
    code = UNREGISTERED.format(bundle=str(trained / "bundle"))
    found = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    assert found.stdout.splitlines() == [
        f"{trained / 'bundle' / 'bundle.json'}: the model needs the modality 'signals', which the module 'tests.toys' "
        "registers; import it first, on the command line with --import tests.toys",
        "False",
    ], found.stderr


def test_a_bundle_cannot_import_a_module(toys, trained, tmp_path):
    """Not by `modules`, nor by any other name."""
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    bundle = tmp_path / "bundle"
    shutil.copytree(trained / "bundle", bundle)
    content = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps(content | {"modules": ["evil"]}))
    np.save(tmp_path / "signals.npy", toys.waves(2, seed=0)[0].flatten(1).numpy())
    found = leco(
        "--import", "tests.toys", "predict", "bundle", "signals.npy", "-o", "a.csv", "--no-verify", cwd=tmp_path
    )
    assert found.returncode == 0, found.stderr
    assert "evil" not in sys.modules
    for key in ("import", "imports"):
        (bundle / "bundle.json").write_text(json.dumps(content | {key: ["evil"]}))
        with pytest.raises(LecoError, match=key):
            package.load(bundle, verify=False)
    (bundle / "bundle.json").write_text(json.dumps(content | {"task": "evil", "modules": ["evil"]}))
    with pytest.raises(LecoError, match="needs the modality 'evil', which the module 'evil' registers"):
        package.load(bundle, verify=False)
    assert "evil" not in sys.modules


@pytest.mark.parametrize("key", ["import", "imports", "modules"])
@pytest.mark.parametrize("place", ["", "training", "data"])
def test_an_experiment_cannot_import_a_module(key, place, project):
    (project / "evil.py").write_text("raise SystemExit('imported')")
    file = project / "experiment.yaml"
    text = file.read_text()
    replaced = {
        "": f"{text}{key}: [evil]\n",
        "training": text.replace("training:\n", f"training:\n  {key}: [evil]\n"),
        "data": text.replace("modality: signals", f"modality: signals, {key}: [evil]"),
    }
    file.write_text(replaced[place])
    name = f"{place}.{key}" if place else key
    assert_refused(["run", "experiment.yaml"], f"{name}: is not a setting", project)
    assert "evil" not in sys.modules


WRONG = {
    "optimiser": ("optimiser", {"name": "carefull"}, "optimiser.name: 'carefull' is not registered; did you mean"),
    "schedule": (
        "optimiser",
        {"schedule": "square"},
        "optimiser.schedule: 'square' is not registered; valid: 'cosine'",
    ),
    "head": ("finish", {"head": "nearest"}, "finish.head: 'nearest' is not registered; did you mean 'nearest-mean'?"),
}


@pytest.mark.parametrize("case", WRONG)
def test_names_that_are_not_registered_are_refused_alike_from_python_and_the_command_line(case, tmp_path):
    part, values, message = WRONG[case]
    with pytest.raises(LecoError, match=message.replace(".", r"\.").replace("?", r"\?")):
        package.train(package.benchmark("waves-leco"), **{part: values}, store=tmp_path / "runs")
    ((name, value),) = values.items()
    with pytest.raises(LecoError, match=message.replace(".", r"\.").replace("?", r"\?")):
        experiment("waves-leco", {}, {f"training.{part}.{name}": value})


def test_other_names_are_refused_with_the_closest_one(project):
    def edited(old: str, new: str) -> list[object]:
        text = (project / "experiment.yaml").read_text().replace(old, new)
        (project / "other.yaml").write_text(text)
        return ["run", "other.yaml"]

    edited("", "")
    assert_refused(edited("signals", "signal"), "other.yaml:1: data.modality: 'signal' is not registered", project)
    assert_refused(edited("brier", "brie"), "'brie+entropy' is not a method; did you mean 'brier+entropy'?", project)
    assert_refused(["run", "waves-lecco"], "'waves-lecco' is not a benchmark; did you mean 'waves-leco'?", project)
    assert_refused(["run", "waves-leco", "--log", "line"], "'line' is not a registered logger", project)
    assert_refused(["--import", "evil", "check", "x"], "--import evil: cannot be imported: No module named", project)


def test_help_and_lists_show_what_is_registered(tmp_path):
    shown = " ".join(leco("--import", "tests.toys", "run", "--help", cwd=tmp_path).stdout.split())
    assert "csv, tensorboard, lines, broken" in shown
    assert f"({', '.join(registered('coarse'))})" in shown
    assert f"({', '.join(registered('pseudo'))})" in shown
    assert {"brier", "entropy"} <= {*registered("coarse"), *registered("pseudo")}
    listed = leco("--import", "tests.toys", "data", "list", cwd=tmp_path).stdout
    assert any(line.split()[:2] == ["waves-leco", "signals"] for line in listed.splitlines())
    found = leco("--import", "tests.toys", "data", "show", "waves-leco", cwd=tmp_path)
    assert found.returncode == 0, found.stderr


def test_reports_need_no_module(trained, tmp_path):
    """A report of stages that used a registered term is written where that is not registered."""
    command = [sys.executable, "-m", "leco", "report", str(trained / "runs"), "-o", str(tmp_path / "report.html")]
    found = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert METHOD in (tmp_path / "report.html").read_text()


def test_modules_are_remembered_for_other_processes():
    import_modules(["tests.toys"])
    assert IMPORTED.count("tests.toys") == 1


def test_settings_keep_what_a_registered_term_may_use():
    settings = Settings().change(pseudo_labels={"threshold": 0.3, "soft": True})
    assert settings.used_by(package.Method("ce", "entropy"), "scratch").pseudo_labels == settings.pseudo_labels
    ignored = settings.used_by(package.Method("ce", "st-hard"), "scratch").pseudo_labels
    assert ignored == Settings().pseudo_labels

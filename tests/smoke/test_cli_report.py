"""`leco report` and `leco runs`, on stores of made-up stages."""

import fcntl
import json
import subprocess
import sys
from typing import get_args

import pytest
from tests.commands import assert_refused, leco
from tests.stores import make_stages, write_store
from tests.trainings import some_checkpoint

from leco.experiments.experiment import Experiment
from leco.settings import Budget
from leco.training.checkpoint import write_checkpoint


@pytest.fixture
def folder(tmp_path):
    write_store(tmp_path / "runs", make_stages([0, 1]))
    return tmp_path


def stop_a_stage(runs, name="0000000000000001", step=7):
    ((stage, _), *_) = make_stages([5])
    partial = runs / "partial" / name
    partial.mkdir(parents=True)
    (partial / "config.json").write_text(json.dumps(stage.config()))
    partial.with_name(f"{partial.name}.lock").touch()
    write_checkpoint(partial, some_checkpoint(step))
    return partial


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.tex", "report.csv"])
def test_a_report_is_written_in_every_format(folder, name):
    result = leco("report", "runs", "-o", name, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "conclusions: " in result.stdout
    assert (folder / name).stat().st_size > 300
    assert leco("report", "runs", "-o", name, cwd=folder).returncode == 0
    mine = "# leco report\n\nMy own.\n\n## Report\n% Needs \\usepackage{booktabs}.\n"
    (folder / name).write_text(mine)
    assert_refused(["report", "runs", "-o", name], f"{name}: was not written by leco; choose another file", folder)
    assert (folder / name).read_text() == mine
    assert leco("report", "runs", "-o", name, "--overwrite", cwd=folder).returncode == 0
    assert (folder / name).stat().st_size > 300


def test_a_broken_folder_is_named_and_the_report_is_written(folder):
    (folder / "runs" / "stages" / "broken").mkdir()
    result = leco("report", "runs", "-o", "report.md", cwd=folder)
    assert result.returncode == 0
    assert "left out: " in result.stderr
    assert "broken" in (folder / "report.md").read_text()


def test_analyses_are_verbs_of_the_report(folder):
    gaps = leco("report", "gaps", "runs", cwd=folder)
    assert gaps.returncode == 0, gaps.stderr
    assert "How the gap closes: cifar-leco-1k" in gaps.stdout
    assert "lpl+st-hard/cond" in gaps.stdout
    costs = leco("report", "costs", "--relabel", "0.5", cwd=folder)  # the folder `runs` is the default
    assert costs.returncode == 0, costs.stderr
    assert "relabelling 0.5" in costs.stdout
    assert "x&y" in leco("report", "classes", "runs", cwd=folder).stdout
    (folder / "other").mkdir()
    write_store(folder / "other", make_stages([0], {"ce": 0.5}, cells=()))
    assert_refused(["report", "gaps", "other"], "needs `ce` with label-new and all-fine", folder)


def test_neither_lists_nor_reports_import_torch(folder):
    code = "import sys; from leco.cli.main import app; app(standalone_mode=False); assert 'torch' not in sys.modules"
    for arguments in (["runs"], ["report", "-o", "report.html"]):
        result = subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr


def test_what_is_no_store_or_no_format_is_refused(folder):
    assert_refused(["report", "runs", "-o", "report.pdf"], "'.pdf' is not a format; valid: '.html', '.md'", folder)
    assert_refused(["report", "nowhere"], "holds no runs", folder)
    assert_refused(["runs", "nowhere"], "holds no runs", folder)
    (folder / "photos").mkdir()
    assert_refused(["runs", "prune", "photos", "--yes"], "holds no runs", folder)


def test_runs_lists_stages_with_status_score_age_and_size(folder):
    stop_a_stage(folder / "runs")
    busy = stop_a_stage(folder / "runs", "0000000000000002")
    (folder / "runs" / "stages" / "odd").mkdir()
    with busy.with_name(f"{busy.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = leco("runs", cwd=folder)  # the folder `runs` is the default
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].startswith("0000000000000002  running ")
    assert lines[2].startswith("0000000000000001  partial ")
    assert "step 7 of 40" in lines[2]
    assert lines[3].startswith("odd ")
    assert any("TP1, lpl+st-hard/cond, finetune, label-new, lr 0.06, seed 1" in line for line in lines)
    assert "1 running, 1 partial, 1 broken" in lines[-1]
    shown = leco("runs", "runs", "--most", "2", cwd=folder).stdout.splitlines()
    assert len(shown) == 5  # with headings and counts
    assert shown[3] == f"… and {len(lines) - 4} more; --most 0 lists all"
    assert len(leco("runs", "--most", "0", cwd=folder).stdout.splitlines()) == len(lines)


def test_prune_asks_and_removes_only_what_was_stopped(folder):
    stopped = stop_a_stage(folder / "runs")
    busy = stop_a_stage(folder / "runs", "0000000000000002")
    (folder / "runs" / "partial" / "link").symlink_to(folder / "precious")
    (folder / "precious").mkdir()
    (folder / "precious" / "thesis.txt").write_text("mine")
    complete = sorted(path.name for path in (folder / "runs" / "stages").iterdir())
    with busy.with_name(f"{busy.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unanswered = leco("runs", "prune", cwd=folder)
        assert unanswered.returncode != 0 or "nothing was removed" in unanswered.stdout
        assert stopped.is_dir()
        result = leco("runs", "prune", "runs", "--yes", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "removed 1 partial" in result.stdout
    assert not stopped.exists()
    assert busy.is_dir()
    assert (folder / "precious" / "thesis.txt").read_text() == "mine"
    assert sorted(path.name for path in (folder / "runs" / "stages").iterdir()) == complete
    with busy.with_name(f"{busy.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "nothing to remove" in leco("runs", "prune", cwd=folder).stdout


def test_prune_keeps_what_an_experiment_needs(tmp_path):
    short = ["--set", "training.batches.steps=4", "--set", "training.batches.evaluate_every=4"]
    assert leco("run", "digits-leco", "--method", "lpl+st-hard/cond", *short, cwd=tmp_path).returncode == 0
    needed = {path.name for path in (tmp_path / "runs" / "stages").iterdir()}
    other = ["--set", "training.batches.steps=6", "--set", "training.batches.evaluate_every=6"]
    assert leco("run", "digits-leco", "--method", "lpl", *other, cwd=tmp_path).returncode == 0
    write_store(tmp_path / "runs", make_stages([0]))
    result = leco("runs", "prune", "--keep", "digits-leco", *short, "--yes", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {path.name for path in (tmp_path / "runs" / "stages").iterdir()} == needed
    report = leco("report", "-o", "report.html", cwd=tmp_path)  # of real stages, with what they keep
    assert report.returncode == 0, report.stderr
    page = (tmp_path / "report.html").read_text()
    assert "Ontology digits" in page
    assert "60 " in page or "200 " in page


def test_the_help_names_the_defaults_of_the_code(tmp_path):
    text = " ".join(leco("runs", "prune", "--help", cwd=tmp_path).stdout.split())
    assert f"[default: ({Experiment.model_fields['budget'].default})]" in text
    assert f"to keep: {' or '.join(get_args(Budget))}." in text
    text = " ".join(leco("report", "write", "--help", cwd=tmp_path).stdout.split())
    assert "one of .html, .md, .tex, .csv." in text
    assert "[default: report.html]" in text

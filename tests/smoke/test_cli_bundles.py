"""From training to an answer, as a user would type it; the verbs themselves are tested in `tests/unit/model`."""

import json
import pickle

from tests.commands import assert_refused, leco

SHORT = ["--set", "training.batches.steps=12", "--set", "training.batches.evaluate_every=6"]


def test_a_run_ends_with_a_bundle_that_predicts(tmp_path):
    run = leco("run", "digits-leco", "--method", "lpl", *SHORT, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    (model,) = (tmp_path / "runs" / "bundles").iterdir()
    assert run.stdout.splitlines()[-1] == f"bundle: runs/bundles/{model.name}"
    stages = {path.name for path in (tmp_path / "runs" / "stages").iterdir()}
    name, _, fingerprint = model.name.rpartition("-")
    assert name == "digits-leco-lpl-0"
    assert any(stage.startswith(fingerprint) for stage in stages)
    assert set(json.loads((model / "bundle.json").read_text())["training"]["previous"]) <= stages
    (tmp_path / "broken.png").write_bytes(b"x")
    result = leco("predict", model, "broken.png", "docs/*.png", cwd=tmp_path)
    assert result.returncode == 2
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["broken.png", "docs/*.png", "error"]
    (model / "model.safetensors").write_bytes(pickle.dumps({"weights": 1}))
    call = ["predict", model, "broken.png", "-o", "a.csv"]
    assert_refused(call, "changed since the bundle was written", tmp_path)
    assert_refused([*call, "--no-verify"], "is not a complete safetensors file", tmp_path)

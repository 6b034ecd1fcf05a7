"""Bundles: what is written is what is read, and nothing else is."""

import json
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.trainings import model_of
from typer.testing import CliRunner, Result

from leco import LecoError, Ontology
from leco.cli.main import app
from leco.data.inputs import at_once
from leco.experiments.bundles import bundle_stage
from leco.experiments.run import stored_network
from leco.experiments.store import Store
from leco.modalities.segmentation import check_window
from leco.model.bundle import FILES, check_target, read_bundle, write_bundle
from leco.model.card import card
from leco.model.model import load
from leco.renamed import MOVED


@pytest.fixture
def copied(new, tmp_path: Path) -> Path:
    return Path(shutil.copytree(new.folder, tmp_path / "bundle"))


def change(folder: Path, **changes: object) -> None:
    content = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps(content | changes))


def test_a_bundle_predicts_what_its_stage_does(trained, old, new):
    indices = torch.arange(100)
    for period, bundle in enumerate((old, new)):
        (stage,) = trained.stages.periods[period]
        images = trained.periods.test.inputs.read(indices)
        network = stored_network(stage, trained.periods, trained.store)
        expected = network(trained.periods.normalise(images))[stage.version].softmax(dim=1)
        assert torch.equal(model_of(bundle).predictor.probs(images), expected.detach())


def test_a_bundle_says_what_it_is(new, old):
    known = new.description
    assert (known.task, known.model, known.shape, known.side) == ("classification", "mlp", (1, 8, 8), 8)
    assert known.versions == ("v1", "v2")
    assert known.samples == {"v2": 100, "v1": 100}
    assert known.held_out == {"validation": 25, "test": 597}
    assert known.training["method"] == "lpl"
    assert known.ontology == new.ontology.fingerprint
    assert len(known.calibration["v2"].right) == 25
    assert (old.description.versions, len(old.ontology.versions)) == (("v1",), 1)
    assert sorted(path.name for path in new.folder.iterdir()) == sorted(FILES)


def test_confidences_on_validation_are_those_of_the_model(trained, new):
    held_out = trained.periods.annotated(1, "label-new").validation.indices
    pool = trained.periods.pool
    probs = model_of(new).predictor.probs(pool.inputs.read(held_out))
    fine = pool.labels["v2"].read(held_out)
    record = new.description.calibration["v2"]
    assert record.confidences == pytest.approx(probs.max(dim=1).values.tolist(), abs=1.1e-4)
    assert record.right == "".join("1" if hit else "0" for hit in (probs.argmax(dim=1) == fine).tolist())
    strokes = torch.zeros(len(probs), 3)
    for digit, stroke in enumerate(new.ontology.transition("v2", "v1").parents.tolist()):
        strokes[:, stroke] += probs[:, digit]
    assert new.description.calibration["v1"].confidences == pytest.approx(strokes.max(1).values.tolist(), abs=1.1e-4)


def test_scores_are_those_of_the_run(trained, new):
    result = trained.result(1)
    for part in ("validation", "test"):
        scores = getattr(new.metrics, part)
        assert {name: found.macc for name, found in scores.items()} == {
            name: found["macc"] for name, found in result[part].items()
        }
    assert new.metrics.test["v2"].count == 597


def test_a_card_is_for_people_and_shows_names_as_they_are(new, tmp_path):
    versions = [
        {"name": "v1", "classes": ["a|b", "<script>alert(1)</script>", "*c*"]},
        {"name": "v2", "classes": [f"`{digit}`" for digit in range(10)]},
    ]
    ontology = Ontology.from_dict({"name": "odd_[names](x)", "versions": versions})
    description = new.description.model_copy(update={"ontology": ontology.fingerprint})
    write_bundle(tmp_path / "b", description, ontology, new.network().state_dict(), new.metrics)
    text = (tmp_path / "b" / "README.md").read_text()
    assert r"a\|b, \<script\>alert(1)\</script\>, \*c\*" in text
    assert r"odd\_\[names\](x)" in text
    assert "labelled in v1 | 100" in text
    assert f"| test | v2 | {100 * new.metrics.test['v2'].macc:.1f}" in text
    assert "597" in text
    assert read_bundle(tmp_path / "b").ontology.name == "odd_[names](x)"


def test_a_card_tells_that_logits_were_adjusted(new):
    text = card(new.description, new.ontology, new.metrics)
    assert "logit adjustment" not in text
    assert "- method: lpl\n- strategy: finetune\n- model: mlp\n- steps: 60\n- batch size: 64\n" in text
    config = new.description.training
    adjusted = {**config, "training": {**config["training"], "finish": {"adjust": 0.5}}}
    description = new.description.model_copy(update={"training": adjusted})
    assert "- logit adjustment: 0.5\n" in card(description, new.ontology, new.metrics)


def test_a_bundle_of_leco_0_1_is_read_and_keeps_its_card(copied):
    content = json.loads((copied / "bundle.json").read_text())
    nested = content["training"]["training"]
    content["training"]["training"] = {
        name: nested[part][key] for name, (part, key) in ((n, p.split(".")) for n, p in MOVED.items())
    }
    (copied / "bundle.json").write_text(json.dumps(content | {"format": 1}))
    (copied / "SHA256SUMS").unlink()
    old = read_bundle(copied)
    text = card(old.description, old.ontology, old.metrics)
    assert "- steps: 60\n- batch size: 64\n- learning rate: 0.05\n" in text


def test_a_bundle_replaces_one_of_its_kind_and_nothing_else(trained, new, copied, tmp_path):
    (stage,) = trained.stages.periods[0]
    bundle_stage(trained.store, stage.fingerprint, copied)
    assert read_bundle(copied).description.newest == "v1"
    for prepare, message in (
        (lambda folder: (folder / "thesis.tex").write_text("x"), "holds 'thesis.tex', which is not part of a bundle"),
        (lambda folder: change(folder, task="features"), "exists and is not a complete bundle; delete it"),
        (lambda folder: (folder / "bundle.json").unlink(), "exists and is not a complete bundle; delete it"),
    ):
        folder = tmp_path / "other"
        shutil.copytree(new.folder, folder)
        prepare(folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(LecoError, match=message):
            bundle_stage(trained.store, stage.fingerprint, folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        shutil.rmtree(folder)
    with pytest.raises(LecoError, match="holds a bundle for classification, not segmentation"):
        check_target(copied, "segmentation")
    with pytest.raises(LecoError, match="is a file; a bundle is a folder"):
        check_target(copied / "README.md", "classification")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle"]


def test_a_bundle_that_cannot_be_written_leaves_nothing(new, tmp_path):
    weights = {"a": torch.zeros(1)}
    weights["b"] = weights["a"]  # safetensors refuses shared memory
    with pytest.raises(RuntimeError):
        write_bundle(tmp_path / "b", new.description, new.ontology, weights, new.metrics)
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_is_found_whenever_its_replacement_stops(trained, new, copied, tmp_path, monkeypatch):
    (stage,) = trained.stages.periods[0]
    rename = Path.rename

    def killed(self: Path, target: Path) -> Path:
        if Path(target) == copied:  # the old one was moved away, the new one not yet in
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            bundle_stage(trained.store, stage.fingerprint, copied)
    assert not copied.exists()
    assert read_bundle(copied).digest == new.digest
    (copied.parent / "alias").symlink_to(copied)
    assert read_bundle(copied.parent / "alias").digest == new.digest
    bundle_stage(trained.store, stage.fingerprint, copied)
    assert read_bundle(copied).description.newest == "v1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alias", "bundle"]
    shutil.copytree(new.folder, tmp_path / ".bundle-replaced")  # killed before it was removed
    assert read_bundle(copied).description.newest == "v1"
    bundle_stage(trained.store, stage.fingerprint, copied)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alias", "bundle"]


def test_a_bundle_that_cannot_be_removed_does_not_undo_the_new_one(trained, copied, tmp_path):
    (stage,) = trained.stages.periods[0]
    bundle_stage(trained.store, stage.fingerprint, copied)
    (tmp_path / ".bundle-replaced").mkdir()
    (tmp_path / ".bundle-replaced" / "of somebody").touch()
    with pytest.raises(LecoError, match=r"\.bundle-replaced: cannot be removed"):
        bundle_stage(trained.store, stage.fingerprint, copied)
    assert read_bundle(copied).description.newest == "v1"


def test_a_bundle_does_not_replace_what_it_starts_from(old, copied, tmp_path):
    (tmp_path / "alias").symlink_to(copied)
    for start, target in ((copied, tmp_path / "alias"), (copied, copied / "inside")):
        arguments = ["digits-leco", "--start", start, "--bundle", target]
        shutil.rmtree(copied)
        shutil.copytree(old.folder, copied)
        result = invoke("run", *arguments, "--runs", tmp_path / "runs")
        assert "is the bundle to start from, which must not change" in str(result.exception)
    (tmp_path / "o.yaml").write_text(
        (copied / "ontology.yaml").read_text()
        + "  - {name: v2, classes: {a: {from: loop}, straight: , open curve: }}\n"
    )
    result = invoke("upgrade", copied, "--ontology", tmp_path / "o.yaml", "-o", copied)
    assert "is the bundle to start from" in str(result.exception)
    assert not (tmp_path / "runs").exists()


def test_a_segmenter_that_would_take_forever_is_refused(segmenter, tmp_path):
    folder = Path(shutil.copytree(segmenter[0].folder, tmp_path / "bundle"))
    for changes in (
        {"window": 1},
        {"window": 4_096},
        {"side": 2_048, "shape": [3, 2_048, 2_048]},  # with windows of 32 pixels
        {"side": 16_384, "window": 16_384, "shape": [3, 16_384, 16_384]},
        {"shape": [3, 2_000, 2_000]},
    ):
        shutil.copy(segmenter[0].folder / "bundle.json", folder)
        change(folder, **changes)
        with pytest.raises(LecoError, match=r"bundle\.json: .*(windows|pixels|side)"):
            read_bundle(folder)
    with pytest.raises(ValueError, match="100,000 classes are too many for windows of 32 pixels in images of 128"):
        check_window(128, 32, classes=100_000)


def test_large_samples_are_taken_a_few_at_a_time(new):
    assert at_once(new.description.shape, 64) == 64
    assert at_once((3, 2_048, 2_048), 64) == 3


def cut(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def spoil(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["heads.0.bias"][0] = torch.nan
    save_file(weights, folder / "model.safetensors")


def shrink(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["heads.0.bias"] = weights["heads.0.bias"][:9].clone()
    save_file(weights, folder / "model.safetensors")


class _Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("executed",)


def link_outside(folder: Path) -> None:
    moved = folder.parent / "elsewhere.safetensors"
    (folder / "model.safetensors").rename(moved)
    (folder / "model.safetensors").symlink_to(moved)


HOSTILE = {
    "pickled weights": (
        lambda f: (f / "model.safetensors").write_bytes(pickle.dumps(_Evil())),
        "is not a complete safetensors file",
    ),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), "is empty"),
    "weights cut short": (cut, "is not a complete safetensors file"),
    "weights that are none": (spoil, "heads.0.bias holds NaN or infinity"),
    "weights of another shape": (shrink, "does not fit mlp: heads.0.bias is (9,), but the network has (10,)"),
    "weights of another model": (lambda f: change(f, model="linear"), "does not fit linear"),
    "a model beyond memory": (lambda f: change(f, model="wrn-16-999"), "does not fit wrn-16-999"),
    "a model of the hub": (lambda f: change(f, model="hf-hub:evil/model"), "is not on this machine"),
    "a missing file": (lambda f: (f / "metrics.json").unlink(), "metrics.json: no such file"),
    "a link that leaves": (link_outside, "model.safetensors: is a symlink to outside the root"),
    "another format": (
        lambda f: change(f, format=3),
        "is of format 3, which a newer version of leco wrote; update leco",
    ),
    "a truth for a format": (
        lambda f: change(f, format=True),
        "format: Input should be a valid integer, not True",
    ),
    "an image beyond memory": (lambda f: change(f, shape=[1, 8_000, 8_000], side=8_000), "side: Input should be less"),
    "a network without end": (lambda f: change(f, model="wrn-9994-999"), "is not a backbone"),
    "no bundle at all": (
        lambda f: (f / "bundle.json").write_text("[]"),
        "is damaged, or of another version of leco: Input should be an object",
    ),
    "JSON without end": (
        lambda f: (f / "bundle.json").write_text("[" * 100_000),
        "Invalid JSON: recursion limit exceeded at line 1",
    ),
    "a deeply nested configuration": (
        lambda f: change(f, training={"x": json.loads("[" * 400 + "]" * 400)}),
        "bundle.json: is damaged, or of another version of leco: Invalid JSON: recursion limit exceeded",
    ),
    "a number without end": (
        lambda f: (f / "bundle.json").write_text('{"format": ' + "9" * 10_000 + "}"),
        "Invalid JSON: number out of range at line 1",
    ),
    "a key that nobody knows": (lambda f: change(f, run="rm -rf /"), "run: Extra inputs are not permitted"),
    "versions that leave": (
        lambda f: change(f, versions=["../v1", "v2"], trained="v2", calibration={}),
        "does not name",
    ),
    "a senseless shape": (lambda f: change(f, shape=[3, 10**6, 10**6]), "do not fit a model for"),
    "a negative spread": (lambda f: change(f, std=[-1.0]), "positive `std`"),
    "no spread": (
        lambda f: (f / "bundle.json").write_text((f / "bundle.json").read_text().replace('"std": [', '"std": [NaN, ')),
        "std",
    ),
    "other answers": (
        lambda f: change(f, calibration={"v2": {"confidence": "1 2", "right": "1"}}),
        "are needed, one for each",
    ),
    "scores of nothing": (
        lambda f: (f / "metrics.json").write_text('{"test": {"v1": 3}}'),
        "metrics.json: is damaged, or of another version of leco: test.v1: Input should be",
    ),
    "another ontology": (
        lambda f: (f / "ontology.yaml").write_text((f / "ontology.yaml").read_text().replace("loop", "ring")),
        "was changed after the model was trained",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_bundle_that_was_tampered_with_is_refused_in_one_line(case, copied, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    prepare, message = HOSTILE[case]
    prepare(copied)
    with pytest.raises(LecoError) as refused:
        read_bundle(copied, verify=False).network()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(LecoError, match=r"^[^\n]+$"):
        read_bundle(copied)
    assert not (tmp_path / "executed").exists()


def test_the_digest_changes_with_weights_and_with_what_is_done_to_inputs(new, copied):
    assert read_bundle(copied).digest == new.digest
    weights = load_file(copied / "model.safetensors")
    weights["heads.0.bias"][0] += 1
    save_file(weights, copied / "model.safetensors")
    assert read_bundle(copied, verify=False).digest != new.digest
    shutil.copy(new.folder / "model.safetensors", copied)
    change(copied, mean=[0.1])
    assert read_bundle(copied, verify=False).digest != new.digest


@pytest.mark.parametrize("name", [name for name in FILES if name != "README.md"])
def test_one_flipped_bit_anywhere_is_refused(copied, name):
    content = bytearray((copied / name).read_bytes())
    for place in (len(content) // 2, len(content) - 3):
        content[place] ^= 4
        (copied / name).write_bytes(content)
        with pytest.raises(LecoError):
            read_bundle(copied)
        content[place] ^= 4


def test_without_its_digests_a_bundle_is_not_complete(copied):
    (copied / "SHA256SUMS").unlink()
    with pytest.raises(LecoError, match="is not a complete bundle: SHA256SUMS: no such file"):
        read_bundle(copied)


def test_the_card_may_be_edited_and_digests_are_those_of_sha256sum(copied):
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copied, check=True)
    (copied / "README.md").write_text("mine")
    read_bundle(copied)


def test_weights_that_were_changed_knowingly_are_accepted_and_saved(copied, tmp_path):
    weights = load_file(copied / "model.safetensors")
    weights["heads.0.bias"][0] += 1
    save_file(weights, copied / "model.safetensors")
    assert "model.safetensors: changed since the bundle was written" in str(
        invoke("export", copied, "-o", "x.onnx").exception
    )
    load(copied, verify=False).save(tmp_path / "saved")
    assert read_bundle(tmp_path / "saved").network().state_dict()["heads.0.bias"][0] == weights["heads.0.bias"][0]


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.complex64])
def test_weights_that_are_no_floating_point_numbers_are_refused(copied, kind):
    weights = load_file(copied / "model.safetensors")
    weights["heads.0.bias"] = weights["heads.0.bias"].to(kind)
    save_file(weights, copied / "model.safetensors")
    with pytest.raises(LecoError, match=r"heads.0.bias is \(10,\) of type .*, but the network has \(10,\)"):
        read_bundle(copied, verify=False).network()


def test_a_bundle_of_the_format_before_needs_no_digests(copied):
    (copied / "SHA256SUMS").unlink()
    change(copied, format=1)
    assert read_bundle(copied).network()


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_stage_becomes_a_bundle_by_the_beginning_of_its_name(trained, tmp_path):
    runs, name = trained.store.stages.parent, trained.stages.periods[0][0].fingerprint
    result = invoke("bundle", runs, name[:8], "-o", tmp_path / "old")
    assert result.stdout == f"bundle: {tmp_path / 'old'}\n"
    assert read_bundle(tmp_path / "old").description.versions == ("v1",)
    assert "zzz: no such stage" in str(invoke("bundle", runs, "zzz", "-o", tmp_path / "new").exception)
    assert "the prefix matches 2 stages" in str(invoke("bundle", runs, "", "-o", tmp_path / "new").exception)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_run_refuses_a_folder_that_is_no_bundle_before_it_trains(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    result = invoke("run", "digits-leco", "--runs", tmp_path / "runs", "--bundle", tmp_path / "thesis")
    assert "holds 'chapter.tex', which is not part of a bundle" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


def test_a_stage_that_has_no_model_is_no_bundle(trained, tmp_path):
    (stage,) = trained.stages.periods[0]
    runs = Path(shutil.copytree(trained.store.stages.parent, tmp_path / "runs"))
    folder = runs / "stages" / stage.fingerprint
    (folder / "bundle.json").unlink()
    with pytest.raises(LecoError, match=r"has no bundle\.json"):
        bundle_stage(Store(runs), stage.fingerprint, tmp_path / "b")
    (folder / "SHA256SUMS").unlink()
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"diverged": "at step 3", "format": 1}))
    with pytest.raises(LecoError, match="the stage diverged"):
        bundle_stage(Store(runs), stage.fingerprint, tmp_path / "b")

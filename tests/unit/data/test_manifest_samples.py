from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from leco import LecoError, Ontology
from leco.data.batches import Steps, loader
from leco.data.manifest.manifest import read_manifest
from leco.data.manifest_samples import few_samples, lazy_samples, own_annotated, own_samples, own_test
from leco.data.samples import InMemory

ONTOLOGY = Ontology.from_taxonomy("pets", ["v1", "v2"], [("dog", "husky"), ("dog", "poodle"), ("cat", "lynx")])


def write_images(folder: Path, rows: list[str]) -> Path:
    for number, row in enumerate(rows):
        path = folder / row.split(",")[0]
        if not path.exists():
            Image.new("RGB", (30, 20 + number), (number, 0, 0)).save(path)
    (folder / "labels.csv").write_text("\n".join(["image,label,version,split,period", *rows]) + "\n")
    return folder / "labels.csv"


ROWS = [
    *(f"a{n}.png,dog,v1,train," for n in range(4)),
    *(f"b{n}.png,{name},v2,train," for n, name in enumerate(["husky", "poodle", "lynx"] * 5)),
    "c.png,cat,v1,train,",
    "c.png,lynx,v2,,",  # relabelled
    "d.png,,,train,",  # unlabelled
    "e.png,husky,v2,test,",
]


def names(manifest, indices: torch.Tensor) -> set[str]:
    return {manifest.inputs[index] for index in indices.tolist()}


def test_every_training_sample_counts_once_with_its_newest_label(tmp_path):
    manifest, _ = read_manifest(write_images(tmp_path, ROWS), ONTOLOGY)
    annotated = own_annotated(manifest, ONTOLOGY)
    labelled = names(manifest, torch.cat([annotated.newest.indices, annotated.validation.indices]))
    assert labelled == {f"b{n}.png" for n in range(15)} | {"c.png"}
    assert [(part.version, names(manifest, part.indices)) for part in annotated.history] == [
        ("v1", {f"a{n}.png" for n in range(4)}),
        ("v2", {"d.png"}),
    ]
    assert len(annotated.validation.indices) == 3  # a fifth, since there is no val split
    known = torch.from_numpy(manifest.labels["v2"])
    assert len(known[annotated.validation.indices].unique()) == 3  # one of each class


def test_a_period_before_knows_nothing_of_later_versions(tmp_path):
    manifest, _ = read_manifest(write_images(tmp_path, ROWS), ONTOLOGY)
    annotated = own_annotated(manifest, ONTOLOGY.until("v1"))
    labelled = names(manifest, torch.cat([annotated.newest.indices, annotated.validation.indices]))
    assert labelled == {f"a{n}.png" for n in range(4)} | {"c.png"}
    assert [names(manifest, part.indices) for part in annotated.history] == [{"d.png"}]


def test_samples_of_a_later_period_are_excluded(tmp_path):
    rows = [*(f"a{n}.png,dog,v1,train,0" for n in range(5)), *(f"b{n}.png,cat,v1,train,1" for n in range(5))]
    manifest, _ = read_manifest(write_images(tmp_path, rows), ONTOLOGY)
    annotated = own_annotated(manifest, ONTOLOGY.until("v1"))
    assert names(manifest, annotated.newest.indices) <= {f"a{n}.png" for n in range(5)}


def test_samples_of_a_later_period_are_not_used_for_validation_either(tmp_path):
    rows = [*(f"a{n}.png,dog,v1,train,0" for n in range(5)), "v.png,dog,v1,val,1"]
    manifest, _ = read_manifest(write_images(tmp_path, rows), ONTOLOGY)
    assert "v.png" not in names(manifest, own_annotated(manifest, ONTOLOGY.until("v1")).validation.indices)


def test_test_samples_are_those_with_a_newest_label(tmp_path):
    manifest, _ = read_manifest(write_images(tmp_path, [*ROWS, "f.png,cat,v1,test,"]), ONTOLOGY)
    assert names(manifest, own_test(manifest, ONTOLOGY).indices) == {"e.png"}


def test_whether_images_are_held_in_memory_does_not_depend_on_test_samples(tmp_path):
    path = write_images(tmp_path, ROWS)
    both = read_manifest(path, ONTOLOGY)[0], read_manifest(path, ONTOLOGY, without="test")[0]
    others = len(both[1])
    assert len(both[0]) > others
    for fitting in (others - 1, others):
        limit = fitting * 8 * 8 * 3
        held = [isinstance(own_samples(manifest, ONTOLOGY, 8, limit).inputs, InMemory) for manifest in both]
        assert held == [fitting == others] * 2


def test_a_given_validation_split_is_used(tmp_path):
    rows = [*ROWS, "v.png,lynx,v2,val,"]
    manifest, _ = read_manifest(write_images(tmp_path, rows), ONTOLOGY)
    annotated = own_annotated(manifest, ONTOLOGY)
    assert names(manifest, annotated.validation.indices) == {"v.png"}
    assert len(annotated.newest.indices) == 16


def test_images_become_batches_and_unlabelled_ones_say_nothing(tmp_path):
    manifest, _ = read_manifest(write_images(tmp_path, ROWS), ONTOLOGY)
    samples, evidence = own_samples(manifest, ONTOLOGY, side=16), ONTOLOGY.evidence()
    steps = Steps(samples, own_annotated(manifest, ONTOLOGY), evidence, batch_size=5, seed=0, steps=2)
    for step in loader(steps):
        assert step.new.inputs.shape == step.history.inputs.shape == (5, 3, 16, 16)
        for index, row in zip(step.history.ids.tolist(), evidence.gather(step.history.rows), strict=True):
            expected = [0, 0, 0] if manifest.inputs[index] == "d.png" else [0, 0, -np.inf]
            assert row.tolist() == expected


def test_features_and_masks_become_batches_too(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(40, dtype=np.float32).reshape(10, 4))
    lines = ["features,label,version", *(f"x.npy#{n},{'husky' if n % 2 else 'lynx'},v2" for n in range(10))]
    (tmp_path / "features.csv").write_text("\n".join(lines) + "\n")
    manifest, _ = read_manifest(tmp_path / "features.csv", ONTOLOGY)
    steps = Steps(
        own_samples(manifest, ONTOLOGY), own_annotated(manifest, ONTOLOGY), ONTOLOGY.evidence(), 3, 0, steps=1
    )
    assert torch.equal(steps[0].new.inputs[:, 0], steps[0].new.ids.float() * 4)

    for n in range(4):
        Image.new("RGB", (20, 10)).save(tmp_path / f"i{n}.png")
        mask = np.full((10, 20), n % 2, dtype=np.uint8)
        mask[0] = 255
        Image.fromarray(mask).save(tmp_path / f"m{n}.png")
    rows = ["image,mask,version", "i0.png,m0.png,v1", "i1.png,m1.png,v2", "i2.png,m2.png,v2", "i3.png,,"]
    (tmp_path / "masks.csv").write_text("\n".join(rows) + "\n")
    manifest, _ = read_manifest(tmp_path / "masks.csv", ONTOLOGY)
    samples = own_samples(manifest, ONTOLOGY, side=20)
    step = Steps(samples, own_annotated(manifest, ONTOLOGY), ONTOLOGY.evidence(), 4, 0, steps=1)[0]
    assert step.new.rows.shape == (4, 20, 20)
    assert (step.new.labels["v2"][:, 10:] == -1).all()  # the padding
    assert step.new.sizes.tolist() == [[10, 20]] * 4
    assert (step.new.labels["v2"][:, 0] == -1).all()  # no label
    unlabelled = step.history.ids == 3
    assert (step.history.rows[unlabelled] == 0).all()
    assert (step.history.labels["v1"][~unlabelled][:, 5] == 0).all()


def test_too_few_newest_labels_are_named(tmp_path):
    manifest, _ = read_manifest(write_images(tmp_path, ROWS[:4]), ONTOLOGY)
    with pytest.raises(LecoError, match="no training sample is labelled in v2"):
        own_annotated(manifest, ONTOLOGY)
    manifest, _ = read_manifest(write_images(tmp_path, ["b0.png,husky,v2,train,"]), ONTOLOGY)
    with pytest.raises(LecoError, match="only one sample is labelled in v2"):
        own_annotated(manifest, ONTOLOGY)


def test_a_few_images_replace_all_but_labels_are_unchanged(tmp_path):
    manifest, _ = read_manifest(write_images(tmp_path, ROWS), ONTOLOGY)
    whole, few = (
        own_samples(manifest, ONTOLOGY, side=16),
        few_samples(manifest, lazy_samples(manifest, ONTOLOGY, 16), 3),
    )
    everything = torch.arange(len(manifest))
    assert len(few) == len(whole) == len(manifest)
    assert len(few.inputs.read(everything).flatten(1).unique(dim=0)) == 3
    assert torch.equal(few.inputs.read(torch.tensor([0])), whole.inputs.read(torch.tensor([0])))
    for version in ("v1", "v2"):
        assert torch.equal(few.labels[version].read(everything), whole.labels[version].read(everything))
    more = few_samples(manifest, lazy_samples(manifest, ONTOLOGY, 16), 1_000)
    assert torch.equal(more.inputs.read(everything), whole.inputs.read(everything))


def test_of_more_images_than_wanted_some_are_decoded(tmp_path):
    path = write_images(tmp_path, ROWS)
    (tmp_path / "b3.png").write_bytes(b"no image")
    with pytest.raises(LecoError, match="1 bad image"):
        read_manifest(path, ONTOLOGY, most=100)
    assert len(read_manifest(path, ONTOLOGY, most=1)[0]) == 22  # another one was looked into
    assert read_manifest(path, ONTOLOGY, most=0)[1].counts == {}

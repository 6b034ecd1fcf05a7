"""Every benchmark, from the official layout of its data to batches; on synthetic trees where data are not available."""

import hashlib
import json
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import leco
from leco import LecoError
from leco.data.batches import Steps, loader
from leco.data.benchmarks import BENCHMARKS, Benchmark, cifar, load, mapillary, recipe
from leco.data.benchmarks.cifar import unpack
from leco.data.images import letterbox
from leco.data.masks import count_masks
from leco.data.periods import Part, annotate
from leco.data.rng import Draws
from leco.data.samples import InMemory, Samples
from leco.modalities import MODALITIES


def batches(benchmark: Benchmark, period: int, workers: int = 0) -> Steps:
    """Draw a few batches as training will, and check that they fit together."""
    split = benchmark.split(seed=0)
    version = split.periods[period].version
    evidence = benchmark.ontology.until(version).evidence()
    steps = Steps(benchmark.pool, annotate(split, period, "label-new"), evidence, batch_size=4, seed=0, steps=3)
    for step in loader(steps, workers=workers):
        for batch in (step.new, step.history):
            if batch is not None:
                assert batch.inputs.dtype in (torch.uint8, torch.float32)
                assert evidence.gather(batch.rows).shape[1] == len(benchmark.ontology[version])
        assert (step.history is None) == (period == 0)
    return steps


def check(benchmark: Benchmark) -> None:
    """Check properties of every benchmark."""
    assert tuple(len(version) for version in benchmark.ontology.versions) == benchmark.recipe.classes
    split = benchmark.split(seed=1)
    every = torch.cat([torch.cat([period.train, period.validation]) for period in split.periods])
    assert len(every.unique()) == len(every)
    assert [period.version for period in split.periods] == [v.name for v in benchmark.ontology.versions]
    assert benchmark.split(seed=1).fingerprint == split.fingerprint
    for samples in (benchmark.pool, benchmark.test):
        for version in benchmark.ontology.versions:
            labels = samples.labels[version.name].read(torch.arange(min(len(samples), 50)))
            assert labels.max() < len(version)
            assert labels.min() >= -1
    for period in range(len(split.periods)):
        batches(benchmark, period)


def test_digits_need_no_download(tmp_path):
    benchmark = load("digits-leco", tmp_path)
    check(benchmark)
    assert benchmark.pool.inputs.read(torch.tensor([0])).shape == (1, 1, 8, 8)
    assert len(benchmark.pool) + len(benchmark.test) == 1_797


@pytest.mark.data
@pytest.mark.parametrize("size", ["1k", "2k", "10k"])
def test_cifar_reads_the_official_files(cifar_root, size):
    benchmark = load(f"cifar-leco-{size}", cifar_root)
    check(benchmark)
    assert (len(benchmark.pool), len(benchmark.test)) == (50_000, 10_000)
    lengths = {(len(p.train), len(p.validation)) for p in benchmark.split(0).periods}
    thousands = int(size[:-1])
    assert lengths == {(1_000 * thousands, 250 * thousands)}


@pytest.mark.data
def test_cifars_own_superclasses_are_those_of_the_ontology(cifar_root):
    benchmark = load("cifar-leco", cifar_root)
    content = pickle.loads((cifar_root / "cifar-100-python" / "test").read_bytes(), encoding="bytes")
    names = pickle.loads((cifar_root / "cifar-100-python" / "meta").read_bytes(), encoding="bytes")
    official = [names[b"coarse_label_names"][label].decode() for label in content[b"coarse_labels"]]
    ours = benchmark.test.labels["superclasses"].read(torch.arange(10_000)).tolist()
    assert [benchmark.ontology["superclasses"].classes[label] for label in ours] == official
    assert benchmark.test.inputs.read(torch.tensor([7])).numpy().ravel().tolist() == content[b"data"][7].tolist()


@pytest.mark.data
def test_cifar_has_four_levels(cifar_root):
    benchmark = load("cifar-4tp-leco", cifar_root)
    check(benchmark)
    names = ["oak_tree", "mushroom", "boy", "whale", "crab", "rocket", "castle", "sea"]
    groups = ["plants", "plants", "people", "mammals", "invertebrates", "vehicles", "structures", "scenes"]
    assert benchmark.ontology.translate(names, "classes", "groups") == groups


@pytest.mark.data
def test_kinds_of_birds_lie_within_families(data_root):
    ontology = load("cub-4tp-leco", data_root).ontology
    found = ontology.translate(["014.Indigo_Bunting", "130.Tree_Sparrow", "118.House_Sparrow"], "species", "kind")
    assert found[0] == "Bunting"
    assert found[1] != found[2]  # of two families


@pytest.mark.data
def test_cifars_test_file_is_read_only_on_request(cifar_root, tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("meta", "train"):
        (folder / name).symlink_to((cifar_root / "cifar-100-python" / name).resolve())
    benchmark = load("cifar-leco-1k", tmp_path)
    with pytest.raises(LecoError, match="test does not exist"):
        _ = benchmark.test


def test_a_pickle_that_would_run_code_is_refused(tmp_path, monkeypatch):
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    content = pickle.dumps(Evil())
    for name in ("meta", "train", "test"):
        (folder / name).write_bytes(content)
    with pytest.raises(LecoError, match="is not the official file"):
        load("cifar-leco", tmp_path)
    # Even with the sum of an official file, nothing but data may be built.
    monkeypatch.setitem(cifar._MD5, "meta", hashlib.md5(content).hexdigest())
    with pytest.raises(LecoError, match="is not data"):
        load("cifar-leco", tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.data
@pytest.mark.parametrize("name", ["cub-leco", "cub-leco-2tp", "cub-4tp-leco", "camvid-leco"])
def test_the_small_real_benchmarks_load(data_root, name):
    check(load(name, data_root))


@pytest.mark.data
def test_camvid_has_other_frames_in_each_period_and_maps_void_to_no_label(data_root):
    benchmark = load("camvid-leco", data_root)
    fine = benchmark.pool.labels["classes"].read(torch.arange(5))
    groups = benchmark.pool.labels["groups"].read(torch.arange(5))
    assert torch.equal(fine == -1, groups == -1)
    assert (fine == -1).any()
    assert torch.equal(benchmark.ontology.translate(fine, "classes", "groups"), groups.long())


@pytest.fixture
def inat_root(data_root: Path, tmp_path: Path) -> Path:
    """The real metadata with synthetic images and lists; all classes and parts share one folder of images."""
    folder = tmp_path / "semi-inat-2021"
    (folder / "images").mkdir(parents=True)
    (folder / "classes").mkdir()
    for number in range(100):
        Image.new("RGB", (40, 30), (number, 9, 9)).save(folder / "images" / f"{number}.jpg")
    for label in range(810):
        (folder / "classes" / str(label)).symlink_to(folder / "images")
    for name in ("all_taxa_info.json", "label2taxaid.json"):
        (folder / name).write_bytes((data_root / "semi-inat-2021" / name).read_bytes())
    for name, count in (("l_train", 5), ("u_train_in", 7), ("val", 1)):
        (folder / name).symlink_to(folder / "classes")
        lines = [f"{name}/{label}/{n}.jpg {label}" for label in range(810) for n in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.data
@pytest.mark.parametrize(("name", "size"), [("inat-leco", 4_000), ("inat-4tp-leco", 2_000)])
def test_inat_reads_the_official_lists_and_has_every_class_in_every_period(inat_root, name, size):
    benchmark = load(name, inat_root, size=size)
    split = benchmark.split(0)
    assert [len(v) for v in benchmark.ontology.versions] == list(benchmark.recipe.classes)
    for period in split.periods:
        assert (len(period.train), len(period.validation)) == (size * 4 // 5, size // 5)  # validation lies within
        assert len(benchmark.strata[period.train].unique()) == 810
    image = benchmark.pool.inputs.read(torch.tensor([3]))
    assert image.shape == (1, 3, 256, 256)
    assert len(benchmark.test) == 810
    labels = benchmark.test.labels["order"].read(torch.arange(810))
    assert len(labels.unique()) == 123


@pytest.mark.data
def test_the_published_lists_of_inat_are_read(inat_root, data_root):
    folder = inat_root / "semi-inat-2021"
    for name in ("l_train", "val"):
        (folder / f"{name}.txt").write_bytes((data_root / "semi-inat-2021" / f"{name}.txt").read_bytes())
    benchmark = load("inat-leco", inat_root, size=7_000)
    assert len(benchmark.pool) == 9_721 + 7 * 810
    assert torch.equal(benchmark.strata[:9_721].bincount().gt(0), torch.ones(810, dtype=torch.bool))
    assert [len(version) for version in benchmark.ontology.versions] == [123, 810]
    labels = benchmark.test.labels["species"].read(torch.arange(len(benchmark.test)))
    assert torch.equal(labels.bincount(), torch.full((810,), 5))  # as many of each class as were published


@pytest.mark.data
def test_inat_streams_images_through_workers(inat_root):
    benchmark = load("inat-leco", inat_root, size=4_000)
    annotated = annotate(benchmark.split(0), 0, "label-new")
    steps = Steps(
        benchmark.pool,
        replace(annotated, newest=Part("order", torch.arange(50))),
        benchmark.ontology.until("order").evidence(),
        batch_size=4,
        seed=0,
        steps=4,
    )
    alone, helped = list(loader(steps)), list(loader(steps, workers=2))
    assert all(torch.equal(a.new.inputs, b.new.inputs) for a, b in zip(alone, helped, strict=True))


@pytest.mark.data
def test_wrong_inat_lists_are_named(inat_root):
    path = inat_root / "semi-inat-2021" / "val.txt"
    for line, message in (
        ("val/0/0.jpg 810", "0 to 809"),
        ("../x.jpg 3", "leaves the folder"),
        ("x", "val.txt:1"),
        ("x " + "9" * 5000, "val.txt:1"),
    ):
        path.write_text(line + "\n")
        with pytest.raises(LecoError, match=message):
            _ = load("inat-leco", inat_root, size=4_000).test
    (inat_root / "semi-inat-2021" / "u_train_in.txt").unlink()
    (inat_root / "semi-inat-2021" / "u_train_in").rename(inat_root / "elsewhere")
    with pytest.raises(LecoError, match=r"u_train_in\.txt does not exist; unpack l_train, u_train and val"):
        load("inat-leco", inat_root, size=4_000)


def vistas(root: Path) -> Benchmark:
    small = replace(recipe("mapillary-leco"), classes=(4, 6), size=10, image_size=40)
    return small.build(small, root)


def test_mapillary_reads_the_official_tree_and_infers_its_transition(vistas_root):
    benchmark = vistas(vistas_root)
    assert benchmark.ontology.translate(["lane", "cone", "vehicle"], "v2.0", "v1.2") == ["road", "void", "car"]
    assert benchmark.evaluated == ("road", "lane", "vehicle", "cone", "void")
    assert benchmark.ontology["v2.0"].ignored == ("truck",)  # merged: its pixels say nothing
    split = benchmark.split(0)
    assert [(len(p.train), len(p.validation)) for p in split.periods] == [(10, 0), (10, 0)]


def test_the_transition_of_mapillary_is_kept_for_equal_masks_and_classes(vistas_root, monkeypatch):
    folder, inferred = vistas_root / "mapillary-vistas", []
    monkeypatch.setattr(mapillary, "count_masks", lambda *given: inferred.append(1) or count_masks(*given))
    first = vistas(vistas_root).ontology
    for mask in sorted((folder / "training" / "v2.0" / "labels").iterdir())[:3]:
        os.utime(mask, ns=(1, 1))  # the same content at another time
    assert vistas(vistas_root).ontology.fingerprint == first.fingerprint
    assert len(inferred) == 1
    Image.new("L", (40, 30), 1).save(folder / "training" / "v2.0" / "labels" / "05.png")
    vistas(vistas_root)
    assert len(inferred) == 2
    config = json.loads((folder / "config_v2.0.json").read_text())
    config["labels"][0]["name"] = "highway"
    (folder / "config_v2.0.json").write_text(json.dumps(config))
    assert "highway" in vistas(vistas_root).ontology["v2.0"].classes
    assert len(inferred) == 3


def test_mapillary_batches_hold_both_versions(vistas_root):
    benchmark = vistas(vistas_root)
    evidence = benchmark.ontology.evidence()
    annotated = annotate(benchmark.split(0), 1, "label-new")
    step = next(loader(Steps(benchmark.pool, annotated, evidence, 4, 0, steps=1)))
    assert step.history.rows.shape == (4, 40, 40)
    assert step.history.sizes.tolist() == [[30, 40]] * 4
    assert step.new.labels["v1.2"].max() < 4


def test_wrong_mapillary_trees_are_named(vistas_root):
    folder = vistas_root / "mapillary-vistas"
    Image.new("L", (10, 10)).save(folder / "training" / "v2.0" / "labels" / "05.png")
    with pytest.raises(LecoError, match=r"05\.png: is 10x10, but .* is 40x30"):
        vistas(vistas_root)
    (folder / "validation" / "v1.2" / "labels" / "02.png").unlink()
    (folder / "training" / "v2.0" / "labels" / "05.png").unlink()
    with pytest.raises(LecoError, match=r"05\.png does not exist; 1 masks are missing"):
        vistas(vistas_root)


BAD_CUB = {
    "not an archive": (b"junk", "is not the expected archive of features"),
    "no test set": (
        {"train_x": np.zeros((5, 2)), "train_y": np.zeros(5, int)},
        "is not the expected archive of features",
    ),
    "labels of another length": ({"test_y": np.zeros(3, int)}, "are not vectors and classes"),
    "labels that are no classes": ({"test_y": np.full(4, 0.5)}, "are not vectors and classes"),
    "labels beyond the taxonomy": ({"test_y": np.full(4, 9)}, "test_y must be 0 to 1"),
    "values too large": ({"test_x": np.full((4, 2), 1e300)}, "test_x holds NaN or infinity"),
    "vectors of another length": ({"test_x": np.zeros((4, 3))}, "test_x holds vectors of 3 numbers, train_x of 2"),
    "pickled objects": ({"test_x": np.array([object()] * 4)}, "is not the expected archive of features"),
}


@pytest.mark.parametrize("case", BAD_CUB)
def test_wrong_features_are_named(case, tmp_path):
    content, message = BAD_CUB[case]
    folder = tmp_path / "cub200-features"
    folder.mkdir()
    (folder / "taxonomy.csv").write_text("species,family,order\nA a,A,X\nB b,B,X\n")
    good = {
        "train_x": np.zeros((5, 2)),
        "train_y": np.zeros(5, int),
        "test_x": np.zeros((4, 2)),
        "test_y": np.zeros(4, int),
    }
    if isinstance(content, bytes):
        (folder / "features.npz").write_bytes(content)
    else:
        arrays = content if case == "no test set" else good | content
        np.savez(folder / "features.npz", **arrays, allow_pickle=True) if case == "pickled objects" else np.savez(
            folder / "features.npz", **arrays
        )
    with pytest.raises(LecoError, match=message) as error:
        _ = recipe("cub-leco").build(recipe("cub-leco"), tmp_path).test
    assert "features.npz" in str(error.value)


BAD_CAMVID = {
    "no val": ({"train": ["a"]}, "needs the lists of frames"),
    "a list": (["a"], "needs the lists of frames"),
    "a way out": ({"train": ["../../x"], "val": ["a"]}, "needs the lists of frames"),
    "the same frame twice": ({"train": ["a"], "val": ["a"]}, "duplicate frame"),
    "not JSON": (None, r"split\.json:1: not valid JSON"),
}


@pytest.mark.parametrize("case", BAD_CAMVID)
def test_wrong_frame_lists_are_named(case, tmp_path):
    content, message = BAD_CAMVID[case]
    folder = tmp_path / "camvid"
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    (folder / "classes.csv").write_text("id,name,group\n0,Road,Ground\n1,Void,\n")
    (folder / "split.json").write_text("{" if content is None else json.dumps(content))
    with pytest.raises(LecoError, match=message) as error:
        load("camvid-leco", tmp_path)
    assert "split.json" in str(error.value)


def test_mapillary_images_and_masks_are_scaled_alike(vistas_root):
    folder = vistas_root / "mapillary-vistas" / "training"
    classes = mapillary.MaskClasses.load(vistas_root / "mapillary-vistas" / "config_v2.0.json")
    image = letterbox(folder / "images" / "03.jpg", side=80)
    mask = mapillary._read_mask(folder / "v2.0" / "labels" / "03.png", side=80, classes=classes)
    assert image.shape == (3, 80, 80)
    assert (mask[60:] == -1).all()  # 40x30 becomes 80x60
    original = torch.from_numpy(np.asarray(Image.open(folder / "v2.0" / "labels" / "03.png")).astype(np.int64))
    assert torch.equal(mask[:60], original.repeat_interleave(2, 0).repeat_interleave(2, 1))


def test_missing_data_gives_one_message_with_the_remedy(tmp_path):
    for name in set(BENCHMARKS) - {"digits-leco"}:
        with pytest.raises(LecoError, match=f"{name} needs .*, but {tmp_path}.* does not exist; ") as error:
            load(name, tmp_path)
        assert "\n" not in str(error.value)


def test_unknown_benchmarks_and_sizes_are_named(tmp_path):
    with pytest.raises(LecoError, match=r"'cifar-lecco' is not a benchmark; did you mean 'cifar-leco-\d+k'\?"):
        load("cifar-lecco", tmp_path)
    with pytest.raises(LecoError, match="2 periods of 5,000 samples and 1,250 for validation need 12,500, but"):
        load("digits-leco", tmp_path, size=5_000).split(0)


def test_a_failed_download_is_reported(tmp_path, monkeypatch):
    def no_network(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    monkeypatch.setattr("urllib.request.urlretrieve", no_network)
    with pytest.raises(LecoError, match="CIFAR-100 could not be fetched from http"):
        cifar.fetch(tmp_path)


def test_a_pool_may_use_a_stored_split_that_fits_it(tmp_path):
    benchmark = load("digits-leco", tmp_path)
    split = benchmark.split(3)
    split.save(tmp_path / "s.json")
    assert benchmark.stored_split(tmp_path / "s.json").fingerprint == split.fingerprint
    load("digits-leco", tmp_path, size=400).split(0).save(tmp_path / "large.json")
    small = replace(benchmark, pool=replace(benchmark.pool, inputs=InMemory(torch.zeros(100, 1, 8, 8))))
    with pytest.raises(LecoError, match="is out of range; digits-leco has 100 samples"):
        small.stored_split(tmp_path / "large.json")


def test_noise_of_features_is_scaled_by_their_standard_deviations():
    features = torch.randn(2_000, 3) * torch.tensor([0.1, 1.0, 10.0])
    views = MODALITIES["features"].views(Samples(InMemory(features), {}), torch.arange(2_000))
    noise = views.weak(features, Draws(0, 0, torch.arange(2_000))) - features
    torch.testing.assert_close(noise.std(dim=0) / features.std(dim=0), torch.full((3,), 0.05), atol=0.005, rtol=0)


def test_an_archive_cannot_write_outside_its_folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "x").write_text("x")
    for name in ("../escaped", "/tmp/escaped-leco", "a/../../escaped"):
        archive = tmp_path / "bad.tar"
        with tarfile.open(archive, "w") as content:
            content.add(tmp_path / "x", arcname="fine")
            content.addfile(tarfile.TarInfo(name))
        with pytest.raises(LecoError, match="refused"):
            unpack(archive, inside)
        assert list(inside.iterdir()) == []
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        with tarfile.open(archive, "w") as content:
            content.add(tmp_path / "x", arcname="fine")
            member = tarfile.TarInfo("link")
            member.type, member.linkname = kind, "fine"
            content.addfile(member)
        with pytest.raises(LecoError, match="refused"):
            unpack(archive, inside)
        assert list(inside.iterdir()) == []
    with tarfile.open(archive, "w") as content:
        content.add(tmp_path / "x", arcname="fine")
    unpack(archive, inside)
    assert (inside / "fine").read_text() == "x"
    with pytest.raises(LecoError, match="already exists; move it away"):
        unpack(archive, inside)
    (inside / "fine").unlink()
    (tmp_path / "bad.tar").write_bytes(b"not a tar")
    with pytest.raises(LecoError, match="cannot be unpacked"):
        unpack(tmp_path / "bad.tar", inside)


def test_samples_of_no_period_have_no_labels_and_are_unlabelled_history():
    data = leco.benchmark("digits-leco", size=100)
    periods = data.periods(seed=0)
    annotated = periods.annotated(1, "with-unlabelled")
    others = annotated.history[-1].indices
    assert len(others) == len(periods.pool) - 2 * 125
    assert all((column.read(others) == -1).all() for column in periods.pool.labels.values())
    mine = torch.cat([part.indices for part in (annotated.newest, *annotated.history[:-1], annotated.validation)])
    assert (periods.pool.labels["v2"].read(mine) >= 0).all()
    assert (data.benchmark.pool.labels["v2"].read(others) >= 0).all()  # the benchmark knows them, training does not
    evidence = periods.until(1).evidence()
    batch = Steps(periods.pool, annotated, evidence, batch_size=64, seed=0, steps=1)[0].history
    hidden = torch.isin(batch.ids, others)
    assert hidden.any()
    assert (evidence.gather(batch.rows[hidden]) == 0).all()
    assert (evidence.gather(batch.rows[~hidden]) == -torch.inf).any(dim=1).all()

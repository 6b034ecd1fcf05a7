"""Features are embedded once per content, backbone and view, whatever happens in between."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from tests.commands import leco as command
from tests.stores import make_stages, write_store
from torch import Tensor, nn

import leco
from leco import LecoError, Ontology
from leco.data import file_digests
from leco.data.benchmarks import digits
from leco.data.images import middle_square
from leco.data.samples import Files, InMemory, Samples
from leco.data.views.sets import unchanged
from leco.experiments.embedded import embedded, held
from leco.experiments.embedding import Embedder, embed
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine, Stopped
from leco.experiments.run import run_stage
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.models.backbones import check_backbone

SIDE, DIMENSIONS = 8, 5


class Backbone(nn.Module):
    """A fixed linear map of the pixels, which counts the images that it sees."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        weights = torch.randn(DIMENSIONS, 3 * SIDE * SIDE, generator=torch.Generator().manual_seed(1))
        self.weights = nn.Parameter(weights, requires_grad=False)
        self.seen, self.calls, self.fails_at = 0, 0, fails_at

    def forward(self, images: Tensor) -> Tensor:
        if self.calls == self.fails_at:
            raise RuntimeError("out of memory")
        self.calls += 1
        self.seen += len(images)
        return images.flatten(1) @ self.weights.T


def shrink(images: Tensor) -> Tensor:
    return images.float() / 255


def embedder_of(backbone: nn.Module, key: str = "toy", view: str = "plain") -> Embedder:
    return Embedder(backbone, key, unchanged, shrink, view)


def write_images(folder: Path, numbers: Sequence[int], suffix: str = "png") -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.{suffix}" for number in numbers]
    for path, number in zip(paths, numbers, strict=True):
        pixels = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return paths


def decode(path: Path) -> Tensor:
    return middle_square(path, SIDE)


def lazily(paths: Sequence[Path]) -> Samples:
    return Samples(Files(paths, decode), {}, files=paths)


def in_memory(paths: Sequence[Path]) -> Samples:
    return Samples(Files(paths, decode).held(), {}, files=paths)


@dataclass
class Bench:
    """A store, and what embedding did and said."""

    store: Store
    said: list[str] = field(default_factory=list)

    def new(self, samples: Samples, backbone: Backbone | None = None, *, workers: int = 0, **options: object) -> int:
        """Embed all samples, compare with a plain loop, and return how many were new."""
        backbone = backbone or Backbone()
        machine = Machine("cpu", workers, say=self.said.append, note=self.said.append)
        everything = torch.arange(len(samples))
        column = embed(samples, everything, embedder_of(backbone), self.store, machine, **options)
        expected = Backbone()(shrink(samples.inputs.read(everything)))
        torch.testing.assert_close(column.read(everything), expected)
        return backbone.seen

    @property
    def folder(self) -> Path:
        return self.store.features / embedder_of(Backbone()).fingerprint

    @property
    def shards(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Store(tmp_path / "runs"))


def test_features_are_computed_once(bench, tmp_path):
    samples = lazily(write_images(tmp_path / "photos", range(20)))
    assert [bench.new(samples, batch=8) for _ in range(2)] == [20, 0]
    (line,) = bench.said
    assert line.startswith("embedded 20 new images of 20 with toy in ")
    assert line.endswith(" images/s)")
    about = json.loads((bench.folder / "about.json").read_text())
    assert about == {"format": 1, "backbone": "toy", "view": "plain", "dimensions": DIMENSIONS}


def test_of_a_set_that_grew_only_the_new_images_are_embedded(bench, tmp_path):
    assert bench.new(lazily(write_images(tmp_path / "photos", range(20)))) == 20
    assert bench.new(lazily(write_images(tmp_path / "photos", [*range(10), 100, 101, 102, *range(10, 20)]))) == 3
    assert "embedded 3 new images of 23" in bench.said[-1]


def test_a_renamed_file_is_not_embedded_again(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(6))
    bench.new(lazily(paths))
    assert bench.new(lazily([paths[0].rename(tmp_path / "other.png"), *paths[1:]])) == 0


def test_a_changed_file_is_embedded_again_even_if_name_size_and_time_are_the_same(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(6), "bmp")
    bench.new(lazily(paths))
    before = paths[1].stat()
    paths[1].write_bytes(write_images(tmp_path / "more", [7], "bmp")[0].read_bytes())
    os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (paths[1].stat().st_size, paths[1].stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert bench.new(lazily(paths)) == 1


def test_a_file_is_only_read_again_when_it_changed(bench, tmp_path, monkeypatch):
    paths = write_images(tmp_path / "photos", range(6))
    bench.new(lazily(paths))
    read = []
    digest = file_digests._content
    monkeypatch.setattr(file_digests, "_content", lambda path: read.append(path) or digest(path))
    bench.new(lazily(paths))
    assert read == []
    paths[2].touch()
    assert bench.new(lazily(paths)) == 0
    assert read == [paths[2]]


@pytest.mark.parametrize("order", [(lazily, in_memory), (in_memory, lazily)])
def test_it_does_not_matter_whether_images_are_held_in_memory(bench, tmp_path, order):
    paths = write_images(tmp_path / "photos", range(6))
    assert [bench.new(read(paths)) for read in order] == [6, 0]


def test_images_without_files_are_known_by_their_pixels(bench, tmp_path):
    pixels = torch.randint(0, 256, (7, 3, SIDE, SIDE), dtype=torch.uint8)
    assert bench.new(Samples(InMemory(pixels), {})) == 7
    assert bench.new(Samples(InMemory(pixels.flip(0)), {})) == 0
    assert bench.new(Samples(InMemory(255 - pixels[:2]), {})) == 2


def test_equal_images_are_embedded_once(bench, tmp_path):
    paths = [*write_images(tmp_path / "one", range(3)), *write_images(tmp_path / "two", range(4))]
    assert bench.new(lazily(paths)) == 4


@pytest.mark.parametrize("fails_at", range(5))
def test_after_an_error_it_continues_where_it_was(bench, tmp_path, fails_at):
    samples = lazily(write_images(tmp_path / "photos", range(20)))
    with pytest.raises(RuntimeError, match="out of memory"):
        bench.new(samples, Backbone(fails_at), batch=4)
    assert bench.new(samples, batch=4) == 20 - 4 * fails_at


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def scribble(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def swap(path: Path) -> None:
    """Put the shard of another table in its place."""
    path.write_bytes(next((path.parent.parent / "files").glob("*.safetensors")).read_bytes())


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [truncate, scribble, swap, pipe, lambda path: path.write_bytes(b"")])
def test_a_damaged_shard_is_named_and_its_images_are_embedded_again(bench, tmp_path, damage: Callable[[Path], object]):
    samples = lazily(write_images(tmp_path / "photos", range(20)))
    bench.new(samples, batch=4, shard=8)
    assert len(bench.shards) == 3
    damaged = bench.shards[1]
    damage(damaged)
    bench.said.clear()
    assert bench.new(samples) == 8
    assert bench.said[0].startswith(f"{damaged}: is damaged (")
    assert bench.said[0].endswith(") and ignored; delete it")
    assert "\n" not in bench.said[0]
    damaged.unlink()
    bench.said.clear()
    assert (bench.new(samples), bench.said) == (0, [])


def test_features_that_were_damaged_on_disk_are_named_and_not_the_learning_rate(bench, tmp_path):
    samples = lazily(write_images(tmp_path / "photos", range(4)))
    bench.new(samples)
    (path,) = bench.shards
    content = load_file(path)
    content["values"][2, 0] = torch.nan
    save_file(content, path)
    with pytest.raises(LecoError, match=f"{bench.folder}: is damaged: features are NaN or infinite; delete the folder"):
        bench.new(samples)


def test_what_a_killed_process_left_unfinished_is_ignored_and_later_deleted(bench, tmp_path):
    samples = lazily(write_images(tmp_path / "photos", range(4)))
    bench.folder.mkdir(parents=True)
    old, recent = (bench.folder / f".leco-1-{name}.tmp" for name in ("0123abcd", "4567cdef"))
    for path in (old, recent):
        path.write_bytes(b"half a shard")
    os.utime(old, (0, 0))
    assert [bench.new(samples) for _ in range(2)] == [4, 0]
    assert [path for path in (old, recent) if path.exists()] == [recent]  # which may belong to another process
    assert len(bench.said) == 1


def test_a_damaged_memory_of_files_costs_reading_them_again(bench, tmp_path):
    samples = lazily(write_images(tmp_path / "photos", range(4)))
    bench.new(samples)
    for path in (bench.store.features / "files").iterdir():
        scribble(path)
    assert bench.new(samples) == 0
    assert any("is damaged" in line for line in bench.said)


def test_other_weights_and_views_are_not_mixed_up(tmp_path):
    periods = periods_of(experiment("digits-leco", {"size": 40}, {}), Path())
    networks = [nn.Sequential(nn.Flatten(), nn.Linear(64, 3)) for _ in range(2)]
    narrower = replace(periods, normalise=replace(periods.normalise, std=periods.normalise.std * 2))
    other_view = replace(periods, views=replace(periods.views, evaluate=lambda images, _: images.flip(3)))
    embedders = [Embedder.of(networks[0], "net", data) for data in (periods, narrower, other_view)]
    embedders += [Embedder.of(networks[1], "net", periods), Embedder.of(networks[0], "other", periods)]
    assert len({found.fingerprint for found in embedders}) == 5
    assert Embedder.of(networks[0], "net", periods).fingerprint == embedders[0].fingerprint
    indices, store = torch.arange(10), Store(tmp_path)
    for found in embedders * 2:
        column = embed(periods.pool, indices, found, store, Machine("cpu"))
        expected = found.features(periods.pool.inputs.read(indices), indices)
        torch.testing.assert_close(column.read(indices), expected)


def test_a_backbone_under_the_key_of_another_is_refused(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(4))
    bench.new(lazily(paths[:3]))
    wrong = embedder_of(nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 2)))
    with pytest.raises(LecoError, match=r"holds features of 5 dimensions, but toy returns 2; delete the folder"):
        embed(lazily(paths), torch.arange(4), wrong, bench.store, Machine("cpu"))


def test_several_may_embed_at_once(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(40))
    together = threading.Barrier(4)
    errors: list[Exception] = []

    class Waiting(Backbone):
        def forward(self, images: Tensor) -> Tensor:
            if self.calls == 0:
                together.wait(60)  # so that all have seen an empty store
            return super().forward(images)

    def work(start: int) -> None:
        try:
            samples = lazily(paths[start : start + 25])
            embed(samples, torch.arange(25), embedder_of(Waiting()), bench.store, Machine("cpu"), batch=4, shard=4)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(5 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(bench.shards) == 4 * 7
    assert (bench.new(lazily(paths)), bench.said) == (0, [])


def test_only_what_is_asked_for_is_embedded_and_the_rest_is_zero(bench, tmp_path):
    samples, backbone = lazily(write_images(tmp_path / "photos", range(9))), Backbone()
    column = embed(samples, torch.tensor([7, 2, 7]), embedder_of(backbone), bench.store, Machine("cpu"))
    assert (len(column), backbone.seen) == (9, 2)
    assert column.read(torch.arange(9)).any(dim=1).nonzero().flatten().tolist() == [2, 7]


def test_memory_does_not_grow_with_the_number_of_images(bench, tmp_path):
    images = torch.randint(0, 256, (400, 3, SIDE, SIDE), dtype=torch.uint8)
    living: set[int] = set()
    most = 0

    class Watched:
        """A column that counts the batches that somebody holds."""

        def __len__(self) -> int:
            return len(images)

        def read(self, indices: Tensor) -> Tensor:
            nonlocal most
            batch, number = images[indices], next(numbers)
            living.add(number)
            weakref.finalize(batch, living.discard, number)
            most = max(most, len(living))
            return batch

    numbers = itertools.count()
    machine = Machine("cpu")
    column = embed(
        Samples(Watched(), {}), torch.arange(400), embedder_of(Backbone()), bench.store, machine, batch=4, shard=40
    )
    assert next(numbers) >= 100
    assert most < 12
    held = [*column.shards.blocks]
    assert len(held) == 10
    mapped = Path("/proc/self/maps").read_text()
    assert all(str(path) in mapped for path in bench.shards)


def test_files_can_be_read_by_other_processes(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(9))
    assert bench.new(lazily(paths), workers=2, batch=2) == 9
    paths[3].write_bytes(b"no image")
    with pytest.raises(LecoError, match=r"^\S+3.png: is not an image"):
        bench.new(lazily(paths), workers=1)


def test_progress_counts_new_images(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(9))
    bench.new(lazily(paths[:2]))
    ticks: list[tuple[float, float | None]] = []
    for _ in range(2):
        bench.new(lazily(paths), batch=3, tick=lambda done, total: ticks.append((done, total)))
    assert ticks == [(0, 7), (3, 7), (6, 7), (7, 7)]


def test_a_request_to_stop_keeps_what_is_done(bench, tmp_path):
    samples, backbone = lazily(write_images(tmp_path / "photos", range(20))), Backbone()
    machine = Machine("cpu", stop=lambda: backbone.calls == 2)
    with pytest.raises(Stopped):
        embed(samples, torch.arange(20), embedder_of(backbone), bench.store, machine, batch=4)
    assert bench.new(samples) == 12


def test_features_that_are_not_numbers_are_refused_and_not_kept(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(4))

    class Broken(Backbone):
        def forward(self, images: Tensor) -> Tensor:
            features = super().forward(images)
            features[-1, 0] = torch.inf
            return features

    with pytest.raises(LecoError, match=r"3\.png: its features of toy are NaN or infinite"):
        bench.new(lazily(paths), Broken())
    assert bench.shards == []


def test_maps_are_refused(bench, tmp_path):
    samples = lazily(write_images(tmp_path / "photos", range(2)))
    with pytest.raises(LecoError, match=r"toy: returns \(2, 3, 8, 8\) for 2 images, not a vector for each"):
        embed(samples, torch.arange(2), embedder_of(nn.Identity()), bench.store, Machine("cpu"))


def test_a_file_that_changes_meanwhile_is_not_kept_under_its_old_content(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(2))

    def change_then_decode(path: Path) -> Tensor:
        path.write_bytes(paths[1].read_bytes())
        return decode(path)

    changing = Samples(Files(paths[:1], change_then_decode), {})
    with pytest.raises(LecoError, match=r"0\.png: changed while it was embedded; run the same command again"):
        bench.new(changing)
    assert bench.shards == []


def test_a_file_that_changed_after_it_was_read_is_not_kept_under_its_new_content(bench, tmp_path):
    paths = write_images(tmp_path / "photos", range(2))
    os.utime(paths[0], ns=(0, 0))
    held = replace(in_memory(paths), read_ns=max(path.stat().st_ctime_ns for path in paths))
    assert bench.new(held) == 2
    before = bench.shards
    time.sleep(0.05)  # clocks of file systems are coarse
    paths[0].write_bytes(paths[1].read_bytes() + b" ")
    with pytest.raises(LecoError, match=r"0\.png: changed after it was read; read the dataset again"):
        bench.new(held)
    assert bench.shards == before


def test_datasets_remember_when_they_were_read(tmp_path):
    before = time.time_ns()
    write_images(tmp_path / "photos", range(12))
    table = {"image": [f"{number}.png" for number in range(12)], "label": ["a", "b"] * 6, "version": ["v1"] * 12}
    ontology = leco.Ontology.from_dict({"versions": [{"name": "v1", "classes": ["a", "b"]}]})
    pool = leco.Dataset.from_table(table, ontology, root=tmp_path / "photos", image_size=32).periods().pool
    assert isinstance(pool.inputs, InMemory)
    assert before < pool.read_ns < time.time_ns()


def test_a_missing_file_is_named(bench, tmp_path):
    with pytest.raises(LecoError, match=r"gone\.png: cannot be read: No such file"):
        embed(lazily([tmp_path / "gone.png"]), torch.arange(1), embedder_of(Backbone()), bench.store, Machine("cpu"))


ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
CHILD = """
import sys, time, torch
from pathlib import Path
from tests.unit.experiments.test_embedding import Backbone, embedder_of, lazily
from leco.experiments.embedding import embed
from leco.experiments.machine import Machine
from leco.experiments.store import Store

class Slow(Backbone):
    def forward(self, images):
        time.sleep(0.05)
        return super().forward(images)

paths = sorted(Path(sys.argv[1]).glob("*.png"))
column = embed(
    lazily(paths), torch.arange(len(paths)), embedder_of(Slow()), Store(Path(sys.argv[2])), Machine("cpu", note=print),
    batch=2, shard=4,
)
assert column.read(torch.arange(len(paths))).any(dim=1).all()
"""


def test_a_killed_process_leaves_what_it_has_written(bench, tmp_path):
    paths = sorted(write_images(tmp_path / "photos", range(200)))
    (tmp_path / "child.py").write_text(CHILD)
    command = [sys.executable, tmp_path / "child.py", tmp_path / "photos", bench.store.stages.parent]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        deadline = time.monotonic() + 120
        while len(bench.shards) < 3 and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
    kept = 4 * len(bench.shards)
    assert 12 <= kept < 200
    assert bench.new(lazily(paths)) == 200 - kept
    assert not any("damaged" in line for line in bench.said)


@pytest.mark.slow
def test_the_processes_of_torchrun_share_the_images(bench, tmp_path):
    paths = sorted(write_images(tmp_path / "photos", range(15)))
    bench.new(lazily(paths[:2]))
    before = len(bench.shards)
    (tmp_path / "child.py").write_text(CHILD)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = [*torchrun, tmp_path / "child.py", tmp_path / "photos", bench.store.stages.parent]
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("embedded 13 new images of 15") == 1
    assert len(bench.shards) == before + 2 + 2  # of 7 and of 6 images, 4 in a shard
    assert bench.new(lazily(paths)) == 0


def test_lists_and_reports_of_a_store_do_not_mind_features(bench, tmp_path):
    bench.new(lazily(write_images(tmp_path / "photos", range(3))))
    runs = bench.store.stages.parent
    bench.store.check()
    assert "holds no runs" in command("runs", "list", runs).stderr
    write_store(runs, make_stages([0], {"ce": 0.5}, cells=()))
    for call in (["runs", "list", runs], ["runs", "prune", runs], ["report", runs, "-o", tmp_path / "report.md"]):
        result = command(*call)
        assert result.returncode == 0, result.stderr
    assert bench.new(lazily(write_images(tmp_path / "photos", range(3)))) == 0


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "features").touch()
    with pytest.raises(LecoError, match="features: is not a folder; choose another folder for runs"):
        Store(tmp_path).check()
    with pytest.raises(LecoError, match="features"):
        Bench(Store(tmp_path)).new(lazily(write_images(tmp_path / "photos", range(3))))


# Periods


def write_digits(folder: Path) -> Path:
    """Digits as files: older ones by stroke, newer ones by digit, the last ones for testing."""
    bunch = load_digits()
    ontology = digits.ontology()
    ontology.save(folder / "ontology.yaml")
    rows = ["image,label,version,split"]
    for number in range(260):
        pixels = (bunch.images[number] * 15).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03}.png")
        fine = str(bunch.target[number])
        version = "v1" if number < 100 else "v2"
        label = ontology.translate([fine], "v2", "v1")[0] if version == "v1" else fine
        rows.append(f"{number:03}.png,{label},{version},{'test' if number >= 200 else 'train'}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    (folder / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml, image_size: 8}\nmethod: lpl\n"
        "training: {network: {backbone: linear}, batches: {steps: 40, evaluate_every: 20, size: 16}}\n"
    )
    return folder


def test_training_on_embedded_periods_is_training_on_the_same_vectors(tmp_path):
    folder = write_digits(tmp_path)
    wanted = experiment(str(folder / "experiment.yaml"), {}, {})
    images = periods_of(wanted, folder)
    backbone, machine = Backbone(), Machine("cpu")
    found = embedded(images, Embedder.of(backbone, "toy", images), Store(tmp_path / "runs"), machine)
    assert backbone.seen == 260
    assert (found.modality.name, tuple(found.shape)) == ("features", (DIMENSIONS,))
    assert found.test is found.pool
    assert len({found.fingerprint, found.learned, found.data, images.fingerprint, images.learned, images.data}) == 6
    assert found.learned.endswith(leco.data.UNTESTED)
    assert "embedded with toy " in found.source

    table = [line.split(",") for line in (folder / "labels.csv").read_text().splitlines()[1:]]
    _, labels, versions, split = zip(*table, strict=True)
    vectors = found.pool.inputs.read(torch.arange(260))
    arrays = leco.Dataset.from_arrays(vectors, labels, versions, ontology=folder / "ontology.yaml", split=split)
    results = []
    for periods in (found, arrays.periods(wanted.seed)):
        store = Store(tmp_path / periods.name)
        stages = plan(wanted, periods).stages
        results.append([run_stage(stage, periods, store, machine) for stage in stages])
        networks = [store.weights(stage.fingerprint).read_bytes() for stage in stages]
        results[-1].append(networks)
    for mine, theirs in zip(results[0][:-1], results[1][:-1], strict=True):
        for key in ("stage", "version", "samples", "best_step", "validation", "test"):
            assert getattr(mine, key) == getattr(theirs, key)
    assert results[0][-1] == results[1][-1]
    assert results[0][1].test["v2"].macc > 0.3


def test_seeds_and_periods_without_a_test_set_share_the_features(tmp_path):
    folder = write_digits(tmp_path)
    backbone, store = Backbone(), Store(tmp_path / "runs")
    fingerprints = set()
    for seed, tested, expected in ((0, False, 200), (0, True, 260), (1, True, 260)):
        wanted = experiment(str(folder / "experiment.yaml"), {"seed": seed}, {})
        images = periods_of(wanted, folder, tested=tested)
        found = embedded(images, replace(Embedder.of(backbone, "toy", images), view="v"), store, Machine("cpu"))
        assert backbone.seen == expected
        assert len(found.tested(1)) == (60 if tested else 0)
        fingerprints.add(found.fingerprint)
    assert len(fingerprints) == 3


def test_benchmarks_have_a_test_set_of_its_own(tmp_path):
    periods = periods_of(experiment("digits-leco", {"size": 40}, {}), Path())
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    found = embedded(periods, Embedder.of(network, "net", periods), Store(tmp_path), Machine("cpu"))
    ids = torch.arange(len(periods.test))
    expected = network(periods.normalise(periods.test.inputs.read(ids)))
    torch.testing.assert_close(found.test.inputs.read(ids), expected.detach())
    trained = found.annotated(1, "all-fine").newest.indices
    assert found.pool.inputs.read(trained).any(dim=1).all()


def test_features_that_are_held_in_memory_are_the_same(tmp_path):
    images = periods_of(experiment(str(write_digits(tmp_path) / "experiment.yaml"), {}, {}), tmp_path)
    stored = embedded(images, Embedder.of(Backbone(), "toy", images), Store(tmp_path / "runs"), Machine("cpu"))
    kept = held(stored)
    assert kept.test is kept.pool
    ids = torch.tensor([7, 2, 259, 7])
    assert torch.equal(kept.pool.inputs.read(ids), stored.pool.inputs.read(ids))
    for path in (tmp_path / "runs" / "features").rglob("*.safetensors"):
        path.write_bytes(b"")  # nothing is read any more
    assert kept.pool.inputs.read(ids).any(dim=1).all()


def test_what_was_not_embedded_stays_zero_in_memory(bench, tmp_path):
    samples = lazily(write_images(tmp_path / "photos", range(9)))
    column = embed(samples, torch.tensor([7, 2]), embedder_of(Backbone()), bench.store, Machine("cpu")).held()
    assert column.read(torch.arange(9)).any(dim=1).nonzero().flatten().tolist() == [2, 7]


def test_the_view_is_described_by_names_and_options_alone(tmp_path):
    images = periods_of(experiment("digits-leco", {"size": 40}, {}), Path()).resized(16)
    found = Embedder.of(Backbone(), "toy", images)
    assert "sets.resized({'view': 'leco.data.views.sets.unchanged', 'side': 16})" in found.view
    assert "0x" not in found.view
    assert found.fingerprint != Embedder.of(Backbone(), "toy", images.resized(8)).fingerprint


# A hidden layer on stored features

TUNED = "test_efficientnet"  # the smallest of timm's models for tests


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    network = timm.create_model(TUNED, pretrained=False)
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def settings_of(weights: Path, backbone: str) -> dict[str, dict[str, object]]:
    return {
        "network": {"backbone": backbone, "weights": str(weights), "embed": True},
        "batches": {"steps": 12, "size": 16, "evaluate_every": 6},
        "views": {"resize": 32},
    }


@pytest.mark.parametrize("backbone", [TUNED, f"{TUNED}+mlp", f"{TUNED}+roots"])
def test_the_model_predicts_from_images_what_was_scored_on_features(tmp_path, weights, backbone):
    data = leco.Dataset.from_manifest(write_digits(tmp_path) / "labels.csv", tmp_path / "ontology.yaml", image_size=8)
    trained = leco.train(data, method="lpl", store=tmp_path / "runs", progress=False, **settings_of(weights, backbone))
    stored = trained.scores["test"]["v2"]
    assert trained.description.side == 32
    assert trained.evaluate(
        leco.Dataset.from_manifest(tmp_path / "labels.csv", tmp_path / "ontology.yaml", image_size=32)
    )["v2"].macc == pytest.approx(stored.macc, abs=0.05)  # Pillow scales images to 32 pixels, and rounds otherwise


def test_strategies_differ_in_what_they_do_with_the_hidden_layer(tmp_path, weights):
    data = leco.Dataset.from_manifest(write_digits(tmp_path) / "labels.csv", tmp_path / "ontology.yaml", image_size=8)
    layers, first = {}, None
    for strategy in ("finetune", "freeze", "scratch"):
        wanted = experiment(
            str(tmp_path / "experiment.yaml"),
            {"strategy": strategy, "method": "ce", "training": settings_of(weights, f"{TUNED}+mlp")},
            {},
        )
        periods, store = periods_of(wanted, tmp_path), Store(tmp_path / "runs")
        stages = plan(wanted, periods).stages
        for stage in stages:
            run_stage(stage, periods, store, Machine("cpu"))
        name = "backbone.layers.0.weight"
        first = load_file(store.weights(stages[0].fingerprint))[name]
        layers[strategy] = load_file(store.weights(stages[-1].fingerprint))[name]
    assert data.is_benchmark is False
    assert first is not None
    assert torch.equal(layers["freeze"], first)
    assert not torch.equal(layers["finetune"], first)
    # Fine-tuning stays close to where it started; another start does not.
    distance = {name: float((layer - first).norm()) for name, layer in layers.items()}
    assert distance["finetune"] < 0.5 * distance["scratch"]


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ("linear+mlp", "'linear.mlp' is not a backbone; put mlp or roots on a backbone of images"),
        (f"{TUNED}+resnet18", "put mlp or roots on a backbone of images"),
    ],
)
def test_only_mlp_and_roots_go_on_top_of_a_backbone_of_images(backbone, message):
    with pytest.raises(LecoError, match=message):
        check_backbone(backbone)


def test_images_alone_are_resized(tmp_path):
    vectors = leco.Dataset.from_arrays(
        torch.rand(40, 4),
        ["a", "b"] * 20,
        ["v1"] * 40,
        ontology=Ontology.from_dict({"name": "two", "versions": [{"name": "v1", "classes": ["a", "b"]}]}),
    )
    with pytest.raises(LecoError, match=r"training\.views\.resize: is for classification of images, not features"):
        leco.train(vectors, views={"resize": 32}, store=tmp_path, progress=False)

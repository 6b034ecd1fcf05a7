"""Large images and masks, read from copies at the size that is trained at."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier, current_thread

import numpy as np
import pytest
import torch
from PIL import Image

from leco import LecoError
from leco.data.batches import Steps
from leco.data.copies import Copies, write_copy
from leco.data.images import letterbox, letterbox_mask, letterbox_size
from leco.data.manifest_samples import _mask_or_none
from leco.data.periods import Annotated, Part
from leco.data.samples import Files, Samples, Window
from leco.data.views.segmentation import JointCrop
from leco.experiments import shrinking
from leco.experiments.machine import Machine, Stopped
from leco.experiments.shrinking import shrunken_samples
from leco.ontology.ontology import Ontology

SIDE = 300
SIZES = [(400, 300), (300, 400), (500, 200), (290, 300)]
ONTOLOGY = Ontology.from_taxonomy("made-up", ["v1", "v2"], [(f"c{n // 3}", f"f{n}") for n in range(30)])
CROP = JointCrop(base_size=SIDE, crop=90, scale=(0.5, 2.1))
MACHINE = Machine("cpu")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "_SHRUNKEN", {})


def photograph(width: int, height: int, seed: int) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (height // 20, width // 20, 3)).astype(np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    """Photographs of several sizes, the last without a mask of v1."""
    images, masks = [], {"v1": [], "v2": []}
    for number, (width, height) in enumerate(SIZES):
        images.append(tmp_path / f"{number}.jpg")
        photograph(width, height, number).save(images[-1], quality=95)
        fine = np.random.default_rng(number).integers(0, 31, (height, width)).astype(np.uint8)
        fine[fine == 30] = 255
        for version, values in (("v1", np.where(fine == 255, 255, fine // 3)), ("v2", fine)):
            masks[version].append(tmp_path / f"{number}-{version}.png")
            Image.fromarray(values.astype(np.uint8)).save(masks[version][-1])
    masks["v1"][-1] = Path()
    labels = {version: Files(paths, partial(_mask_or_none, side=SIDE)) for version, paths in masks.items()}
    sizes = Files(images, partial(letterbox_size, side=SIDE))
    return Samples(Files(images, partial(letterbox, side=SIDE)), labels, sizes, keeps_labels=True, files=images)


def steps(samples: Samples, ids: Sequence[int] = (0, 1, 2)) -> Steps:
    annotated = Annotated(Part("v2", torch.tensor(ids)), (Part("v1", torch.tensor(ids)),), Part("v2", torch.tensor([])))
    return Steps(samples, annotated, ONTOLOGY.evidence(), 3, 0, steps=40, crop=CROP)


def test_copies_hold_the_same_labels_and_images_within_the_error_of_jpeg(samples, tmp_path):
    everything = torch.arange(4)
    found = shrunken_samples(samples, tmp_path / "copies", MACHINE)
    assert isinstance(found.inputs, Copies)
    assert torch.equal(found.sizes.read(everything), samples.sizes.read(everything))
    for version, column in samples.labels.items():
        assert torch.equal(found.labels[version].read(everything), column.read(everything))
    assert (found.labels["v1"].read(everything)[3] == -1).all()
    error = (found.inputs.read(everything).float() - samples.inputs.read(everything).float()).abs()
    assert error.mean() < 1
    assert error.max() <= 12


def test_crops_of_copies_are_those_of_the_files_within_the_error_of_jpeg(samples, tmp_path):
    slow, fast = steps(samples), steps(shrunken_samples(samples, tmp_path / "copies", MACHINE))
    for step in range(3):
        for mine, theirs in ((fast[step].new, slow[step].new), (fast[step].history, slow[step].history)):
            assert torch.equal(mine.rows, theirs.rows)
            assert all(torch.equal(mine.labels[v], theirs.labels[v]) for v in ("v1", "v2"))
            error = (mine.inputs.float() - theirs.inputs.float()).abs()
            assert error.mean() < 1
            assert error.max() <= 13  # that of the copies, and rounding


def test_only_the_part_that_a_crop_shows_is_read_and_gives_the_same_crop(samples):
    everything = torch.arange(4)
    held = replace(
        samples,
        inputs=samples.inputs.held(),
        labels={version: column.held() for version, column in samples.labels.items()},
    )
    part = steps(held)
    for step in range(12):
        (ids,) = part[step].new.ids[:1].split(1)
        box = CROP.box(ids, held.sizes.read(ids), 0, step)
        seen = held.within(box).inputs.read(ids)
        assert seen.shape[-2:] == (box[1] - box[0], box[3] - box[2])
        whole = part.read(part.new, (part.new.indices == ids).nonzero()[0])
        expected = CROP(whole, 0, step)
        assert torch.equal(part[step].new.inputs[:1], expected.inputs)
        assert torch.equal(part[step].new.rows[:1], expected.rows)
    assert torch.equal(held.inputs.read(everything), samples.inputs.read(everything))


def test_a_part_of_a_copy_is_that_part_of_the_whole(samples, tmp_path):
    found = shrunken_samples(samples, tmp_path / "copies", MACHINE)
    one = torch.tensor([1])
    for box in ((0, 1, 0, 1), (120, 140, 7, 99), (127, 129, 0, 225), (128, 300, 10, 20), (0, 300, 0, 225)):
        top, bottom, left, right = box
        for column in (found.inputs, *found.labels.values()):
            assert torch.equal(Window(column, box).read(one), column.read(one)[..., top:bottom, left:right])


def test_copies_are_made_once_and_what_is_missing_is_added(samples, tmp_path, monkeypatch):
    folder = tmp_path / "copies"
    shrunken_samples(samples, folder, MACHINE)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.zip")}
    assert len(before) == 4 + 4 + 3
    shrinking._SHRUNKEN.clear()
    lost = next(iter(before))
    lost.unlink()
    again = shrunken_samples(samples, folder, MACHINE)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*.zip")}
    assert after.keys() == before.keys()
    assert sum(after[path] != before[path] for path in after) <= 3  # of one sample
    assert shrunken_samples(samples, folder, MACHINE) is again


def test_a_file_that_changed_is_shrunken_again(samples, tmp_path):
    folder = tmp_path / "copies"
    before = shrunken_samples(samples, folder, MACHINE).inputs.read(torch.tensor([0]))
    photograph(*SIZES[0], 99).save(samples.files[0], quality=95)
    os.utime(samples.files[0], ns=(1, 1))
    shrinking._SHRUNKEN.clear()
    after = shrunken_samples(samples, folder, MACHINE).inputs.read(torch.tensor([0]))
    assert (after.float() - letterbox(samples.files[0], SIDE).float()).abs().mean() < 1
    assert (after.float() - before.float()).abs().mean() > 10


def test_shrinking_that_is_stopped_continues(samples, tmp_path):
    folder, asked = tmp_path / "copies", iter([False, True])
    with pytest.raises(Stopped):
        shrunken_samples(samples, folder, Machine("cpu", stop=lambda: next(asked, True)))
    found = shrunken_samples(samples, folder, MACHINE)
    assert torch.equal(found.labels["v2"].read(torch.arange(4)), samples.labels["v2"].read(torch.arange(4)))


def test_workers_make_the_same_copies(samples, tmp_path):
    for name, workers in (("threads", 0), ("processes", 2)):
        shrunken_samples(samples, tmp_path / name, replace(MACHINE, workers=workers))
    made = [{p.name: p.read_bytes() for p in (tmp_path / name).rglob("*.zip")} for name in ("threads", "processes")]
    assert made[0] == made[1]


class Rank:
    """One of two processes of `torchrun`, as a thread."""

    barriers, sent = Barrier(2, timeout=60), list[object]()
    world_size = 2

    def __init__(self, rank: int) -> None:
        self.global_rank, self.is_global_zero = rank, rank == 0

    def barrier(self) -> None:
        self.barriers.wait()

    def broadcast(self, value: object) -> object:
        if self.is_global_zero:
            self.sent.append(value)
        self.barrier()
        return self.sent[-1]


def test_the_processes_of_torchrun_share_the_work(samples, tmp_path, monkeypatch):
    made: list[tuple[str, str]] = []

    def write(path: Path, pixels: torch.Tensor) -> None:
        made.append((current_thread().name, path.name))
        write_copy(path, pixels)

    one_by_one = lambda make, items, workers: (make(item) for item in items)  # noqa: E731 (warning filters are global)
    monkeypatch.setattr(shrinking, "read_ahead", one_by_one)
    monkeypatch.setattr(shrinking, "write_copy", write)
    with ThreadPoolExecutor(2) as pool:
        machines = [replace(MACHINE, own_fabric=Rank(rank)) for rank in range(2)]
        work = [pool.submit(shrinking._shrink, samples, tmp_path / "copies", machine) for machine in machines]
        found = [ended.result() for ended in work]
    assert len(made) == len({name for _, name in made}) == 4 + 4 + 3
    assert len({thread for thread, _ in made}) == 2
    for one in found:
        assert torch.equal(one.labels["v2"].read(torch.arange(4)), samples.labels["v2"].read(torch.arange(4)))


def test_a_damaged_copy_is_named(samples, tmp_path):
    found = shrunken_samples(samples, tmp_path / "copies", MACHINE)
    path = found.inputs.paths[0]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(LecoError, match=rf"{path.name}: is damaged .*; delete it"):
        found.inputs.read(torch.tensor([0]))


def test_a_file_that_cannot_be_decoded_is_named(samples, tmp_path):
    samples.files[2].write_bytes(b"no image")
    with pytest.raises(LecoError, match=r"2\.jpg: is not an image"):
        shrunken_samples(samples, tmp_path / "copies", MACHINE)


def test_samples_in_memory_are_left_alone(samples, tmp_path):
    held = replace(samples, inputs=samples.inputs.held())
    assert shrunken_samples(held, tmp_path / "copies", MACHINE) is held
    assert letterbox_mask(np.zeros((2, 2)), 2).shape == (2, 2)

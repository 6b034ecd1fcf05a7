"""Samples are identified by their contents, whether they are in memory or read when they are needed."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.manifests import write_image

from leco.data import file_digests
from leco.data.masks import decode_mask
from leco.data.samples import Files, InMemory, Samples
from leco.dataset.periods import contents


@pytest.fixture
def paths(tmp_path) -> list[Path]:
    found = [write_image(tmp_path / "photos" / f"{n}.bmp", seed=n) for n in range(6)]
    assert len({path.stat().st_size for path in found}) == 1
    return found


def lazily(paths: list[Path]) -> Samples:
    def never(path: Path) -> torch.Tensor:
        raise AssertionError(f"{path} need not be decoded")

    return Samples(Files(paths, never), {"v1": InMemory(torch.arange(len(paths)))})


def test_swapped_contents_of_equally_large_files_are_other_data(paths, tmp_path):
    memory = tmp_path / "memory"
    before = contents(lazily(paths), memory=memory)
    assert contents(lazily(paths), memory=memory) == before
    times = [path.stat().st_mtime_ns for path in paths[:2]]
    first, second = (path.read_bytes() for path in paths[:2])
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    for path, time in zip(paths, times, strict=False):
        os.utime(path, ns=(time, time))
    assert contents(lazily(paths), memory=memory) != before
    assert contents(lazily([paths[1], paths[0], *paths[2:]]), memory=memory) == before


def test_names_times_and_memory_do_not_count(paths, tmp_path):
    before = contents(lazily(paths), memory=tmp_path / "memory")
    moved = [Path(shutil.copy(path, tmp_path / f"{n}-renamed.bmp")) for n, path in enumerate(paths)]
    assert contents(lazily(moved)) == before
    assert contents(lazily(moved), memory=tmp_path / "memory") == before
    paths[0].touch()
    assert contents(lazily(paths), memory=tmp_path / "memory") == before


def test_a_file_is_read_once_and_again_when_it_changed(paths, tmp_path, monkeypatch):
    read: list[Path] = []
    digest = file_digests._content
    monkeypatch.setattr(file_digests, "_content", lambda path: read.append(path) or digest(path))
    for _ in range(3):
        contents(lazily(paths), memory=tmp_path / "memory")
    assert sorted(read) == paths
    paths[2].write_bytes(paths[3].read_bytes())
    contents(lazily(paths), memory=tmp_path / "memory")
    assert read[6:] == [paths[2]]


def test_masks_and_images_without_one_count(paths, tmp_path):
    masks = [tmp_path / f"mask-{n}.png" for n in range(2)]
    for number, path in enumerate(masks):
        Image.new("L", (6, 4), number).save(path)

    def drawn(first: Path, second: Path) -> bytes:
        return contents(Samples(Files(paths[:2], decode_mask), {"v1": Files([first, second], decode_mask)}))

    found = [drawn(*masks), drawn(*masks[::-1]), drawn(masks[0], Path()), drawn(Path(), masks[0])]
    assert len(set(found)) == 4

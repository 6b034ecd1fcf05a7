"""Inputs to predict: files read one batch at a time, so that memory does not grow with their number."""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leco.data import images as image_files
from leco.data import vectors as vector_files
from leco.data.ahead import read_ahead
from leco.data.images import middle_square
from leco.data.input_files import Given, given_files
from leco.data.manifest.checks import look, normalise
from leco.data.manifest.table import SUFFIXES as TABLES
from leco.data.manifest.table import Fault, Problem, stream_cells
from leco.data.vectors import inspect_features, load_features, parse_features
from leco.errors import LecoError

Share = tuple[int, int]  # number of a process, and of all processes, which take batches in turn
ALONE: Share = (0, 1)
_HEADER = 1_000_000  # bytes
REMEMBERED = 100_000  # names of a manifest
_AT_ONCE = 50_000_000  # numbers of a batch


@dataclass(frozen=True, eq=False)
class InputBatch:
    """Some samples that could be read, and the problems with others."""

    names: list[str]
    inputs: Tensor  # (n, c, h, w) uint8 or (n, d) float
    problems: list[str] = field(default_factory=list)


def image_batches(
    arguments: Sequence[str],
    shape: Sequence[int],
    side: int,
    *,
    size: int,
    root: Path | None = None,
    share: Share = ALONE,
) -> Iterator[InputBatch]:
    """Read all images that are named, at most `size` at a time; paths in manifests are relative to `root`."""
    size, (rank, ranks) = at_once(shape, size), share
    files = (found for number, found in enumerate(image_paths(arguments, root)) if number // size % ranks == rank)
    read = read_ahead(lambda found: (found, _read(found, shape, side)), files, count=size)
    with closing(read):
        while some := list(islice(read, size)):
            yield _stacked(some)


def at_once(shape: Sequence[int], size: int) -> int:
    """Number of samples to read at a time: `size`, or fewer if they are large."""
    return max(1, min(size, _AT_ONCE // math.prod(shape)))


def _read(found: Given | LecoError, shape: Sequence[int], side: int) -> Tensor | LecoError:
    if isinstance(found, LecoError):
        return found
    try:
        return cut(middle_square(found.path, side)[None], shape)[0]
    except LecoError as error:
        return error


def _stacked(read: Sequence[tuple[Given | LecoError, Tensor | LecoError]]) -> InputBatch:
    names, images, problems = [], [], []
    for found, image in read:
        if isinstance(image, LecoError) or isinstance(found, LecoError):
            problems.append(str(image))
        else:
            names.append(str(found.path))
            images.append(image)
    return InputBatch(names, torch.stack(images) if images else torch.empty(0), problems)


def cut(images: Tensor, shape: Sequence[int]) -> Tensor:
    """Cut the middle out of square images (n, c, side, side), as grey if the shape has one channel: uint8."""
    channels, height, width = shape
    top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
    middle = images[:, :, top : top + height, left : left + width]
    return middle if channels == images.shape[1] else middle.float().mean(dim=1, keepdim=True).round().byte()


def image_paths(arguments: Sequence[str], root: Path | None = None) -> Iterator[Given | LecoError]:
    """Yield the images among files, folders and patterns, and those of manifests with a column `image`."""
    for argument in arguments:
        if _is_table(Path(argument)):
            yield from listed_files(Path(argument), "image", root)
        else:
            yield from given_files([argument], image_files.SUFFIXES)


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLES and path.is_file()


def listed_files(
    path: Path, column: str, root: Path | None, *, remembered: int = REMEMBERED
) -> Iterator[Given | LecoError]:
    """Yield the files that a manifest names, below the root or its own folder.

    A file that is repeated counts once, unless very many others come in between, so that memory does not grow.
    """
    folder = root or path.parent
    nothing = True
    recent: set[int] = set()
    older: set[int] = set()
    for cell in stream_cells(path, column):
        nothing = False
        if isinstance(cell, Problem):
            yield LecoError(f"{path}: {cell}")
            continue
        row, (value,) = cell
        if hash(value) in recent or hash(value) in older:
            continue
        if len(recent) == remembered:
            recent, older = set(), recent
        recent.add(hash(value))
        if not value:
            yield LecoError(f"{path}: row {row}: {column} is empty")
            continue
        parsed = parse_features(value) if column == "features" else (value, None)
        file = parsed if isinstance(parsed, Fault) else normalise(parsed[0])
        fault = file if isinstance(file, Fault) else look(folder, [file])[1].get(file)
        if isinstance(file, Fault) or fault is not None:
            assert fault is not None
            yield LecoError(f"{path}: {value}: {fault.message}{fault.remedy()}")
        else:
            of_table = "" if isinstance(parsed, Fault) or parsed[1] is None else f"#{parsed[1]}"
            yield Given(folder / f"{file}{of_table}", f"{file}{of_table}")
    if nothing:
        yield LecoError(f"{path}: there are no rows")


def vector_batches(arguments: Sequence[str], width: int, root: Path | None) -> Iterator[InputBatch]:
    """Read all vectors of files, folders, patterns and manifests, some at a time."""
    for argument in arguments:
        path = Path(argument)
        if _is_table(path) and _is_manifest(path):
            yield from _referred(path, width, root)
            continue
        for found in given_files([argument], vector_files.SUFFIXES):
            if isinstance(found, LecoError):
                yield InputBatch([], torch.empty(0), [str(found)])
                continue
            try:
                for part in vector_files.vector_blocks(found.path, str(found.path), width):
                    yield InputBatch([], torch.empty(0), [str(part)]) if isinstance(part, LecoError) else _finite(*part)
            except LecoError as error:
                yield InputBatch([], torch.empty(0), [str(error)])


def _is_manifest(path: Path) -> bool:
    """Return whether a table refers to features; a CSV may also hold the numbers themselves."""
    if path.suffix.lower() != ".csv":
        return True
    with path.open("rb") as file:
        first = file.readline(_HEADER).decode("utf-8-sig", errors="replace")
    return "features" in [cell.strip().strip('"') for cell in first.split(",")]


def _referred(path: Path, width: int, root: Path | None) -> Iterator[InputBatch]:
    """Read the vectors that a manifest refers to."""
    files, folder = listed_files(path, "features", root), root or path.parent
    while some := list(islice(files, 512)):
        problems = [str(found) for found in some if isinstance(found, LecoError)]
        references = [found.name for found in some if isinstance(found, Given)]
        faults = inspect_features(folder, references, lambda done, total: None, width)
        problems += [f"{path}: {reference}: {fault.message}" for reference, fault in faults.items()]
        good = [reference for reference in references if reference not in faults]
        vectors = load_features(folder, good) if good else np.empty((0, width), dtype=np.float32)
        yield InputBatch(good, torch.from_numpy(vectors), problems)


def _finite(names: list[str], block: NDArray[np.float32]) -> InputBatch:
    """Keep the vectors without NaN and infinity."""
    finite = [bool(row.all()) for row in np.isfinite(block)]
    problems = [f"{name}: holds NaN or infinity" for name, good in zip(names, finite, strict=True) if not good]
    kept = [name for name, good in zip(names, finite, strict=True) if good]
    return InputBatch(kept, torch.from_numpy(block[finite]), problems)


def array_batches(inputs: Any, shape: Sequence[int], side: int | None, *, size: int) -> Iterator[InputBatch]:
    """Cut an array of feature vectors, or of images, into batches; samples are named by their numbers."""
    array = _as_images(inputs, shape, side) if len(shape) == 3 else _as_vectors(inputs, shape)
    size = at_once(shape, size)
    for start in range(0, len(array), size):
        part = array[start : start + size]
        yield InputBatch([str(number) for number in range(start, start + len(part))], part)


def _as_vectors(inputs: Any, shape: Sequence[int]) -> Tensor:
    """(n, d) float."""
    wanted = f"feature vectors (n, {', '.join(map(str, shape))})"
    vectors = _as_tensor(inputs, wanted)
    if tuple(vectors.shape[1:]) != tuple(shape):
        raise LecoError(f"inputs: must be paths, or {wanted}, not of shape {tuple(vectors.shape)}")
    finite = vectors.float().isfinite().flatten(start_dim=1).all(dim=1)
    if not finite.all():
        raise LecoError(f"inputs: row {int(finite.int().argmin())} holds NaN or infinity")
    return vectors.float()


def _as_images(inputs: Any, shape: Sequence[int], side: int | None) -> Tensor:
    """Images (n, height, width, channels) as the network takes them: (n, c, h, w) uint8."""
    channels, height, width = shape
    wanted = f"uint8 images (n, {height}, {width}, {channels})"
    images = _as_tensor(inputs, wanted)
    fits = images.ndim == 4 and images.dtype == torch.uint8 and images.shape[3] in (1, 3)
    if not fits or tuple(images.shape[1:3]) not in ((height, width), (side, side)):
        kind = str(images.dtype).removeprefix("torch.")
        raise LecoError(f"inputs: must be paths, or {wanted}, not {kind} of shape {tuple(images.shape)}")
    images = images.permute(0, 3, 1, 2)
    if images.shape[1] < channels:  # grey, as three equal colours
        images = images.expand(-1, channels, -1, -1)
    return cut(images, shape)


def _as_tensor(inputs: Any, wanted: str) -> Tensor:
    if isinstance(inputs, Tensor) and not inputs.is_complex():
        return inputs
    try:
        array = np.require(inputs, requirements=["C", "W"])  # torch warns of arrays that are read-only
    except ValueError:
        raise LecoError(f"inputs: must be paths, or {wanted}, but the rows differ in length") from None
    if array.dtype.kind == "O" and array.ndim:  # such as the values of a data frame whose columns are of several types
        with suppress(TypeError, ValueError):
            array = array.astype(np.float32)
    if array.dtype.kind not in "bfiu":
        raise LecoError(f"inputs: must be paths, or {wanted}, not {type(inputs).__name__}")
    return torch.from_numpy(array)

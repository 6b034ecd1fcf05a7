"""Predicted masks as PNG files: class indices, with a palette to look at them."""

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from leco.data.images import channels_first, decode_image, scaled
from leco.data.input_files import Given
from leco.data.inputs import ALONE, Share, image_paths
from leco.data.manifest.checks import normalise
from leco.data.manifest.table import Fault
from leco.data.masks import MOST_IN_BYTES, encode_mask
from leco.data.pictures import palette
from leco.errors import LecoError
from leco.evaluation.evaluate import NotFiniteError, Predictor
from leco.io import write_bytes
from leco.models.dense.trunks import resize
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL, Version

_MARK = "leco mask"  # the note of a PNG file that holds the digest of its pixels


def write_masks(
    predictor: Predictor,
    side: int,
    arguments: Sequence[str],
    version: str,
    folder: Path,
    *,
    root: Path | None = None,
    overwrite: bool = False,
    share: Share = ALONE,
) -> Iterator[LecoError | None]:
    """Write the mask of each image to a folder, under the image's name; yield the problem, or None, for each.

    Files that are there already are replaced only if they are predicted masks, unless `overwrite` is set.
    """
    _check_apart(arguments, root, folder, overwrite)
    written: set[int] = set()
    for number, found in enumerate(image_paths(arguments, root)):
        if number % share[1] != share[0]:  # another process takes it
            if isinstance(found, Given):
                with suppress(LecoError):
                    written.add(hash(_mask_name(found.name)))
            continue
        if isinstance(found, LecoError):
            yield found
            continue
        try:
            name = _mask_name(found.name)
            if hash(name) in written:
                raise LecoError(
                    f"{found.path}: its mask {name} would replace that of another image; rename one of them"
                )
            content = mask_of(predictor, side, found.path, version)
            write_bytes(_place(folder, name), content)
        except NotFiniteError:
            raise
        except LecoError as error:
            yield error
            continue
        written.add(hash(name))
        yield None


def _place(folder: Path, name: str) -> Path:
    """Make the folders that a mask needs, and return its path; links inside the folder are not followed."""
    target = folder / name
    inside = Path(os.path.realpath(target.parent)).is_relative_to(os.path.realpath(folder))
    if target.is_symlink() or not inside:
        raise LecoError(f"{target}: is, or is below, a link, and links are not followed; choose another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{target.parent}: cannot be made: {error.strerror}") from None
    return target


def mask_of(predictor: Predictor, side: int, path: Path, version: str) -> bytes:
    """Predict the mask of one image, as PNG."""
    pixels = decode_image(path)
    probs = predictor.probs(channels_first(scaled(pixels, side))[None])
    labels = label_map(probs, predictor.ontology, version, *pixels.shape[:2])
    return encode(labels.numpy(), predictor.ontology[version])


def label_map(probs: Tensor, ontology: Ontology, version: str, height: int, width: int) -> Tensor:
    """Return the likeliest class of every pixel at a version (h, w), -1 for none, from probabilities (1, c, ...).

    Probabilities are resized, not classes, so that edges are smooth; one class at a time, so that memory does not
    grow with their number.
    """
    projected = ontology.transition(ontology.newest.name, version).project(probs)
    best = resize(1 - projected.sum(dim=1, keepdim=True), height, width)[0, 0]  # classes without a name there
    labels = torch.full(best.shape, NO_LABEL, device=best.device)
    for number, plane in enumerate(projected[0]):
        large = resize(plane[None, None], height, width)[0, 0]
        # As in `predict_at`: a class wins a tie with none, and the first class a tie with another.
        wins = (large > best) | ((large == best) & (labels == NO_LABEL))
        best, labels = torch.where(wins, large, best), labels.masked_fill(wins, number)
    return labels.cpu()


def encode(labels: NDArray[Any], version: Version) -> bytes:
    """Encode a label map as PNG: 8 bits with a palette, or 16 bits where there are too many classes for that."""
    file = io.BytesIO()
    image = Image.fromarray(encode_mask(labels, len(version)))
    if len(version) <= MOST_IN_BYTES:
        colours = palette(len(version))
        unused = [0, 0, 0] * (256 - len(colours))
        image.putpalette([*colours[:-1].flatten().tolist(), *unused, *colours[-1].tolist()])
    notes = PngInfo()
    notes.add_text(_MARK, _digest(image))
    image.save(file, "PNG", pnginfo=notes)
    return file.getvalue()


def is_predicted(path: Path) -> bool:
    """Whether a file is a mask as `encode` wrote it, which nobody has changed since."""
    try:
        with Image.open(path, formats=("PNG",)) as image:
            return image.info.get(_MARK) == _digest(image)
    except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError):
        return False


def _digest(image: Image.Image) -> str:
    """Digest of the pixels of a mask."""
    content = hashlib.blake2b(f"{image.mode} {image.size}".encode(), digest_size=16)
    content.update(image.tobytes())
    return content.hexdigest()


def _check_apart(arguments: Sequence[str], root: Path | None, folder: Path, overwrite: bool) -> None:
    """Refuse a folder where a mask could replace an image, or a mask that was not predicted, before any is written."""
    place = os.path.realpath(folder)
    sources = [os.path.realpath(argument) for argument in arguments if Path(argument).is_dir()]
    apart = not any(Path(place).is_relative_to(source) for source in sources)
    there: dict[tuple[int, int], Path] = {}  # files that masks would replace
    for image in _given(arguments, root):
        apart = apart and os.path.realpath(_base(image)) != place
        with suppress(LecoError):
            target = folder / _mask_name(image.name)
            if target.exists():
                there[_identity(target)] = target
    if not apart:
        raise LecoError(f"{folder}: contains the images, and masks could replace them; choose another folder")
    others = [target for target in there.values() if not (overwrite or target.is_symlink() or is_predicted(target))]
    for image in _given(arguments, root) if there else ():
        if taken := there.get(_identity(image.path)):
            raise LecoError(f"{taken}: is one of the images, and a mask would replace it; choose another folder")
    if others:
        more = f" (and {len(others) - 1:,} more such files)" if len(others) > 1 else ""
        remedy = "choose another folder, or replace it with --overwrite"
        raise LecoError(f"{others[0]}: was not written by leco, and a mask would replace it{more}; {remedy}")


def _given(arguments: Sequence[str], root: Path | None) -> Iterator[Given]:
    return (image for image in image_paths(arguments, root) if isinstance(image, Given))


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode: the same for all names of a file."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _base(found: Given) -> Path:
    """The folder that an image is named below."""
    return Path(str(found.path)[: -len(found.name)] or ".")


def _mask_name(name: str) -> str:
    """Path of an image's mask, relative to the folder of masks and never outside it."""
    below = normalise(name)
    if isinstance(below, Fault):
        raise LecoError(f"{name}: {below.message}")
    return Path(below).with_suffix(".png").as_posix()

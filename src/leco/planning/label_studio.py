"""Tasks, labelling configuration and annotations of Label Studio, including masks drawn with its brush.

Every task brings its own choices (a `Choices` tag with a `value`), so an old sample offers only the classes that its
old label leaves possible; the last choice, "none of these", rejects the old label. It is not a `Choices` tag of its
own because Label Studio refuses one that has a single choice.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from leco.data.images import inspect_image
from leco.data.importers.importer import short
from leco.data.importers.label_studio import annotations, decode_brush, is_whole, minimal, read_tasks
from leco.data.manifest.table import Fault
from leco.data.masks import encode_mask, read_mask
from leco.errors import LecoError, nearest
from leco.ontology.version import NO_LABEL, Version
from leco.planning.migrate import write_mask

if TYPE_CHECKING:
    from leco.planning.batches import Question

NONE_OF_THESE = "none of these"
BAD_MASK = "bad mask"
OVERLAP = "regions overlap"
UNKNOWN_CLASS = "unknown class"
Region = Mapping[str, Any]
_CONTROL = "label"  # name of the control, and so of the answers


def tasks(questions: Sequence["Question"], kind: str, prefix: str, model: str) -> list[dict[str, Any]]:
    """Return a task for each question, with the model's suggestion as its prediction."""
    found = []
    for question in questions:
        asked = f"It was {question.old_label} ({question.old_version})." if question.old_label else "What is it?"
        asked = "What is where?" if kind == "mask" else asked
        data: dict[str, Any] = {
            "sample": question.sample,
            "question": asked,
            "old_version": question.old_version,
            "old_label": question.old_label,
            "choices": [{"value": name} for name in (*question.choices, *([] if kind == "mask" else [NONE_OF_THESE]))],
        }
        if kind != "features":
            data["image"] = prefix + quote(question.sample)
        task: dict[str, Any] = {"data": data}
        if kind != "mask":  # a suggestion for a whole image says nothing about its pixels
            value = {"choices": [question.suggestion]}
            result = [{"from_name": _CONTROL, "to_name": "object", "type": "choices", "value": value}]
            task["predictions"] = [{"model_version": model, "score": question.probability, "result": result}]
        found.append(task)
    return found


def labelling_config(kind: str) -> str:
    """Return the labelling interface; `kind` is image, features or mask."""
    shown = '<Text name="object" value="$sample"/>' if kind == "features" else '<Image name="object" value="$image"/>'
    answer = (
        f'<BrushLabels name="{_CONTROL}" toName="object" value="$choices"/>'
        if kind == "mask"
        else f'<Choices name="{_CONTROL}" toName="object" value="$choices" choice="single" showInline="true"/>'
    )
    lines = ["<View>", f"  {shown}", '  <Header value="$question"/>', f"  {answer}", "</View>"]
    return "\n".join(lines) + "\n"


def read_export(path: Path) -> list[dict[str, Any]]:
    """Read an export, JSON or JSON-MIN: one record per annotation, with `place` for its task and `regions` as drawn."""
    found = []
    for number, task in enumerate(read_tasks(path), start=1):
        place = f"task {number}"
        whole = is_whole(task)
        data = task.get("data") if whole else task
        if not isinstance(data, Mapping) or not isinstance(data.get("sample"), str):
            raise LecoError(
                f"{path}: {place} is not from `leco batch export`: its data have no `sample`; import labels of other "
                "projects with `leco init`"
            )
        made = list(annotations(path, place, task)) if whole else [(task, minimal(task))]
        for about, choices in made or [(task, {})]:
            regions = () if about.get("was_cancelled") else _regions(about.get("result" if whole else _CONTROL))
            chosen = choices.get(_CONTROL, set()) or {name for region in regions for name in _brushes(region)}
            found.append(
                {
                    "place": place,
                    "sample": data["sample"],
                    "label": " + ".join(sorted(chosen)),
                    "annotator": _annotator(about.get("completed_by", about.get("annotator"))),
                    "time": str(about.get("updated_at") or about.get("created_at") or ""),
                    "regions": regions,
                }
            )
    return found


def _regions(results: object) -> tuple[Region, ...]:
    """Return the regions among the results, of any tool; in JSON each has a `value`, in JSON-MIN it has not."""
    found = []
    for result in results if isinstance(results, list) else ():
        if isinstance(result, Mapping):
            value = result.get("value")
            region = {**result, **value} if isinstance(value, Mapping) else result
            if "rle" in region or any(key.endswith("labels") for key in region):
                found.append(region)
    return tuple(found)


def _brushes(region: Region) -> list[str]:
    names = region.get("brushlabels")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _annotator(completed_by: Any) -> str:
    """Return the name of an annotator, who is a number or, in other exports, an object with an address."""
    if isinstance(completed_by, Mapping):
        return str(completed_by.get("email") or completed_by.get("id") or "")
    return "" if completed_by is None else str(completed_by)


def find_class(name: str, version: Version) -> int | Fault:
    """Return the index of the class that an annotator named."""
    try:
        index = version.index(name)
    except LecoError as error:
        return Fault(UNKNOWN_CLASS, str(error))
    if index < 0:
        return Fault(UNKNOWN_CLASS, f"{name!r} is ignored in {version.name}{nearest(name, version.handles)}")
    return index


def draw_mask(root: Path, image: str, folder: str, regions: Sequence[Region], version: Version) -> str | Fault:
    """Write all regions of an annotation as one mask below `folder` of the root; return its path.

    The file is named after its content. So the same export gives the same files again, annotators who drew the same
    share a mask, and no other file is ever overwritten.
    """
    mask = _draw(root / image, regions, version)
    if isinstance(mask, Fault):
        return mask
    digest = hashlib.blake2b(mask.tobytes() + str(mask.shape).encode(), digest_size=8).hexdigest()
    path = f"{folder}/{image}.{digest}.png"
    return _write_new(root, path, mask) or path


def _draw(image: Path, regions: Sequence[Region], version: Version) -> NDArray[Any] | Fault:
    """Return all regions in one mask, whose largest value means no label."""
    try:
        height, width = inspect_image(image)
    except LecoError as error:
        return Fault(BAD_MASK, str(error))
    mask = np.full((height, width), NO_LABEL, dtype=np.int32)
    for number, region in enumerate(regions, start=1):
        index = _class(region, version)
        if isinstance(index, Fault):
            return index._replace(message=f"region {number}: {index.message}")
        try:
            drawn = _pixels(region, width, height)
        except LecoError as error:
            return Fault(BAD_MASK, f"region {number}: {error}")
        others = mask[drawn & (mask != NO_LABEL) & (mask != index)]
        if len(others):
            both = f"both {version.handle(int(others[0]))!r} and {version.handle(index)!r}"
            return Fault(OVERLAP, f"region {number}: {len(others):,} pixels are {both}; erase them in one of the two")
        mask[drawn] = index
    if (mask == NO_LABEL).all():
        return Fault(BAD_MASK, "no pixel is drawn")
    return encode_mask(mask, len(version))


def _class(region: Region, version: Version) -> int | Fault:
    names = region.get("brushlabels")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return Fault(BAD_MASK, f"has the brush labels {short(names)}; exactly one, drawn with a brush, is needed")
    return find_class(names[0], version)


def _pixels(region: Region, width: int, height: int) -> NDArray[np.bool_]:
    stream = region.get("rle")
    if region.get("format") != "rle" or not isinstance(stream, list):
        raise LecoError(f"has the format {short(region.get('format'))}; only 'rle', a list of bytes, can be read")
    size = region.get("original_width"), region.get("original_height")
    if size != (width, height):
        drawn = "x".join(short(side) for side in size)
        raise LecoError(f"was drawn on {drawn} pixels, but the image is {width}x{height}")
    return decode_brush(stream, width, height)


def _write_new(root: Path, path: str, mask: NDArray[Any]) -> Fault | None:
    """Write a mask unless it already exists; other files are never overwritten."""
    target = root / path
    try:
        if not target.resolve().is_relative_to(root.resolve()):
            return Fault(BAD_MASK, f"{path}: a link leads out of the root folder; remove it, or rename the answers")
        if target.exists():
            existing = read_mask(target)
            same = existing.shape == mask.shape and bool((existing == mask).all())
            return None if same else Fault(BAD_MASK, f"{path}: already exists with other content; rename the answers")
    except LecoError as error:
        return Fault(BAD_MASK, str(error))
    except RuntimeError:  # raised by Python for circular links
        return Fault(BAD_MASK, f"{path}: contains a circular link; remove it")
    except OSError as error:
        raise LecoError(f"{target}: cannot be written: {error.strerror}") from None
    write_mask(target, mask)
    return None

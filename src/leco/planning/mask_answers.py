"""Masks that annotators drew: whether they fit their image, the newest classes, and the older masks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leco.data.contents import Picture, inspect_pictures
from leco.data.mask_files import MaskRule, decode_mask
from leco.data.paths import look, normalise
from leco.data.problems import Fault
from leco.errors import LecoError
from leco.ontology.ontology import Ontology

OUTSIDE = "outside the old class"
BAD_MASK = "bad mask"
MOST_OUTSIDE = 0.1  # of the pixels that both masks label: edges are never drawn twice alike


def mask_problems(
    answers: Sequence[tuple[str, str]], known: Mapping[str, Mapping[str, str]], ontology: Ontology, root: Path
) -> list[Fault | None]:
    """What stands against the mask of each image; `known` are the masks that it has, by version."""
    newest = ontology.newest.name
    found: list[Fault | None] = []
    pictures = []
    for image, mask in answers:
        clean = normalise(mask)
        wrong = clean if isinstance(clean, Fault) else look(root, [clean])[1].get(clean)
        found.append(None if wrong is None else Fault(BAD_MASK, f"{mask}: {wrong.message}{wrong.remedy()}"))
        pictures.append(Picture(image, () if isinstance(clean, Fault) or wrong else ((clean, newest),)))
    rules = {newest: MaskRule.of(ontology, newest)}
    for number, file, _, fault in inspect_pictures(root, pictures, rules, lambda done, total: None):
        found[number] = found[number] or Fault(BAD_MASK, f"{file}: {fault.message}{fault.remedy()}")
    fits = {version.name: _fits(ontology, version.name) for version in ontology.versions[:-1]}
    for number, picture in enumerate(pictures):
        if found[number] is None:
            path = picture.masks[0][0]
            found[number] = _against(root, path, known.get(picture.image or "", {}), newest, fits)
    return found


def _fits(ontology: Ontology, version: str) -> NDArray[np.bool_]:
    """(old, new) whether a newest class may have had this label."""
    table = ontology.transition(ontology.newest.name, version).sparse.toarray().T > 0
    fits: NDArray[np.bool_] = table | ontology.ended(version)[0][:, None]
    return fits


def _against(
    root: Path, path: str, masks: Mapping[str, str], newest: str, fits: Mapping[str, NDArray[np.bool_]]
) -> Fault | None:
    if newest in masks and normalise(masks[newest]) == path:
        return None
    drawn = decode_mask(root / path)
    if newest in masks:  # a later export of the same drawing is another file
        same = _shows(root / masks[newest], drawn)
        return None if same else Fault("labelled otherwise", f"{path}, but the manifest has {masks[newest]} ({newest})")
    for version, mask in masks.items():
        try:
            old = decode_mask(root / mask)
        except LecoError as error:
            return Fault(BAD_MASK, f"the mask of {version} cannot be compared: {error}")
        if old.shape != drawn.shape or old.max(initial=-1) >= len(fits[version]):
            return Fault(BAD_MASK, f"the mask of {version}, {mask}, has another size, or a value that is no class")
        both = (old >= 0) & (drawn >= 0)
        outside = float((~fits[version][old[both], drawn[both]]).mean()) if both.any() else 0.0
        if outside > MOST_OUTSIDE:
            return Fault(OUTSIDE, f"{outside:.0%} of its pixels are no class that {mask} ({version}) can be")
    return None


def _shows(path: Path, mask: NDArray[np.int32]) -> bool:
    try:
        return np.array_equal(decode_mask(path), mask)
    except LecoError:
        return False

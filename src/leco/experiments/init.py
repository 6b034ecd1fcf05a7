"""New projects: a folder with ontology, manifest and experiment, for your own data or as an example."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from leco.data import example as shapes
from leco.data.importers import coco, folders, hugging_face, label_studio, tables
from leco.data.importers.importer import SEED, SHARE, Options, Source, add_test_split, clean
from leco.data.manifest.table import write_table
from leco.errors import LecoError
from leco.io import write_text
from leco.modalities import MODALITIES
from leco.models.weights import Weights, default_weights
from leco.ontology.files import word
from leco.ontology.guess import GuessedStep, guess
from leco.ontology.schema import name_problem

Reader = Callable[[Sequence[Path], Options], Source]
READERS: dict[str, Reader] = {
    "images": folders.read_folders,
    "csv": tables.read_tables,
    "coco": coco.read_coco,
    "label-studio": label_studio.read_label_studio,
    "hf": hugging_face.read_hugging_face,
}
LEFT_OUT = "left-out.txt"
_STRICT = """\
# How the classes evolved, oldest version first (docs/reference/ontology.md). This is a guess by `leco init`: classes
# with the same name in both versions are kept; those marked as inferred follow from images labelled in both versions,
# except test images. Fill in the rest.
"""
_GUESSED = """\
# How the classes evolved, oldest version first (docs/reference/ontology.md). Classes with the same name in both
# versions are kept. Origins with `guessed: true` were guessed by `leco init` from the names or, where marked as
# inferred, from images labelled in both versions, except test images. Check them, and remove `guessed: true`; until
# then, `leco check` lists them. Fill in the rest.
"""
_EXPERIMENT = """\
# Checked by `leco check` and trained by `leco run` (all settings: docs/reference/settings.md).
data:
  manifest: labels.csv        # which image has which label, under which version (docs/reference/manifest.md)
  ontology: ontology.yaml     # how the classes evolved (docs/reference/ontology.md)
{root}  image_size: {side:<14}  # pixels: images become squares of this side; larger shows more and takes longer
method: auto                  # trains with and without old labels, and keeps what is best on validation
seed: 0
training:
  network:
    backbone: {model:<14}  # or another one that `leco models` lists, any timm model, or wrn-28-2
"""
_WEIGHTS = """\
    weights: pretrained       # {source}
"""
_BATCHES = """\
  batches:
    steps: {steps:<17}  # per training; two versions make three trainings
    size: {batch:<18}  # images per step: all new, or half of them with old labels
"""


@dataclass(frozen=True)
class Project:
    """A new project."""

    source: Source
    moved: int  # number of images that were moved to the test split; 0 if it existed
    steps: tuple[GuessedStep, ...]  # how the ontology was guessed; () for the example
    weights: Weights | None = None  # that training starts from


def example(folder: Path) -> Project:
    """Write an example with drawn images, which trains in about a minute."""
    with _new_folder(folder):
        source = shapes.draw_shapes(folder)
        write_text(folder / "ontology.yaml", shapes.ONTOLOGY)
        batches = _BATCHES.format(steps=200, batch=32)
        _write_rest(folder, source, side=shapes.SIDE, model="wrn-16-1", more=batches)
    return Project(source, 0, ())


def from_data(folder: Path, kind: str, paths: Sequence[Path], options: Options, *, strict: bool = False) -> Project:
    """Write a project from data that the reader `kind` of `READERS` imports; if `strict`, guess nothing from names."""
    with _new_folder(folder):
        source, moved = add_test_split(clean(READERS[kind](paths, options)))
        name = folder.resolve().name
        name = "ontology" if name_problem(name) else name
        guessed = guess(name, source.classes(), _labelled_twice(source), strict=strict)
        write_text(folder / "ontology.yaml", (_STRICT if strict else _GUESSED) + guessed.to_yaml())
        weights, side = default_weights(), MODALITIES["classification"].default_side()
        if weights is None:
            _write_rest(folder, source, side=side, model="resnet18", more=_BATCHES.format(steps=1_000, batch=128))
        else:
            more = _WEIGHTS.format(source=weights.source)
            _write_rest(folder, source, side=side, model=weights.backbone, more=more)
    return Project(source, moved, guessed.steps, weights)


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Create a folder, which must be new or empty; undo that if an exception is raised."""
    missing = next((path for path in (*reversed(folder.parents), folder) if not path.exists()), None)
    occupied = LecoError(f"{folder}: is not an empty folder; choose a new one, since nothing is overwritten")
    if missing is None and (not folder.is_dir() or any(folder.iterdir())):
        raise occupied
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{folder}: cannot be created: {error.strerror}") from None
    if missing is not None and any(folder.iterdir()):  # reached through a folder that did not exist: new/../old
        raise occupied
    try:
        yield
    except BaseException:
        for path in [missing] if missing else list(folder.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _labelled_twice(source: Source) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return both labels of every training image that has labels in two consecutive versions, by pair of versions."""
    labels: dict[str, dict[str, str]] = defaultdict(dict)
    for sample in source.samples:
        if sample.split != "test":
            labels[sample.path][sample.version] = sample.label
    return {
        (old, new): [(found[old], found[new]) for found in labels.values() if old in found and new in found]
        for old, new in pairwise(source.versions)
    }


def _write_rest(folder: Path, source: Source, *, side: int, model: str, more: str) -> None:
    write_table(source.table(), folder / "labels.csv")
    if len(source.left_out):
        write_text(folder / LEFT_OUT, source.left_out.to_text())
    root = _root(folder, source.root)
    write_text(folder / "experiment.yaml", _EXPERIMENT.format(root=root, side=side, model=model) + more)


def _root(folder: Path, root: Path) -> str:
    """Return the setting of the folder of images, or "" if they are in the project."""
    here = folder.resolve()
    if root == here:
        return ""
    name = root.relative_to(here).as_posix() if root.is_relative_to(here) else root.as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise LecoError(f"{root!r}: the path of the folder is not valid UTF-8; rename it") from None
    return f"  root: {word(name):<20}  # the folder that paths in the manifest are relative to\n"


def split_note(made: Project) -> str:
    """Return where the test split came from, or "" if it was given."""
    newest = made.source.versions[-1]
    if made.moved:
        return (
            f"no image of {newest} was in the test split, so {made.moved:,} were moved there (1 in {SHARE} of each "
            f"class, seed {SEED})"
        )
    if any(sample.split == "test" and sample.version == newest for sample in made.source.samples):
        return ""
    return f"no image of {newest} is in the test split, and the classes are too small to move some there"

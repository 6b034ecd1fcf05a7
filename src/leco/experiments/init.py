"""A folder to start from: ontology, manifest and experiment of own data, or of a made-up example."""

import csv
import io
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from leco.data.importers import coco, folders, hugging_face, label_studio, shapes, tables
from leco.data.importers.clean import SEED, SHARE, settle, with_test
from leco.data.importers.importer import Options, Source
from leco.errors import LecoError
from leco.io import write_text
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
FILES = ("ontology.yaml", "labels.csv", "experiment.yaml")
LEFT_OUT = "left-out.txt"
_GUESSED = """\
# How the classes evolved, versions oldest first (docs/reference/ontology.md). `leco init` supposed this: a class whose name is in
# both versions is kept; what could be seen from images labelled in both, without those for testing, is marked as
# inferred. Fill in the rest.
"""
_EXPERIMENT = """\
# What `leco check` looks at and `leco run` trains (docs/reference/settings.md has all settings).
data:
  manifest: labels.csv        # which image has which label, under which version (docs/reference/manifest.md)
  ontology: ontology.yaml     # how the classes evolved (docs/reference/ontology.md)
{root}  image_size: {side:<14}  # pixels: images become squares of this side; larger shows more and takes longer
method: lpl+st-hard/cond      # learns from old labels as evidence, and from pseudo-labels that agree with them
seed: 0
training:
  model: {model:<19}  # or any other of timm's, such as resnet50, or wrn-28-2
  steps: {steps:<19}  # of every training; two versions make three trainings
  batch_size: {batch:<14}  # images of a step: all new, or half of them with old labels
"""


@dataclass(frozen=True)
class Project:
    """What was written, for whoever tells the user."""

    source: Source
    dealt: int  # images that were made the test set; 0 where there was one
    steps: tuple[GuessedStep, ...]  # what was supposed; none of the example


def example(folder: Path) -> Project:
    """Write an example with drawn images, which is trained in about a minute."""
    with fresh(folder):
        source = shapes.draw_shapes(folder)
        write_text(folder / "ontology.yaml", shapes.ONTOLOGY)
        _write_rest(folder, source, side=shapes.SIDE, model="wrn-16-1", steps=200, batch=32)
    return Project(source, 0, ())


def from_data(folder: Path, kind: str, paths: Sequence[Path], options: Options) -> Project:
    """Write what can be known from data as a reader of `READERS` takes them."""
    with fresh(folder):
        source, dealt = with_test(settle(READERS[kind](paths, options)))
        name = folder.resolve().name
        name = "ontology" if name_problem(name) else name
        supposed = guess(name, source.classes(), _labelled_twice(source))
        write_text(folder / "ontology.yaml", _GUESSED + supposed.to_yaml())
        _write_rest(folder, source, side=64, model="resnet18", steps=1_000, batch=128)
    return Project(source, dealt, supposed.steps)


@contextmanager
def fresh(folder: Path) -> Iterator[None]:
    """A new or empty folder to fill; if that fails, it is as it was before."""
    missing = next((path for path in (*reversed(folder.parents), folder) if not path.exists()), None)
    if missing is None and (not folder.is_dir() or any(folder.iterdir())):
        raise LecoError(f"{folder}: is not an empty folder; nothing is overwritten, so name a new one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        yield
    except BaseException:
        for path in [missing] if missing else list(folder.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _labelled_twice(source: Source) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """The two labels of every image that has one in two versions, one after the other, and is not for testing."""
    labels: dict[str, dict[str, str]] = defaultdict(dict)
    for sample in source.samples:
        if sample.split != "test":
            labels[sample.path][sample.version] = sample.label
    return {
        (old, new): [(found[old], found[new]) for found in labels.values() if old in found and new in found]
        for old, new in pairwise(source.versions)
    }


def _write_rest(folder: Path, source: Source, side: int, model: str, steps: int, batch: int) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "label", "version", "split"))
    position = {version: number for number, version in enumerate((*source.versions, ""))}
    rows = sorted(source.samples, key=lambda sample: (position[sample.version], sample.path))
    writer.writerows(rows)
    write_text(folder / "labels.csv", text.getvalue())
    if len(source.left_out):
        write_text(folder / LEFT_OUT, source.left_out.to_text())
    root = _root(folder, source.root)
    content = _EXPERIMENT.format(root=root, side=side, model=model, steps=steps, batch=batch)
    write_text(folder / "experiment.yaml", content)


def _root(folder: Path, root: Path) -> str:
    """The line that says where the images are, unless they are beside the manifest."""
    here = folder.resolve()
    if root == here:
        return ""
    name = root.relative_to(here).as_posix() if root.is_relative_to(here) else root.as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise LecoError(f"{root!r}: the name of the folder is not UTF-8; rename it") from None
    return f"  root: {word(name):<20}  # the folder that paths in the manifest are relative to\n"


def split_note(made: Project) -> str:
    """How the test set came about, if it was not there."""
    newest, dealt = made.source.versions[-1], made.dealt
    if any(sample.split == "test" and sample.version == newest for sample in made.source.samples) and not dealt:
        return ""
    if not dealt:
        return f"no image of {newest} is marked for testing, and there are too few of each class to deal some"
    return (
        f"no image of {newest} was marked for testing, so {dealt:,} were dealt to test (one in {SHARE} of every class, "
        f"seed {SEED}): without a test set nobody knows how good a model is"
    )

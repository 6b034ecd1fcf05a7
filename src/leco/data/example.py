"""A small example dataset: drawn images with labels of two versions, always the same."""

import random
from math import cos, pi, sin
from pathlib import Path

from PIL import Image, ImageDraw

from leco.data.importers.importer import Sample, Source

SIDE = 32
HISTORY, NEW, TEST = 24, 10, 8  # images per class
# v1 had one class for circles and rings, called squares boxes, and had no stars.
_BECAME = {"circle": "round", "ring": "round", "square": "box", "triangle": "triangle"}
ONTOLOGY = """\
# How the classes evolved, oldest version first (docs/reference/ontology.md). This is an example: describe your own
# classes, and see what the file means with `leco ontology check` and `leco ontology diff`.
name: shapes
versions:
  - name: v1
    classes: [round, box, triangle]
  - name: v2
    classes:
      circle: {from: round}    # split: what v1 called round is now a circle
      ring: {from: round}      #        or a ring
      square: {renamed: box}   # the same class under another name
      triangle:                # kept: same name
      star:                    # brand-new: no label of v1 can mean it
"""


def draw_shapes(folder: Path) -> Source:
    """Draw images below a folder, labelled in v1 or v2, for training or testing."""
    (folder / "images").mkdir()
    samples = []
    for shape in ("circle", "ring", "square", "triangle", "star"):
        parts = [("v2", "train", NEW), ("v2", "test", TEST)]
        for version, split, count in [("v1", "train", HISTORY), *parts] if shape in _BECAME else parts:
            label = _BECAME[shape] if version == "v1" else shape
            for number in range(count):
                name = f"images/{version}-{split}-{shape}-{number:02}.png"
                _draw(shape, name).save(folder / name)
                samples.append(Sample(name, label, version, split))
    return Source(folder.resolve(), ("v1", "v2"), samples)


def _draw(shape: str, name: str) -> Image.Image:
    """Draw a bright shape of random size, colour and position on a dark background."""
    rng = random.Random(name)
    background, colour = (tuple(rng.randrange(low, low + 80) for _ in range(3)) for low in (0, 176))
    image = Image.new("RGB", (SIDE, SIDE), background)
    pen = ImageDraw.Draw(image)
    radius = rng.uniform(8, 12)
    x, y = (rng.uniform(radius + 1, SIDE - radius - 1) for _ in range(2))
    turn = rng.uniform(0, 2 * pi)
    if shape in ("circle", "ring"):
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), colour)
        if shape == "ring":
            inner = 0.55 * radius
            pen.ellipse((x - inner, y - inner, x + inner, y + inner), background)
    else:
        corners = {"square": 4, "triangle": 3, "star": 10}[shape]
        radii = [radius, 0.4 * radius] if shape == "star" else [radius]
        points = [(radii[n % len(radii)], turn + 2 * pi * n / corners) for n in range(corners)]
        pen.polygon([(x + r * cos(angle), y + r * sin(angle)) for r, angle in points], colour)
    return image

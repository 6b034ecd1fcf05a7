"""A few drawn images with labels of two versions, to try everything on: always the same ones."""

import random
from math import cos, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING

from leco.data.importers.importer import Sample, Source

if TYPE_CHECKING:
    from PIL import Image


SIDE = 32
HISTORY, NEW, TEST = 24, 10, 8  # images per class
# v1 called circles and rings alike, a square a box, and knew no stars.
BECAME = {"circle": "round", "ring": "round", "square": "box", "triangle": "triangle"}
ONTOLOGY = """\
# How the classes evolved, versions oldest first (docs/reference/ontology.md). These were made up:
# write down your own, and `leco ontology check` and `leco ontology diff` say what they mean.
name: shapes
versions:
  - name: v1
    classes: [round, box, triangle]
  - name: v2
    classes:
      circle: {from: round}    # split: what v1 called round is now a circle
      ring: {from: round}      #        or a ring
      square: {renamed: box}   # the same class under another name
      triangle:                # kept: the same name, nothing to say
      star:                    # brand-new: v1 has none, so no label of v1 can mean it
"""


def draw_shapes(folder: Path) -> Source:
    """Write the images below a folder; they are labelled in v1, or in v2, for training or for testing."""
    (folder / "images").mkdir()
    samples = []
    for shape in ("circle", "ring", "square", "triangle", "star"):
        parts = [("v2", "train", NEW), ("v2", "test", TEST)]
        for version, split, count in [("v1", "train", HISTORY), *parts] if shape in BECAME else parts:
            label = BECAME[shape] if version == "v1" else shape
            for number in range(count):
                name = f"images/{version}-{split}-{shape}-{number:02}.png"
                _draw(shape, name).save(folder / name)
                samples.append(Sample(name, label, version, split))
    return Source(folder.resolve(), ("v1", "v2"), samples)


def _draw(shape: str, name: str) -> "Image.Image":
    """A bright shape of any size, colour and place on a dark ground."""
    from PIL import Image, ImageDraw

    chance = random.Random(name)
    ground, colour = (tuple(chance.randrange(low, low + 80) for _ in range(3)) for low in (0, 176))
    image = Image.new("RGB", (SIDE, SIDE), ground)
    pen = ImageDraw.Draw(image)
    radius = chance.uniform(8, 12)
    x, y = (chance.uniform(radius + 1, SIDE - radius - 1) for _ in range(2))
    turn = chance.uniform(0, 2 * pi)
    if shape in ("circle", "ring"):
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), colour)
        if shape == "ring":
            inner = 0.55 * radius
            pen.ellipse((x - inner, y - inner, x + inner, y + inner), ground)
    else:
        corners = {"square": 4, "triangle": 3, "star": 10}[shape]
        radii = [radius, 0.4 * radius] if shape == "star" else [radius]
        points = [(radii[n % len(radii)], turn + 2 * pi * n / corners) for n in range(corners)]
        pen.polygon([(x + r * cos(angle), y + r * sin(angle)) for r, angle in points], colour)
    return image

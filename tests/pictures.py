"""Small images, no two of them alike."""

import io
import itertools
from pathlib import Path

from PIL import Image

_number = itertools.count()


def content(number: int | None = None) -> bytes:
    """The bytes of a PNG; of the same number, the same ones."""
    number = next(_number) if number is None else 1_000_000 + number
    held = io.BytesIO()
    Image.new("RGB", (12, 12), (number % 256, number // 256 % 256, number // 65536)).save(held, "PNG")
    return held.getvalue()


def draw(folder: Path, *names: str) -> None:
    """Write images below a folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content())

"""The pages of the documentation as programs: their blocks, one after the other, in a folder.

A block of `sh` is run, line by line. A block that names a file after its language (```yaml ontology.yaml) is written
there; if the file is there already, its lines take the place of those with the same key. Blocks of Python are doctests,
which pytest collects by itself; anything else is only shown.
"""

import re
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple
from unittest.mock import patch

from tests.commands import leco

ROOT = Path(__file__).parents[1]
SECTIONS = ("tutorial", "how-to", "reference", "explanation")  # the lab book and decisions are read, not followed
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *(page for section in SECTIONS for page in sorted((ROOT / "docs" / section).glob("*.md"))),
]
# The second kind of language is a directive of Sphinx, with its argument: ```{toctree}
_BLOCK = re.compile(r"^( *)```(\w*|\{[^\n]*)(?: (\S+))?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """What stands between two fences."""

    language: str
    file: str  # "" for none
    text: str

    @property
    def commands(self) -> list[str]:
        """The lines of a block of `sh`, without comments."""
        lines = [line.partition("  #")[0].strip() for line in self.text.splitlines()]
        return [line for line in lines if line and not line.startswith("#")] if self.language == "sh" else []


def blocks(page: Path) -> list[Block]:
    """All blocks of a page."""
    return [Block(language, file, dedent(text)) for _, language, file, text in _BLOCK.findall(page.read_text("utf-8"))]


def follow(page: Path, folder: Path, smaller: Mapping[str, str], wanted: Callable[[str], bool]) -> dict[str, str]:
    """Do what a page says, in the current folder, and return what each command that is wanted printed.

    What a command has of `smaller` is replaced.
    """
    (folder / "examples").symlink_to(ROOT / "examples")
    said: dict[str, str] = {}
    for block in blocks(page):
        if block.file:
            _write(folder / block.file, block.text)
        for command in block.commands:
            if wanted(command):
                said[command] = _run(page, folder, command, smaller)
    return said


def _run(page: Path, folder: Path, command: str, smaller: Mapping[str, str]) -> str:
    shortened = command
    for full, fewer in smaller.items():
        shortened = shortened.replace(full, fewer)
    if "FINGERPRINT" in shortened:  # of the first stage, which `leco runs` lists
        first = min((folder / "runs" / "stages").iterdir(), key=lambda stage: stage.stat().st_mtime)
        shortened = shortened.replace("FINGERPRINT", first.name)
    program, *arguments = shlex.split(shortened)
    if program == "python":
        with patch.object(sys, "argv", arguments):
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        return ""
    assert program == "leco", f"{page.name}: {command}: is neither run nor left out"
    result = leco(*arguments, cwd=folder)
    assert result.returncode == 0, f"{page.name}: {command}\n{result.stdout[-2_000:]}{result.stderr}"
    return result.stdout


def _write(file: Path, text: str) -> None:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    content = file.read_text(encoding="utf-8")
    for line in text.splitlines():
        key = re.escape(line.strip().split(":")[0])
        content, count = re.subn(rf"^( +){key}:.*$", rf"\g<1>{line.strip()}", content, flags=re.MULTILINE)
        assert count == 1, f"{file.name}: {line}"
    file.write_text(content, encoding="utf-8")

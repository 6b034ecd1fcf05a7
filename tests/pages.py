"""The pages of the documentation as programs: their blocks, one after the other, in a folder.

A block of `sh` is run, line by line. A block that names a file after its language (```yaml ontology.yaml) is written
to it; if the file exists, its lines replace those with the same key. Python is executed, all blocks of a page in one
namespace, unless it is a doctest, which pytest collects by itself; a block of `text` after it is its output, in which
`…` stands for anything. Other blocks are only shown.
"""

import doctest
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
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
    """A fenced block of a page."""

    language: str
    file: str  # "" for none
    text: str

    @property
    def commands(self) -> list[str]:
        """The lines of a block of `sh`, without comments."""
        lines = [line.partition("  #")[0].strip() for line in self.text.splitlines()]
        return [line for line in lines if line and not line.startswith("#")] if self.language == "sh" else []

    @property
    def is_script(self) -> bool:
        """Whether it is Python to be executed: neither a doctest nor the content of a file."""
        return self.language == "python" and not self.file and ">>> " not in self.text


def blocks(page: Path) -> list[Block]:
    """All blocks of a page."""
    return [Block(language, file, dedent(text)) for _, language, file, text in _BLOCK.findall(page.read_text("utf-8"))]


def follow(page: Path, folder: Path, smaller: Mapping[str, str], wanted: Callable[[str], bool]) -> dict[str, str]:
    """Do what a page says, in the current folder, and return the output of each command that is wanted.

    Texts of `smaller` are replaced in commands, scripts and files.
    """
    (folder / "examples").symlink_to(ROOT / "examples")
    output: dict[str, str] = {}
    names: dict[str, object] = {"__name__": "page"}
    printed = StringIO()
    for block in blocks(page):
        if block.file:
            _write(folder / block.file, _shorten(block.text, smaller))
        if block.is_script:
            printed = StringIO()
            with redirect_stdout(printed):
                exec(compile(_shorten(block.text, smaller), str(page), "exec"), names)
        if block.language == "text":
            _compare(page, block.text, printed.getvalue())
        for command in block.commands:
            if wanted(command):
                output[command] = _run(page, folder, command, smaller)
    return output


def _compare(page: Path, expected: str, printed: str) -> None:
    same = doctest.OutputChecker().check_output(expected.replace("…", "..."), printed, doctest.ELLIPSIS)
    assert same, f"{page.name}: printed\n{printed}instead of\n{expected}"


def _shorten(text: str, smaller: Mapping[str, str]) -> str:
    for full, fewer in smaller.items():
        text = text.replace(full, fewer)
    return text


def _run(page: Path, folder: Path, command: str, smaller: Mapping[str, str]) -> str:
    shortened = _shorten(command, smaller)
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
    """Write a file; in an existing one, replace the values of the same keys, whatever they are nested in."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    content = file.read_text(encoding="utf-8")
    for line in text.splitlines():
        key, _, value = line.strip().partition(":")
        if value or line.startswith("      "):  # no heading such as `training:`, but a class without a value
            new = rf"\g<1>{line.strip()}"
            content, count = re.subn(rf"^( +){re.escape(key)}:.*$", new, content, flags=re.MULTILINE)
            assert count == 1, f"{file.name}: {line}"
    file.write_text(content, encoding="utf-8")

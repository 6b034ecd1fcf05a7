"""Every command that the documentation shows exists; those in blocks are run by smoke/test_pages.py."""

import re
import shlex
from typing import Any

import pytest
from tests.pages import PAGES, ROOT, blocks
from typer.main import get_command

from leco.cli.main import app

# Commands within a sentence are quoted, others are in indented lines or in blocks.
COMMAND = re.compile(
    r"^(?:    |\$ )?(?:torchrun --nproc_per_node=2 -m )?(leco (?:--import )?[a-z].*)$|`(leco [a-z][^`]*)`", re.MULTILINE
)
# A link or an image that leads to a file.
LINK = re.compile(r"\]\((?![a-z]+:|#)([^()#\s]+)(?:#[^()\s]*)?\)")
WRITTEN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def commands() -> list[tuple[str, str]]:
    return [(page.name, match[1] or match[2]) for page in PAGES for match in COMMAND.finditer(page.read_text())]


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_has_the_verbs_and_options_that_are_shown(page, line):
    words = shlex.split(line, comments=True)[1:]
    while words[:1] == ["--import"]:
        words = words[2:]
    command: Any = get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if command.name in ("runs", "report") and words[0] not in command.commands:
            words.insert(0, next(iter(command.commands)))  # `leco runs RUNS`
        assert words[0] in command.commands, f"{page}: {line}: no such verb: {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-?[\d.]+", word):
            assert word.split("=")[0] in known, f"{page}: {line}: no such option: {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_all_code_is_in_blocks_that_are_run(page):
    commands = [line for block in blocks(page) for line in block.commands]
    for match in re.finditer(r"^ *((?:leco|python|pip|make|torchrun) .*)$", page.read_text("utf-8"), re.MULTILINE):
        assert match[1].partition("  #")[0].strip() in commands, f"put it into a block of sh: {match[1]}"
    for block in blocks(page):
        assert "+SKIP" not in block.text


def test_no_page_waits_for_something_to_be_filled_in():
    for page in PAGES:
        assert not re.search(r"^[A-Z]{4,}$", page.read_text(), re.MULTILINE), page


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page):
    text = page.read_text("utf-8")
    for link in LINK.findall(text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"\bdocs/[\w./-]*\w", text):
        assert (ROOT / path).exists() or (page.parent / path).exists(), path

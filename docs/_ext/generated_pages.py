"""Parts of pages that are generated from the code when the site is built.

A comment, which GitHub does not show, marks the place: `<!-- generated: settings -->`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from command_line import how_tos, verbs
from settings_table import settings_tables
from sphinx.errors import ExtensionError

from leco.cli.main import app as command_line
from leco.experiments.experiment import REGISTERED
from leco.settings import PARTS as SETTINGS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# For each page, the part that is generated, and the function that writes it, given the page.
PARTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "reference/cli": ("verbs", lambda page: verbs(command_line, "leco", how_tos(page))),
    "reference/settings": ("settings", lambda _: settings_tables(SETTINGS, REGISTERED)),
}


def _fill_in(_: "Sphinx", docname: str, source: list[str]) -> None:
    if docname not in PARTS:
        return
    name, write = PARTS[docname]
    mark = f"<!-- generated: {name} -->"
    if mark not in source[0]:
        raise ExtensionError(f"{docname}: the line {mark} is missing")
    source[0] = source[0].replace(mark, write(source[0]))


def setup(app: "Sphinx") -> dict[str, bool]:
    """Fill in pages as they are read."""
    app.connect("source-read", _fill_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

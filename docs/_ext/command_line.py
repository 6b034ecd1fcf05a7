"""All verbs of the command line with their options, as Markdown made from their help texts."""

import re

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command


def verbs(app: typer.Typer, name: str, how_tos: dict[str, str]) -> str:
    """A section for each verb; `how_tos` holds a link, in Markdown, for each."""
    command = get_command(app)
    _, *sections = re.split(r"^#+ ", get_docs_for_click(obj=command, ctx=typer.Context(command), name=name), flags=re.M)
    parts = []
    for section in sections[1:]:
        title, _, text = section.partition("\n")
        text = re.sub(r"^\* `--help`: .*\n", "", text, flags=re.M)
        text = re.sub(r"\*\*Options\*\*:\s*(?=\*\*|\Z)", "", text)
        link = how_tos.get(title.strip().strip("`"))
        parts.append(f"## {title.strip()}\n{text.rstrip()}\n" + (f"\nHow-to: {link}\n" if link else ""))
    return "\n".join(parts)


def how_tos(page: str) -> dict[str, str]:
    """The last cell of each row of a table, by the verbs that the row begins with.

    >>> how_tos("| `leco run`, `leco grid` | trains | [stages](stages.md) |")
    {'leco run': '[stages](stages.md)', 'leco grid': '[stages](stages.md)'}
    """
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `leco ")]
    return {verb: row[-1] for row in rows for verb in re.findall(r"`(leco [^`]+)`", row[0])}

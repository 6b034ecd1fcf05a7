"""TSV mappings: a header of version names, oldest first; each further line links the classes on it.

A class found beside several parents was merged from them. Between two versions, a last column `share` may say how much.
"""

import re
from typing import Any

from leco.errors import LecoError, TextError
from leco.ontology.ontology import Ontology
from leco.ontology.schema import parse
from leco.ontology.strict_yaml import Place

_SHARE = "share"


def read(text: str, name: str, lines: dict[Place, int] | None = None) -> dict[str, Any]:
    """Turn a mapping into the content of an ontology; where `lines` is given, note the line of every class in it."""
    numbered = enumerate(re.split(r"\r\n|\r|\n", text), start=1)
    rows = ((number, [cell.strip() for cell in line.split("\t")]) for number, line in numbered if line.strip())
    first, header = next(rows, (1, [""]))
    if len(header) < 2:
        raise TextError(first, "a TSV mapping begins with a line of version names, oldest first, separated by tabs")
    if with_shares := header[-1].lower() == _SHARE:
        header = header[:-1]
        if len(header) != 2:
            raise TextError(first, f"a `{_SHARE}` column is possible between two versions only; use YAML for more")
    if lines is not None:
        lines.update({("versions", column): first for column in range(len(header))})
    width = len(header) + with_shares
    parents: list[dict[str, dict[str, str]]] = [{} for _ in header]
    for number, cells in rows:
        if len(cells) > width:
            raise TextError(number, f"{len(cells)} columns, but the header names {width}")
        share = cells[-1] if with_shares and len(cells) == width else ""
        if share and not all(cells):
            raise TextError(
                number, f"the share {share} stands beside {' '.join(cells[:-1]).strip() or 'nothing'} alone"
            )
        for column, cell in enumerate(cells[: len(header)]):
            if not cell:
                continue
            if lines is not None:
                lines.setdefault(("versions", column, "classes", cell), number)
            found = parents[column].setdefault(cell, {})
            before = cells[column - 1] if column else ""
            if before and with_shares and before in found:
                raise TextError(number, f"{before!r} and {cell!r} stand together twice")
            if before:
                found[before] = share
    versions = [
        {"name": version, "classes": {key: _class(key, found) for key, found in classes.items()}}
        for version, classes in zip(header, parents, strict=True)
    ]
    return {"name": name, "versions": versions}


def _class(key: str, parents: dict[str, str]) -> dict[str, Any] | None:
    if any(parents.values()):
        return {"from": parents}
    return None if not parents or list(parents) == [key] else {"from": list(parents)}


def write(ontology: Ontology) -> str:
    """Write a line per class and parent. Refuses what the format cannot hold."""
    versions = ontology.versions
    soft = any(not step.is_tree for step in ontology.steps)
    if soft and len(versions) > 2:
        raise LecoError("a TSV mapping cannot hold shares over more than two versions; save as .yaml or .json")
    lines = [[version.name for version in versions] + [_SHARE] * soft]
    for column, version in enumerate(versions):
        for index, name in enumerate(version.classes):
            cells = [""] * (len(versions) + soft)
            cells[column] = name
            origins = ontology.steps[column - 1].origins(index) if column else {}
            if not origins:
                lines.append(cells)
            for parent, share in origins.items():
                linked = list(cells)
                linked[column - 1] = versions[column - 1].classes[parent]
                if soft:
                    linked[-1] = repr(share)
                lines.append(linked)
    text = "".join("\t".join(line) + "\n" for line in lines)
    try:
        same = parse(read(text, ontology.name)).fingerprint == ontology.fingerprint
    except LecoError:
        same = False
    if not same:
        what = "ignored labels, renames, ids or names that repeat, or a version named `share`"
        raise LecoError(f"a TSV mapping cannot hold {what}; save as .yaml or .json")
    return text

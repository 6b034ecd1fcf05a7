"""Ontology files: YAML, JSON and TSV mappings."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leco import strict_yaml
from leco.errors import LecoError, TextError
from leco.io import from_json, read_text, write_text
from leco.ontology.ontology import Ontology
from leco.ontology.schema import SchemaError, guessed_origins, parse, spell
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL, Version, canonical
from leco.strict_yaml import Place

_LARGEST_FILE = 32_000_000  # bytes; half a million classes need 21 MB
_MOST_PROBLEMS = 20  # found in one file
_SHARE = "share"
_PLAIN_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./()'")


def load(path: Path) -> Ontology:
    """Read and check an ontology file; an error names the file, the line, the value and the remedy."""
    kind, text, content = _read(path)
    try:
        return parse(content)
    except SchemaError as error:
        raise LecoError(_locate(path, kind, text, error)) from None


def load_all(path: Path) -> tuple[Ontology | None, list[str], list[str]]:
    """Return an ontology, or None and all of its problems; and the origins that are marked as guessed.

    After a wrong class, parsing continues as if it were brand-new.
    """
    try:
        kind, text, content = _read(path)
    except LecoError as error:
        return None, [str(error)], []
    problems: list[str] = []
    while len(problems) < _MOST_PROBLEMS:
        try:
            ontology = parse(content)
            return (None if problems else ontology), problems, guessed_origins(content)
        except SchemaError as error:
            problems.append(_locate(path, kind, text, error))
            if not _make_brand_new(content, error.path):
                break
    return None, problems, []


def _read(path: Path) -> tuple[str, str, Any]:
    """Return the format of a file, its text, and its content as plain data."""
    kind, text = _format(path), read_text(path, _LARGEST_FILE)
    try:
        if kind == "tsv":
            return kind, text, read_tsv(text, path.stem)
        return kind, text, from_json(text) if kind == "json" else strict_yaml.read(text)
    except TextError as error:
        raise LecoError(f"{path}:{error.line}: {error.problem}") from None


def _locate(path: Path, kind: str, text: str, error: SchemaError) -> str:
    line = line_of(kind, text, error.path)
    where = f"{spell(error.path)}: " if error.path and kind != "tsv" else ""
    return f"{path}{f':{line}' if line else ''}: {where}{error.problem}"


def _make_brand_new(content: Any, place: Place) -> bool:
    """Drop the description of the class at a place; return whether there was one."""
    if len(place) < 4 or place[2] != "classes":
        return False
    classes = content["versions"][place[1]]["classes"]
    if not isinstance(classes, dict) or classes.get(place[3]) is None:
        return False
    classes[place[3]] = None
    return True


def save(ontology: Ontology, path: Path) -> None:
    """Write an ontology file atomically."""
    kind = _format(path)
    if len(ontology.versions) < 2:
        raise LecoError(f"{path}: an ontology file needs at least two versions; {ontology!r} has one")
    if kind == "tsv":
        write_text(path, write_tsv(ontology))
    elif kind == "json":
        write_text(path, json.dumps(ontology.to_dict(), ensure_ascii=False, indent=1) + "\n")
    else:
        write_text(path, to_yaml(ontology.to_dict()))


def _format(path: Path) -> str:
    known = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".tsv": "tsv"}
    if path.suffix.lower() not in known:
        raise LecoError(f"{path}: unknown ontology format {path.suffix!r}; valid: {', '.join(known)}")
    return known[path.suffix.lower()]


def line_of(kind: str, text: str, path: tuple[Any, ...]) -> int | None:
    """Return the line of a place, or of the innermost container of it that has one."""
    if not path:
        return 1
    lines: dict[tuple[Any, ...], int] = {}
    try:
        if kind == "tsv":
            read_tsv(text, "", lines)
        else:
            strict_yaml.read(text, path, lines)
    except TextError:  # JSON has escape sequences that YAML does not support
        return None
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


def to_yaml(
    data: dict[str, Any],
    comments: Mapping[str, Sequence[str]] | None = None,
    notes: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Return an ontology as YAML with one class per line.

    `comments` are for each class of a version ("" for none), `notes` are lines at the end of a version.
    """
    lines = [f"name: {word(data['name'])}", "versions:"]
    for version in data["versions"]:
        lines += [f"  - name: {word(version['name'])}", "    classes:"]
        left = iter((comments or {}).get(version["name"], ()))
        classes = version["classes"]
        for key in classes:
            if isinstance(classes, list):
                line = f"      - {word(key)}"
            else:
                line = f"      {word(key)}:" + (f" {flow(classes[key])}" if classes[key] is not None else "")
            comment = next(left, "")
            lines.append(f"{line}  # {comment}" if comment else line)
        if version.get("ignore"):
            lines.append(f"    ignore: {flow(version['ignore'])}")
        lines += [f"    # {note}" for note in (notes or {}).get(version["name"], ())]
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """Return plain data as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{word(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return word(value) if isinstance(value, str) else repr(value)


def word(text: str) -> str:
    """Quote a string only if YAML would read it as something else."""
    safe = _PLAIN_WORD.issuperset(text.replace(" ", "")) and text[:1].isalpha() and strict_yaml.read(text) == text
    return text if safe else json.dumps(text, ensure_ascii=False)


def unparse(ontology: Ontology) -> dict[str, Any]:
    """Return the ontology as plain data, the inverse of `parse`."""
    versions = []
    used_ids: set[str] = set()
    for number, version in enumerate(ontology.versions):
        step = ontology.steps[number - 1] if number else None
        # The key is the name of a class, or its id if the name is not unique.
        classes = {version.handle(i): _class(version, i, step, used_ids) for i in range(len(version))}
        content: dict[str, Any] = {"name": version.name, "classes": classes if any(classes.values()) else list(classes)}
        if version.ignored:
            content["ignore"] = list(version.ignored)
        versions.append(content)
        used_ids.update(map(canonical, version.ids))
    return {"name": ontology.name, "versions": versions}


def _class(version: Version, index: int, step: Transition | None, used_ids: set[str]) -> dict[str, Any] | None:
    """Return what `parse` would not assume from the key alone."""
    key, name, id_ = version.handle(index), version.classes[index], version.ids[index]
    parents = step.origins(index) if step else {}
    before = step.old if step else None
    spec: dict[str, Any] = {}
    assumed_name, assumed_id = key, key if canonical(key) not in used_ids else None
    same = before.lookup.get(key) if before else None
    if before and len(parents) == 1 and same not in parents and before.ids[next(iter(parents))] == id_:
        spec["renamed"] = before.handle(next(iter(parents)))
        assumed_id = id_
    elif before and same in parents:
        assumed_id = before.ids[same]
        assumed_name = key if canonical(key) == canonical(before.classes[same]) else before.classes[same]
        if len(parents) > 1:
            spec["from"] = _shares(before, parents)
    elif before and (parents or (same is not None and same != NO_LABEL)):
        spec["from"] = _shares(before, parents)
    if name != assumed_name:
        spec["name"] = name
    if id_ != assumed_id:
        spec["id"] = id_
    return spec or None


def _shares(before: Version, parents: dict[int, float]) -> str | list[str] | dict[str, float]:
    shares = {before.handle(parent): share for parent, share in parents.items()}
    if len(shares) == 1:
        return next(iter(shares))
    equal = all(abs(share - 1 / len(shares)) < 1e-12 for share in shares.values())
    return list(shares) if equal else shares


def read_tsv(text: str, name: str, lines: dict[Place, int] | None = None) -> dict[str, Any]:
    """Parse a TSV mapping to the content of an ontology; `lines`, if given, receives the line of every class."""
    numbered = enumerate(re.split(r"\r\n|\r|\n", text), start=1)
    rows = ((number, [cell.strip() for cell in line.split("\t")]) for number, line in numbered if line.strip())
    first, header = next(rows, (1, [""]))
    if len(header) < 2:
        raise TextError(first, "the first line of a TSV mapping must be version names, oldest first, separated by tabs")
    if with_shares := header[-1].lower() == _SHARE:
        header = header[:-1]
        if len(header) != 2:
            raise TextError(first, f"a `{_SHARE}` column needs exactly two versions; use YAML for more")
    if lines is not None:
        lines.update({("versions", column): first for column in range(len(header))})
    width = len(header) + with_shares
    parents: list[dict[str, dict[str, str]]] = [{} for _ in header]
    for number, cells in rows:
        if len(cells) > width:
            raise TextError(number, f"{len(cells)} columns, but the header has {width}")
        share = cells[-1] if with_shares and len(cells) == width else ""
        if share and not all(cells):
            alone = " ".join(cells[:-1]).strip() or "nothing"
            raise TextError(number, f"the share {share} needs a class in both versions, not only {alone}")
        for column, cell in enumerate(cells[: len(header)]):
            if not cell:
                continue
            if lines is not None:
                lines.setdefault(("versions", column, "classes", cell), number)
            found = parents[column].setdefault(cell, {})
            before = cells[column - 1] if column else ""
            if before and with_shares and before in found:
                raise TextError(number, f"duplicate row: {before!r} and {cell!r}")
            if before:
                found[before] = share
    versions = [
        {"name": version, "classes": {key: _tsv_class(key, found) for key, found in classes.items()}}
        for version, classes in zip(header, parents, strict=True)
    ]
    return {"name": name, "versions": versions}


def _tsv_class(key: str, parents: dict[str, str]) -> dict[str, Any] | None:
    if any(parents.values()):
        return {"from": parents}
    return None if not parents or list(parents) == [key] else {"from": list(parents)}


def write_tsv(ontology: Ontology) -> str:
    """Return a TSV mapping, a line per class and parent; refuse what the format cannot represent."""
    versions = ontology.versions
    soft = any(not step.is_tree for step in ontology.steps)
    if soft and len(versions) > 2:
        raise LecoError("a TSV mapping cannot represent shares over more than two versions; save as .yaml or .json")
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
        same = parse(read_tsv(text, ontology.name)).fingerprint == ontology.fingerprint
    except LecoError:
        same = False
    if not same:
        what = "ignored labels, renames, ids, duplicate names, or a version named `share`"
        raise LecoError(f"a TSV mapping cannot represent {what}; save as .yaml or .json")
    return text

"""Ontology files: YAML, JSON and TSV mappings."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

from leco.errors import LecoError
from leco.ontology import strict_yaml
from leco.ontology.ontology import Ontology
from leco.ontology.schema import SchemaError, parse, spell
from leco.ontology.strict_yaml import YamlError

_LARGEST_FILE = 64_000_000  # bytes; half a million classes need 20 MB
_PLAIN_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./()'")


def load(path: Path) -> Ontology:
    """Read and check an ontology file; any error names the file, the line, the value and what would be right."""
    text = read_text(path)
    try:
        if _format(path) == "tsv":
            return parse(_from_tsv(text, path.stem))
        content = _from_json(text) if _format(path) == "json" else strict_yaml.read(text)
        return parse(content)
    except YamlError as error:
        raise LecoError(f"{path}:{error.line}: {error.problem}") from None
    except SchemaError as error:
        place = f"{path}:{_line_of(text, error.path)}" if _format(path) != "tsv" else str(path)
        where = f"{spell(error.path)}: " if error.path else ""
        raise LecoError(f"{place}: {where}{error.problem}") from None


def save(ontology: Ontology, path: Path) -> None:
    """Write an ontology file, whole or not at all."""
    data = ontology.to_dict()
    if _format(path) == "json":
        text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
    else:
        text = to_tsv(ontology) if _format(path) == "tsv" else to_yaml(data)
    write_text(path, text)


def read_text(path: Path) -> str:
    """Read a UTF-8 file of bounded size."""
    try:
        if not path.is_file():
            raise LecoError(f"{path}: {'is a folder, not a file' if path.is_dir() else 'there is no such file'}")
        if path.stat().st_size > _LARGEST_FILE:
            size = path.stat().st_size / 1e6
            raise LecoError(
                f"{path}: {size:.0f} MB is too large for an ontology (at most {_LARGEST_FILE / 1e6:.0f} MB)"
            )
        raw = path.read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LecoError(f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    """Write a file so that readers see the old content or the new, never half of it."""
    if not path.parent.is_dir():
        raise LecoError(f"{path}: the folder {path.parent} does not exist")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError as error:
        raise LecoError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _format(path: Path) -> str:
    known = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".tsv": "tsv"}
    if path.suffix.lower() not in known:
        raise LecoError(f"{path}: the ending says which format is meant; valid: {', '.join(known)}")
    return known[path.suffix.lower()]


def _from_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            line = _duplicate_line(text)
            raise YamlError(line, f"{twice!r} stands twice in the same place")
        return content

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise YamlError(error.lineno, f"this is not JSON: {error.msg}") from None
    except RecursionError:
        raise YamlError(1, "nested too deep for an ontology") from None


def _duplicate_line(text: str) -> int:
    """JSON is YAML too, and that reader knows its lines."""
    try:
        strict_yaml.read(text)
    except YamlError as error:
        return error.line
    return 1


def _line_of(text: str, path: tuple[Any, ...]) -> int:
    """Return the line of a path in YAML or JSON, or of the nearest container of it that has one."""
    lines: dict[tuple[Any, ...], int] = {}
    try:
        strict_yaml.read(text, lines)
    except YamlError:
        return 1
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


def to_yaml(data: dict[str, Any], comments: dict[str, str] | None = None) -> str:
    """Write an ontology the way people do: one class a line, with a comment on classes of the newest version."""
    remarks = comments or {}
    lines = [f"name: {_word(data['name'])}", "versions:"]
    for version in data["versions"]:
        newest = version is data["versions"][-1]
        lines += [f"  - name: {_word(version['name'])}", "    classes:"]
        if isinstance(version["classes"], list):
            lines += [f"      - {_word(name)}" for name in version["classes"]]
        else:
            for key, spec in version["classes"].items():
                remark = f"  # {remarks[key]}" if newest and remarks.get(key) else ""
                lines.append(f"      {_word(key)}:" + ("" if spec is None else f" {_flow(spec)}") + remark)
        if "ignore" in version:
            lines.append(f"    ignore: {_flow(version['ignore'])}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_word(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return _word(value) if isinstance(value, str) else repr(value)


def _word(text: str) -> str:
    """Quote a string only where YAML would read something else."""
    safe = _PLAIN_WORD.issuperset(text.replace(" ", "")) and text[0].isalpha() and strict_yaml.read(text) == text
    return text if safe else json.dumps(text, ensure_ascii=False)


def _from_tsv(text: str, name: str) -> dict[str, Any]:
    """Read a mapping: a header of version names, oldest first; each further line links the classes on it.

    A class found beside several parents was merged from them. A two-version mapping may end in a column `share`.
    """
    rows = list(csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if not rows or len(rows[0]) < 2:
        raise SchemaError((), "a TSV mapping begins with a line of version names, oldest first, separated by tabs")
    header = [cell.strip() for cell in rows[0]]
    if with_shares := header[-1] == "share":
        header = header[:-1]
        if len(header) != 2:
            raise SchemaError((), "a `share` column is possible between two versions only; use YAML for more")
    parents: list[dict[str, dict[str, str]]] = [{} for _ in header]
    for number, row in enumerate(rows[1:], start=2):
        cells = [cell.strip() for cell in row]
        width = len(header) + with_shares
        if len(cells) > width:
            raise SchemaError((), f"line {number} has {len(cells)} columns, but the header names {width}")
        cells += [""] * (width - len(cells))
        for column in range(len(header)):
            if not cells[column]:
                continue
            found = parents[column].setdefault(cells[column], {})
            if column and cells[column - 1]:
                if with_shares and cells[column - 1] in found:
                    raise SchemaError((), f"line {number} repeats {cells[0]!r} and {cells[1]!r}")
                found[cells[column - 1]] = cells[-1] if with_shares else ""
    return {
        "name": name,
        "versions": [
            {"name": version, "classes": {key: _tsv_class(key, found) for key, found in classes.items()}}
            for version, classes in zip(header, parents, strict=True)
        ],
    }


def _tsv_class(key: str, parents: dict[str, str]) -> dict[str, Any] | None:
    if not parents or list(parents) == [key]:
        return None
    if any(parents.values()):
        return {"from": parents}
    return {"from": list(parents)}


def to_tsv(ontology: Ontology) -> str:
    """Write a mapping: a line per class and parent. Refuses what the format cannot hold."""
    versions = ontology.versions
    soft = any(not step.is_tree for step in ontology.steps)
    lost = [
        (any(v.ignored for v in versions), "ignored labels"),
        (any(len(set(v.classes)) < len(v) for v in versions), "several classes of one name"),
        (soft and len(versions) > 2, "shares over more than two versions"),
        (any("renamed" in str(spec) for spec in _specs(ontology)), "renames"),
    ]
    for is_lost, what in lost:
        if is_lost:
            raise LecoError(f"a TSV mapping cannot hold {what}; save as .yaml or .json")
    lines = [[version.name for version in versions] + ["share"] * soft]
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
    return "".join("\t".join(line) + "\n" for line in lines)


def _specs(ontology: Ontology) -> list[Any]:
    found: list[Any] = []
    for version in ontology.to_dict()["versions"]:
        found += version["classes"].values() if isinstance(version["classes"], dict) else []
    return found

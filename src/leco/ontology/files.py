"""Ontology files: YAML, JSON and TSV mappings."""

import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from leco.errors import LecoError, TextError
from leco.ontology import strict_yaml, tsv
from leco.ontology.ontology import Ontology
from leco.ontology.schema import SchemaError, parse, spell

_LARGEST_FILE = 32_000_000  # bytes; half a million classes need 21 MB
_MOST_PROBLEMS = 20  # looked for in one file
_PLAIN_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./()'")


def load(path: Path) -> Ontology:
    """Read and check an ontology file; any error names the file, the line, the value and what would be right."""
    kind, text, content = _read(path)
    try:
        return parse(content)
    except SchemaError as error:
        raise LecoError(_locate(path, kind, text, error)) from None


def load_all(path: Path) -> tuple[Ontology | None, list[str]]:
    """An ontology, or all that is wrong with it: after a wrong class, the rest is read as if that one had no past."""
    try:
        kind, text, content = _read(path)
    except LecoError as error:
        return None, [str(error)]
    problems: list[str] = []
    while len(problems) < _MOST_PROBLEMS:
        try:
            ontology = parse(content)
            return (None if problems else ontology), problems
        except SchemaError as error:
            problems.append(_locate(path, kind, text, error))
            if not _forget_past(content, error.path):
                break
    return None, problems


def _read(path: Path) -> tuple[str, str, Any]:
    """The format of a file, its text, and its content as plain data."""
    kind, text = _format(path), read_text(path, _LARGEST_FILE)
    try:
        if kind == "tsv":
            return kind, text, tsv.read(text, path.stem)
        return kind, text, from_json(text) if kind == "json" else strict_yaml.read(text)
    except TextError as error:
        raise LecoError(f"{path}:{error.line}: {error.problem}") from None


def _locate(path: Path, kind: str, text: str, error: SchemaError) -> str:
    line = line_of(kind, text, error.path)
    where = f"{spell(error.path)}: " if error.path and kind != "tsv" else ""
    return f"{path}{f':{line}' if line else ''}: {where}{error.problem}"


def _forget_past(content: Any, place: strict_yaml.Place) -> bool:
    """Take away what is said of the class at a place; tell if there was something."""
    if len(place) < 4 or place[2] != "classes":
        return False
    classes = content["versions"][place[1]]["classes"]
    if not isinstance(classes, dict) or classes.get(place[3]) is None:
        return False
    classes[place[3]] = None
    return True


def save(ontology: Ontology, path: Path) -> None:
    """Write an ontology file, whole or not at all."""
    kind = _format(path)
    if len(ontology.versions) < 2:
        raise LecoError(f"{path}: an ontology file needs two versions; {ontology!r} has one")
    if kind == "tsv":
        write_text(path, tsv.write(ontology))
    elif kind == "json":
        write_text(path, json.dumps(ontology.to_dict(), ensure_ascii=False, indent=1) + "\n")
    else:
        write_text(path, to_yaml(ontology.to_dict()))


def read_text(path: Path, largest: int) -> str:
    """Read a UTF-8 file of at most `largest` bytes."""
    try:
        if path.is_dir():
            raise LecoError(f"{path}: is a folder, not a file")
        if not path.is_file():
            raise LecoError(f"{path}: {'is not an ordinary file' if path.exists() else 'there is no such file'}")
        size = path.stat().st_size
        if size > largest:
            raise LecoError(f"{path}: {size / 1e6:.0f} MB is too large; at most {largest / 1e6:.0f} MB are read")
        raw = path.read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LecoError(f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new, never half of it, even if the machine stops."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its place, or that of the one that is there, only when all of it is written."""
    try:
        target = path.resolve()  # through a link, not over it
    except RuntimeError:  # what Python makes of links that lead in a circle
        raise LecoError(f"{path}: cannot be written: its links lead in a circle") from None
    try:
        if not target.parent.is_dir():
            raise LecoError(f"{path}: the folder {path.parent} does not exist")
        if target.exists() and not target.is_file():
            what = "is a folder" if target.is_dir() else "is not an ordinary file"
            raise LecoError(f"{path}: cannot be written: it {what}; name a file")
        temporary = target.with_name(f".leco-{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LecoError(f"{path}: cannot be written: {error.strerror}") from None


def _format(path: Path) -> str:
    known = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".tsv": "tsv"}
    if path.suffix.lower() not in known:
        raise LecoError(f"{path}: the ending says which format is meant; valid: {', '.join(known)}")
    return known[path.suffix.lower()]


def read_json(path: Path, largest: int) -> Any:
    """Read a JSON file of at most `largest` bytes; errors name it."""
    text = read_text(path, largest)
    try:
        return from_json(text)
    except TextError as error:
        raise LecoError(f"{path}:{error.line}: {error.problem}") from None


def from_json(text: str) -> Any:
    """Read JSON, refusing what it says twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            twice = next(key for key, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise TextError(_line_of_second(text, twice), f"{twice!r} stands twice in the same place")
        return content

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"this is not JSON: {error.msg}") from None
    except LecoError:
        raise
    except (RecursionError, ValueError):  # nested too deep; a number of thousands of digits
        raise TextError(1, "this is too deep, or its numbers are too long") from None


def _line_of_second(text: str, key: str) -> int:
    """JSON is YAML, and that reader knows its lines, if it can read it."""
    try:
        strict_yaml.read(text)
    except TextError as error:
        if repr(key) in error.problem:
            return error.line
    return 1


def line_of(kind: str, text: str, path: tuple[Any, ...]) -> int | None:
    """Return the line of a path, or of the nearest container of it that has one."""
    if not path:
        return 1
    lines: dict[tuple[Any, ...], int] = {}
    try:
        if kind == "tsv":
            tsv.read(text, "", lines)
        else:
            strict_yaml.read(text, path, lines)
    except TextError:  # JSON may escape characters in ways that YAML does not know
        return None
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


def to_yaml(
    data: dict[str, Any],
    comments: Mapping[str, Sequence[str]] | None = None,
    notes: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Write an ontology the way people do: one class a line.

    By version, there may be `comments` on each of its classes ("" for none), and `notes`, lines of comment at its end.
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
    """Plain data as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{word(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return word(value) if isinstance(value, str) else repr(value)


def word(text: str) -> str:
    """Quote a string only where YAML would read something else."""
    safe = _PLAIN_WORD.issuperset(text.replace(" ", "")) and text[:1].isalpha() and strict_yaml.read(text) == text
    return text if safe else json.dumps(text, ensure_ascii=False)

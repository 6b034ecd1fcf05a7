"""Files, read and written: whole or not at all, at most so large, and of the form that is expected."""

import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ValidationError

from leco import strict_yaml
from leco.errors import LecoError, TextError

_Model = TypeVar("_Model", bound=BaseModel)


def checked(kind: type[_Model], content: Any, path: Path, what: str) -> _Model:
    """Take the content of a file as what it is meant to be; one message says what is wrong."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part)[:40] for part in first["loc"][:6])
        problem = str(first["msg"]).removeprefix("Value error, ")
        raise LecoError(f"{path}: {what}: {f'{place}: ' if place else ''}{problem}") from None


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

"""Read and write files: writing is atomic, reading is limited in size and checked."""

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
    """Validate the content of a file; the first problem becomes one message that names the place."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part)[:40] for part in first["loc"][:6])
        problem = str(first["msg"]).removeprefix("Value error, ")
        raise LecoError(f"{path}: {what}: {f'{place}: ' if place else ''}{problem}") from None


def as_path(name: str, value: object) -> Path:
    """A local path that a caller gave for a parameter; addresses, empty ones and other types are refused."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "://" in text or "\0" in text:
        raise LecoError(f"{name}: must be the path of a local file or folder, not {value!r}")
    path = Path(os.path.expanduser(text))  # noqa: PTH111 (keeps `~name` if there is no such user)
    try:
        path.exists()
    except OSError as error:  # such as a name that is too long, or a folder that may not be entered
        raise LecoError(f"{name}: {path}: {error.strerror}; name another path") from None
    return path


def read_text(path: Path, largest: int) -> str:
    """Read a UTF-8 file of at most `largest` bytes."""
    try:
        if path.is_dir():
            raise LecoError(f"{path}: is a folder, not a file")
        if not path.is_file():
            raise LecoError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
        size = path.stat().st_size
        if size > largest:
            raise LecoError(f"{path}: too large: {size / 1e6:.0f} MB; the limit is {largest / 1e6:.0f} MB")
        raw = path.read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LecoError(f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}") from None


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Read the notes in the header of a safetensors file: its length in eight bytes, then JSON. Needs no torch.

    Raises OSError or ValueError if there is no such header.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size - 8:
            raise ValueError("the file is truncated")
        header = json.loads(file.read(length))
    notes = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(notes, dict):
        raise ValueError("the file has no metadata")
    return notes


def checkpoint_step(path: Path) -> int:
    """Step at which a checkpoint was saved, or -1 if it cannot be read."""
    try:
        return int(json.loads(safetensors_metadata(path)["leco"])["step"])
    except (OSError, LookupError, TypeError, ValueError, ArithmeticError, MemoryError, RecursionError):
        return -1


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old content or the new, never a part, even after a crash."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` once it is completely written."""
    try:
        target = path.resolve()  # through a link, not over it
    except RuntimeError:  # raised for a symlink loop
        raise LecoError(f"{path}: cannot be written: symlink loop") from None
    try:
        if not target.parent.is_dir():
            raise LecoError(f"{path}: the folder {path.parent} does not exist")
        if target.exists() and not target.is_file():
            what = "a folder" if target.is_dir() else "not a regular file"
            raise LecoError(f"{path}: cannot be written: it is {what}; name a file")
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
    """Parse JSON; duplicate keys are an error."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            twice = next(key for key, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise TextError(_duplicate_line(text, twice), f"duplicate key {twice!r}")
        return content

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"not valid JSON: {error.msg}") from None
    except LecoError:
        raise
    except (RecursionError, ValueError):  # ValueError: an integer of thousands of digits
        raise TextError(1, "not valid JSON: nested too deeply, or a number with too many digits") from None


def _duplicate_line(text: str, key: str) -> int:
    """Return the line of a duplicate key; JSON is YAML, whose parser tracks lines."""
    try:
        strict_yaml.read(text)
    except TextError as error:
        if repr(key) in error.problem:
            return error.line
    return 1

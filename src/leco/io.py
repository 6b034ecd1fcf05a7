"""Read and write files: writing is atomic, reading is limited in size and checked."""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from leco import strict_yaml
from leco.errors import LecoError, TextError

SUMS = "SHA256SUMS"  # as `sha256sum -c SHA256SUMS` reads it
_LEFTOVER = re.compile(r"\.leco-[0-9]+-[0-9a-f]{8}(\.tmp)?")  # temporary files, and folders
_LARGEST_SUMS = 1_000_000  # bytes
_SETTLED = 5.0  # seconds after which a temporary file without a lock was left behind by a process that was killed


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
    raw = read_bytes(path, largest)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise LecoError(f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8") from None


def read_bytes(path: Path, largest: int) -> bytes:
    """Read a regular file of at most `largest` bytes."""
    try:
        if path.is_dir():
            raise LecoError(f"{path}: is a folder, not a file")
        if not path.is_file():
            raise LecoError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
        size = path.stat().st_size
        if size > largest:
            raise LecoError(f"{path}: too large: {size / 1e6:.0f} MB; the limit is {largest / 1e6:.0f} MB")
        return path.read_bytes()
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
        remove_leftovers(target.parent)
        temporary = target.with_name(f"{_temporary_name()}.tmp")
        try:
            with temporary.open("wb") as file:
                _hold(file.fileno())
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LecoError(f"{path}: cannot be written: {error.strerror}") from None


def check_replaceable(path: Path, mark: bytes, overwrite: bool) -> None:
    """Refuse to replace a file that leco did not write: one without the pattern that all of its kind have."""
    content = b"" if overwrite or not path.is_file() else read_bytes(path, sys.maxsize)
    if content and not re.search(mark, content):
        raise LecoError(f"{path}: was not written by leco; choose another file, or replace it with --overwrite")


@contextmanager
def new_folder(beside: Path) -> Iterator[Path]:
    """Yield a temporary folder beside a path; it is removed at the end, unless it was renamed."""
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(beside.parent)
        folder = beside.with_name(_temporary_name())
        folder.mkdir()
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise LecoError(f"{beside}: cannot be written: {error.strerror}") from None
    try:
        _hold(handle)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _temporary_name() -> str:
    return f".leco-{os.getpid()}-{secrets.token_hex(4)}"


def _hold(handle: int) -> None:
    """Lock a temporary file or folder for as long as it is open, so that no other process takes it for a leftover."""
    with suppress(OSError):  # file systems without locks
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@lru_cache(maxsize=1_000)  # once for each folder
def remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders of processes that were killed while they wrote to a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in [entry for entry in entries if _LEFTOVER.fullmatch(entry.name)]:
            with suppress(OSError):
                _remove_leftover(entry)


def _remove_leftover(entry: "os.DirEntry[str]") -> None:
    is_folder = not entry.name.endswith(".tmp")
    ours = entry.is_dir(follow_symlinks=False) if is_folder else entry.is_file(follow_symlinks=False)
    if not ours or time.time() - entry.stat(follow_symlinks=False).st_mtime < _SETTLED:
        return
    handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if another process writes to it
        shutil.rmtree(entry.path) if is_folder else os.unlink(entry.path)  # noqa: PTH108
    finally:
        os.close(handle)


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Record the digests of some files of a folder, for `changed` and for people."""
    lines = [f"{_digest(folder / name)}  {name}\n" for name in sorted(names)]
    write_text(folder / SUMS, "".join(lines))


def changed(folder: Path, *names: str) -> str | None:
    """The first of some files of a folder, by default all, that is not as it was written; None if all are.

    A folder without recorded digests is of an earlier version of leco, and nothing is known of it.
    """
    path = folder / SUMS
    if not os.path.lexists(path):
        return None
    known = {}
    for line in read_text(path, _LARGEST_SUMS).splitlines():
        digest, _, name = line.partition("  ")
        known[name] = digest
    for name in names or known:
        if Path(name).name != name or not (folder / name).is_file() or _digest(folder / name) != known.get(name):
            return name
    return None


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LecoError(f"{path}: cannot be read: {error.strerror}") from None


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

"""Damage to files as it may happen, or as somebody may do it on purpose, and what a command must then do."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.commands import leco

from leco.io import SUMS, write_sums

ODD: list[Any] = [None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**30, "", "x", "../../etc", "a\0b", "\x1b[2J"]
ODD += ["1", [], {}, [[]], ["x"], "x" * 5_000, {"x": {}}]
KINDS = ("flip", "cut", "delete", "drop", "retype", "nest", "rename")


@dataclass(frozen=True)
class Damage:
    """A file of several, what happens to it, and where."""

    file: int
    kind: str
    where: float  # as a share of the file
    value: int  # of `ODD`, or of a bit
    signed: bool  # whether digests are made to fit afterwards


DAMAGES = st.builds(
    Damage,
    st.integers(0, 99),
    st.sampled_from(KINDS),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, len(ODD) - 1),
    st.booleans(),
)


def apply(damage: Damage, files: list[Path]) -> Path:
    """Damage one of the files; return which."""
    path = files[damage.file % len(files)]
    if damage.kind == "delete":
        path.unlink()
    else:
        path.write_bytes(_damaged(damage, path.read_bytes(), path.suffix))
    if damage.signed and (path.parent / SUMS).is_file():
        write_sums(
            path.parent, [other.name for other in path.parent.iterdir() if other.is_file() and other.name != SUMS]
        )
    return path


def _damaged(damage: Damage, content: bytes, suffix: str) -> bytes:
    place = int(damage.where * len(content))
    if damage.kind == "flip":
        return content[:place] + bytes([content[place] ^ 1 << damage.value % 8]) + content[place + 1 :]
    if damage.kind == "cut":
        return content[:place]
    if suffix == ".json":
        return _retyped(damage, json.loads(content))
    if suffix == ".safetensors":
        length = int.from_bytes(content[:8], "little")
        header = _retyped(damage, json.loads(content[8 : 8 + length]))
        return len(header).to_bytes(8, "little") + header + content[8 + length :]
    lines = content.splitlines(keepends=True)
    number = int(damage.where * len(lines))
    if damage.kind == "drop":
        return b"".join(lines[:number] + lines[number + 1 :])
    if damage.kind == "nest":
        return b"".join([*lines[:number], b"[" * 100_000, *lines[number:]])
    cells = lines[number].replace(b":", b",").split(b",")
    return b"".join(
        [*lines[:number], lines[number].replace(cells[-1], f" {ODD[damage.value]}\n".encode()), *lines[number:]]
    )


def _retyped(damage: Damage, content: Any) -> bytes:
    """Change one value or key of a JSON document."""
    places = list(_places(content))
    holder, key = places[int(damage.where * len(places))]
    if damage.kind == "drop":
        del holder[key]
    elif damage.kind == "retype":
        holder[key] = ODD[damage.value]
    elif damage.kind == "rename" and isinstance(holder, dict):
        holder[f"{ODD[damage.value]}"] = holder.pop(key)
    else:
        holder[key] = "NESTED"
        return json.dumps(content).replace('"NESTED"', "[" * 100_000 + "]" * 100_000).encode()
    return json.dumps(content).encode()


def _places(content: Any) -> Any:
    """All places in a document that hold a value: the list or table, and the index or key."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield content, key
        if isinstance(value, dict | list):
            yield from _places(value)


def bystander(folder: Path) -> str:
    """Make a folder with files that nothing may touch; return its digest."""
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "thesis.tex").write_text("x")
    (folder / "mine" / "secret.json").write_text("{}")
    return digest_of(folder / "mine")


def digest_of(folder: Path) -> str:
    """Digest of all names and contents in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path.relative_to(folder)}".encode() + (path.read_bytes() if path.is_file() else b""))
    return found.hexdigest()


def check(folder: Path, *arguments: object) -> tuple[int, str]:
    """Call leco in a folder: it ends with 0 or 2, with one message, without a traceback or control characters."""
    before = bystander(folder)
    result = leco(*arguments, cwd=folder)
    assert result.returncode in (0, 2), result.stderr
    messages = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(messages) == (result.returncode == 2), result.stderr
    assert "Traceback" not in result.stderr
    shown = (result.stdout + result.stderr).replace("\n", "")
    assert "\x1b" not in shown
    assert "\0" not in shown
    assert digest_of(folder / "mine") == before
    return result.returncode, result.stdout


def fresh(source: Path, target: Path) -> Path:
    """Copy a folder over what the example before left."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))

"""The settings of a pydantic class as a Markdown table: name, type, default, bounds, meaning.

The meaning is a field's description or, where it has none, the comment beside it or above it.
"""

import inspect
import io
import re
import tokenize
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
_ALIGNED = "|---|---|---|---|---|"


def settings_table(model: type[BaseModel]) -> str:
    """The table of all fields of a class."""
    comments = field_comments(model)
    rows = [
        (
            f"`{name}`",
            spell_type(field.annotation),
            _default(field),
            bounds([*field.metadata, *_inner_metadata(field.annotation)]),
            field.description or comments.get(name, ""),
        )
        for name, field in model.model_fields.items()
    ]
    header = ("setting", "type", "default", "bounds", "meaning")
    return "\n".join([_row(header), _ALIGNED, *map(_row, rows)]) + "\n"


def spell_type(annotation: Any) -> str:
    """A type in the words of a user: the values that may be written.

    >>> spell_type(Literal["cosine", "poly"] | None)
    '`cosine` or `poly`, or none'
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return spell_type(inner[0])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, UnionType):
        kinds = " or ".join(spell_type(kind) for kind in inner if kind is not NoneType)
        return f"{kinds}, or none" if NoneType in inner else kinds
    if origin is tuple and inner[1:] == (...,):
        return f"{spell_type(inner[0])}, or a list"
    if origin in (tuple, list):
        return f"list ({', '.join(spell_type(kind) for kind in inner)})"
    words: Mapping[Any, str] = {str: "text", int: "integer", float: "number", bool: "true or false"}
    return words.get(annotation, f"`{getattr(annotation, '__name__', annotation)}`")


def bounds(metadata: Iterable[Any]) -> str:
    """The bounds among the constraints of a field.

    >>> from annotated_types import Ge, Lt
    >>> bounds([Ge(0), Lt(1)])
    '≥\\xa00, <\\xa01'
    """
    found = [(sign, getattr(each, key)) for each in metadata for key, sign in _SIGNS.items() if hasattr(each, key)]
    return ", ".join(f"{sign}\N{NO-BREAK SPACE}{_number(value)}" for sign, value in found)


def field_comments(model: type[BaseModel]) -> dict[str, str]:
    """The comment of each field: behind it on its line, or alone on the lines above it."""
    source = inspect.cleandoc("\n" + inspect.getsource(model))
    fields = {line: name for line, name in _field_lines(source) if name in model.model_fields}
    found: dict[str, str] = {}
    above: list[str] = []
    for number, line in enumerate(source.splitlines(), start=1):
        comment = _comments(source).get(number, "")
        if line.strip().startswith("#"):
            above.append(comment)
            continue
        if number in fields:
            found[fields[number]] = " ".join([*above, comment]).strip()
        above = []
    return {name: text for name, text in found.items() if text}


def _field_lines(source: str) -> list[tuple[int, str]]:
    lines = enumerate(source.splitlines(), start=1)
    return [(number, found[1]) for number, line in lines if (found := re.match(r"    (\w+):", line))]


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return ""
    parts = value if isinstance(value, tuple) else (value,)
    return ", ".join("none" if part is None else f"`{str(part).lower()}`" for part in parts)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _inner_metadata(annotation: Any) -> list[Any]:
    """The constraints inside a type, such as those of each number of a list."""
    own = list(getattr(annotation, "__metadata__", ()))
    nested = [each for inner in get_args(annotation) for each in _inner_metadata(inner)]
    flat = [part for each in own for part in (each.metadata if isinstance(each, FieldInfo) else [each])]
    return flat + nested


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

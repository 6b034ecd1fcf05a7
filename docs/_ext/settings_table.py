"""All settings as Markdown, from the code: a table for each part."""

from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_HUGE = 1_000_000
_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def settings_tables(parts: Mapping[str, type[BaseModel]], registered: Mapping[str, Iterable[str]]) -> str:
    """A section for each part: its docstring, and a table of its settings; `registered` names the values of some."""
    return "\n".join(
        f"## {name}\n\n{_first_paragraph(part)}\n\n{_table(name, part, registered)}\n" for name, part in parts.items()
    )


def _first_paragraph(part: type[BaseModel]) -> str:
    return " ".join((part.__doc__ or "").partition("\n\n")[0].split())


def _table(title: str, part: type[BaseModel], registered: Mapping[str, Iterable[str]]) -> str:
    rows = [
        (f"`{name}`", _default(field), _meaning(field, registered.get(f"{title}.{name}", ())))
        for name, field in part.model_fields.items()
    ]
    return "\n".join([_row(("setting", "default", "meaning")), "|---|---|---|", *map(_row, rows)])


def _meaning(field: FieldInfo, registered: Iterable[str]) -> str:
    """The description of a field, and in italics the values that it takes."""
    names = " or ".join(f"`{name}`" for name in registered)
    limits = bounds([*field.metadata, *_inner_metadata(field.annotation)])
    values = [names or spell_type(field.annotation), limits]
    return " ".join((field.description or "").split()) + f" *({', '.join(filter(None, values))})*"


def spell_type(annotation: Any) -> str:
    """A type as users write its values.

    >>> spell_type(Literal["cosine", "poly"] | None)
    '`cosine` or `poly`, or none'
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return spell_type(inner[0])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, UnionType):
        every = [spell_type(kind) for kind in inner if kind is not NoneType]
        # "number, or a list" says "number", too.
        kinds = " or ".join(k for k in every if not any(other != k and other.startswith(k) for other in every))
        return f"{kinds}, or none" if NoneType in inner else kinds
    if origin is tuple and inner[1:] == (...,):
        return f"{spell_type(inner[0])}, or a list"
    if origin is tuple:
        return f"list of {len(inner)} {spell_type(inner[0])}s"
    words: Mapping[Any, str] = {str: "text", int: "integer", float: "number", bool: "true or false"}
    return words[annotation]


def bounds(metadata: Iterable[Any]) -> str:
    """The bounds among the constraints of a field, but for those that only keep numbers from overflowing.

    >>> from annotated_types import Ge, Lt
    >>> bounds([Ge(0), Lt(1)])
    '≥\\xa00, <\\xa01'
    """
    found = [(sign, getattr(each, key)) for each in metadata for key, sign in _SIGNS.items() if hasattr(each, key)]
    shown = dict.fromkeys(f"{sign}\N{NO-BREAK SPACE}{_number(value)}" for sign, value in found if value < _HUGE)
    return ", ".join(shown)


def _inner_metadata(annotation: Any) -> list[Any]:
    """The constraints inside a type, such as those of each number of a list."""
    own = list(getattr(annotation, "__metadata__", ()))
    nested = [each for inner in get_args(annotation) for each in _inner_metadata(inner)]
    flat = [part for each in own for part in (each.metadata if isinstance(each, FieldInfo) else [each])]
    return flat + nested


def _default(field: FieldInfo) -> str:
    values = field.default if isinstance(field.default, tuple) else (field.default,)
    return ", ".join("none" if value is None else f"`{str(value).lower()}`" for value in values)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

"""Arguments of public functions are compared with their annotations: a wrong type is one message that names it."""

import inspect
import os
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import leco
from leco.errors import LecoError

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")
_CLASSES: dict[Any, Any] = {int: Integral, float: Real, Path: os.PathLike}
_NAMES: dict[Any, str] = {
    **{bool: "True or False", int: "a whole number", float: "a number", str: "a string", Path: "a path"},
    **{Mapping: "a mapping", Sequence: "a list", Iterable: "a list"},
}


def checks_arguments(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """Refuse arguments whose types are not those of the annotations; a decorator.

    >>> @checks_arguments
    ... def double(number: int | None = None) -> int | None:
    ...     return number and 2 * number
    >>> double("3")
    Traceback (most recent call last):
    leco.errors.LecoError: number: must be a whole number or None, not '3'
    """
    signature = inspect.signature(function)

    @cache
    def annotations() -> dict[str, Any]:  # when first called: other modules may not have been read before
        named = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        given = {name: hint for name, hint in named.items() if hint is not inspect.Parameter.empty}
        return get_type_hints(SimpleNamespace(__annotations__=given), vars(inspect.getmodule(function)))

    @wraps(function)
    def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python's own message names the function
        for name, values in given.items():
            several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for value in values if several else (values,):
                kinds = tuple(_kinds(annotations().get(name, Any)))
                if Any not in kinds and not any(_is_a(value, kind) for kind in kinds):
                    raise LecoError(f"{name}: must be {_described(kinds)}, not {' '.join(reprlib.repr(value).split())}")
        return function(*args, **kwargs)

    return checked


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the classes that an annotation allows, without what they hold."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _kinds(part)
    elif origin is Literal:
        yield from dict.fromkeys(type(value) for value in get_args(annotation))
    else:
        yield origin or annotation


def _is_a(value: object, kind: Any) -> bool:
    if (isinstance(value, bool) and kind in (int, float)) or (
        isinstance(value, str | bytes) and kind in (Sequence, Iterable)
    ):
        return False
    if kind is bool and type(value).__module__ == "numpy":  # which is not imported for this alone
        return type(value).__name__ in ("bool", "bool_")
    return isinstance(value, _CLASSES.get(kind, kind))


def _described(kinds: Sequence[Any]) -> str:
    """Name the classes, `None` last."""
    names = [_NAMES.get(kind) or _name_of(kind) for kind in kinds if kind is not NoneType]
    if str in kinds and Path in kinds:
        names = [name for name in names if name not in (_NAMES[str], _NAMES[Path])]
        names.append("the path of a local file or folder")
    return " or ".join([*names, *(["None"] if NoneType in kinds else [])])


def _name_of(kind: type) -> str:
    return f"a leco.{kind.__name__}" if kind.__name__ in leco.__all__ else kind.__name__

"""A strict and fast YAML parser for ontologies: text stays text, nothing is executed, errors have a line number.

`yaml.safe_load` turns `no` into False, keeps the last of duplicate keys, expands aliases without limit and takes 26 µs
per class. This parser consumes libyaml's events once, without recursion.
"""

from dataclasses import dataclass
from typing import Any

import yaml
from yaml import events
from yaml.resolver import Resolver

from leco.errors import TextError

try:
    from yaml import CSafeLoader as _Parser  # only its events are used
except ImportError:  # PyYAML without libyaml: slower, otherwise the same
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

Place = tuple[str | int, ...]  # keys and indices that lead to a value

_DEEPEST = 12  # an ontology needs six levels
_MOST_EVENTS = 8_000_000  # a class takes five
_KINDS = {"bool": "a boolean", "int": "a number", "float": "a number", "timestamp": "a date", "merge": "a merge key"}
_resolver = Resolver()
# Only scalars that start with one of these characters can resolve to something other than text.
_SUSPECT = frozenset("0123456789+-.~yYnNtTfFoO=<")


@dataclass(frozen=True)
class Plain:
    """An unquoted scalar that YAML resolves to something other than text."""

    text: str
    kind: str

    def __str__(self) -> str:
        return self.text


def read(text: str, wanted: Place | None = None, lines: dict[Place, int] | None = None) -> Any:
    """Parse YAML (or JSON) into mappings, lists, strings, None and `Plain`.

    If `lines` is given, it receives the line of every place up to `wanted`. That is slow, so pass it only to locate an
    error.
    """
    parser = _Parser(text)
    try:
        return _read(parser, wanted, lines)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise TextError(line, f"not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = error.character if isinstance(error.character, int) else ord(error.character)
        raise TextError(line, f"the character U+{character:04X} is not allowed in YAML") from None
    finally:
        parser.dispose()


def _read(parser: Any, wanted: Place | None, lines: dict[Place, int] | None) -> Any:
    root: list[Any] = []
    stack: list[dict[Any, Any] | list[Any]] = [root]  # the open containers
    keys: list[Any] = [None]  # for each of them, if a mapping: the key whose value comes next
    for _ in range(_MOST_EVENTS):
        event = parser.get_event()
        kind = type(event)
        if kind is events.ScalarEvent:
            value: Any = _scalar(event)
        elif kind is events.MappingStartEvent or kind is events.SequenceStartEvent:
            value = _container(event, len(stack))
        elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
            stack.pop()
            keys.pop()
            keys[-1] = None
            continue
        elif kind is events.StreamEndEvent:
            return root[0] if root else None
        elif kind is events.AliasEvent:
            raise TextError(_line(event), "anchors and aliases (& and *) are not supported; write the value out")
        elif kind is events.DocumentStartEvent and root:
            raise TextError(_line(event), "several YAML documents in one file; keep one")
        else:
            continue

        container = stack[-1]
        is_key = type(container) is dict and keys[-1] is None
        if is_key:
            keys[-1] = _key(value, container, event)
        elif type(container) is dict:
            container[keys[-1]] = value
        else:
            container.append(value)  # type: ignore[union-attr]
        if lines is not None:
            place = _place(stack, keys)
            lines.setdefault(place, _line(event))
            if place == wanted:
                return None
        if type(value) is dict or type(value) is list:
            stack.append(value)
            keys.append(None)
        elif not is_key:
            keys[-1] = None
    raise TextError(_line(event), f"too large: more than {_MOST_EVENTS:,} YAML events")


def _scalar(event: Any) -> str | Plain | None:
    text: str = event.value
    if event.tag is not None and event.tag != "!":
        raise TextError(_line(event), f"tags are not supported: {event.tag}")
    if not event.implicit[0]:  # quoted
        return text
    if text and text[0] not in _SUSPECT:
        return text
    tag = _resolver.resolve(yaml.ScalarNode, text, (True, False)).rpartition(":")[2]  # type: ignore[no-untyped-call]
    if tag == "str":
        return text
    return None if tag == "null" else Plain(text, _KINDS.get(tag, f"a {tag}"))


def _container(event: Any, depth: int) -> dict[Any, Any] | list[Any]:
    if event.tag is not None and event.tag != "!":
        raise TextError(_line(event), f"tags are not supported: {event.tag}")
    if depth > _DEEPEST:
        raise TextError(_line(event), f"nested more than {_DEEPEST} levels deep")
    return {} if type(event) is events.MappingStartEvent else []


def _key(value: Any, container: Any, event: Any) -> Any:
    if type(value) is dict or type(value) is list:
        raise TextError(_line(event), "a key must be text, not a mapping or a list")
    if value is None:
        raise TextError(_line(event), 'empty key; if the text null is meant, quote it: "null"')
    if value in container:
        raise TextError(_line(event), f"duplicate key {str(value)!r}")
    return value


def _place(stack: list[Any], keys: list[Any]) -> Place:
    levels = zip(stack[1:], keys[1:], strict=True)
    return tuple(key if type(container) is dict else len(container) - 1 for container, key in levels)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1

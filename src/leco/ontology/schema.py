"""Parse the content of an ontology file, as plain data, to an `Ontology`; see `docs/reference/ontology.md`.

A `SchemaError` has the path to the problem, so that the reader of the file can name the line.
"""

import re
import reprlib
from dataclasses import dataclass, field
from typing import Any, NoReturn

from scipy import sparse

from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL, Version, canonical
from leco.strict_yaml import Place, Plain

# Shares are written by hand: three times 0.333 means 1.
_SHARE_TOLERANCE = 0.005
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?")
_LONGEST_NAME = 200
_MOST_VERSIONS = 1_000


class SchemaError(LecoError):
    """A problem in the content of an ontology, and its path."""

    def __init__(self, path: Place, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{spell(path)}: {problem}" if path else problem)


def spell(path: Place) -> str:
    """Return a path in the usual notation.

    >>> spell(("versions", 1, "classes", "road"))
    'versions[1].classes.road'
    """
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


@dataclass
class _Draft:
    """A version being parsed: its classes so far, and the edges to the previous version."""

    name: str
    path: Place
    before: Version | None
    earlier: list[Version]
    used_ids: set[str]
    specs: dict[Any, Any] = field(default_factory=dict)  # as written
    keys: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    fresh_ids: set[str] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)


def parse(data: object) -> Ontology:
    """Check everything and build the ontology; the inverse of `unparse`."""
    root = _mapping(data, (), "an ontology", {"name", "versions"})
    name = _text(root.get("name", "ontology"), ("name",), "the name")
    versions = root.get("versions")
    if not isinstance(versions, list) or not versions:
        raise SchemaError(
            ("versions",) if "versions" in root else (), "`versions` must be a list of versions, oldest first"
        )
    if len(versions) > _MOST_VERSIONS:
        raise SchemaError(("versions",), f"{len(versions)} versions are too many; the limit is {_MOST_VERSIONS}")
    built: list[Version] = []
    steps: list[Transition] = []
    used_ids: set[str] = set()
    for number, spec in enumerate(versions):
        version, edges = _version(spec, ("versions", number), built, used_ids)
        if built:
            steps.append(Transition(built[-1], version, edges))
        built.append(version)
    return Ontology(name, tuple(built), tuple(steps))


def _version(spec: object, path: Place, earlier: list[Version], used_ids: set[str]) -> tuple[Version, Any]:
    content = _mapping(spec, path, "a version", {"name", "classes", "ignore"})
    if "name" not in content:
        raise SchemaError(path, "the version has no `name`")
    name = _text(content["name"], (*path, "name"), "a version name")
    if name in (version.name for version in earlier):
        raise SchemaError((*path, "name"), f"duplicate version {name!r}")
    draft = _Draft(name, (*path, "classes"), earlier[-1] if earlier else None, earlier, used_ids)
    classes = content.get("classes")
    if isinstance(classes, list | dict):
        draft.specs = classes if isinstance(classes, dict) else {}
        seen: set[str] = set()
        for place, item in enumerate(classes) if isinstance(classes, list) else ((key, key) for key in classes):
            key = _text(item, (*draft.path, place), "a class name")
            if canonical(key) in seen:
                raise SchemaError((*draft.path, place), f"duplicate class {key!r} of {name}")
            seen.add(canonical(key))
            _add_class(draft, key, draft.specs.get(key), (*draft.path, place))
    elif classes is not None:
        raise SchemaError(draft.path, f"`classes` must be a list or a mapping of class names, not {_show(classes)}")
    if not draft.classes:
        raise SchemaError(draft.path if "classes" in content else path, f"version {name!r} has no classes")
    return _finish(draft, _ignored(draft, content.get("ignore"), (*path, "ignore")))


def _finish(draft: _Draft, ignored: tuple[str, ...]) -> tuple[Version, Any]:
    """Check the version as a whole and build it."""
    first: dict[str, str] = {}
    for key, id_ in zip(draft.keys, draft.ids, strict=True):
        if canonical(id_) in first:
            problem = f"{first[canonical(id_)]!r} and {key!r} have the same id {id_!r}; use `from` for one of them"
            raise SchemaError((*draft.path, key), problem)
        first[canonical(id_)] = key
    version = Version(draft.name, tuple(draft.classes), tuple(draft.ids), ignored)
    for index, key in enumerate(draft.keys):
        if version.lookup[version.handle(index)] != index:
            problem = f"the key {key!r} of one of several classes named {draft.classes[index]!r} is the name of another"
            raise SchemaError((*draft.path, key), problem)
    draft.used_ids.update(map(canonical, draft.ids))
    shape = (len(version), len(draft.before) if draft.before else 0)
    return version, sparse.csr_array((draft.shares, (draft.rows, draft.columns)), shape=shape)


def _add_class(draft: _Draft, key: str, spec: object, path: Place) -> None:
    """Parse one class. Its key is its name or, if a `name` is given too, its id."""
    before = draft.before
    if spec is None:
        content: dict[Any, Any] = {}
    else:
        content = _mapping(spec, path, f"class {key!r}", {"from", "renamed", "guessed", "name", "id"})
    for word in ("from", "renamed"):
        if word in content and before is None:
            raise SchemaError((*path, word), f"{key!r} cannot have `{word}`: {draft.name} is the first version")
    if "from" in content and "renamed" in content:
        raise SchemaError(path, f"{key!r} has both `from` and `renamed`; give one of them")
    if "guessed" in content:
        _check_mark(key, content, (*path, "guessed"))

    same = before.lookup.get(key, NO_LABEL) if before else NO_LABEL  # the previous class of this name or id
    if "renamed" in content:
        same = _parent(draft, key, content["renamed"], (*path, "renamed"))
        parents = {same: 1.0}
    elif "from" in content:
        parents = _parents(draft, key, content["from"], (*path, "from"))
    elif same != NO_LABEL:
        parents = {_parent(draft, key, key, path): 1.0}
    else:
        parents = {}

    name = key
    if "name" in content:
        name = _text(content["name"], (*path, "name"), "a class name")
    elif before and same in parents and "renamed" not in content:
        same_name = canonical(before.classes[same]) == canonical(key)
        name = key if same_name else before.classes[same]  # the key may be its id
    if "id" in content:
        id_ = _text(content["id"], (*path, "id"), "an id")
        inherited = {canonical(before.ids[parent]) for parent in parents} if before else set()
        if canonical(id_) in draft.used_ids and canonical(id_) not in inherited:
            raise SchemaError(
                (*path, "id"), f"the id {id_!r} is that of another class, which {key!r} does not come from"
            )
    elif before and same in parents:
        id_ = before.ids[same]
    else:
        id_ = key
        while canonical(id_) in draft.used_ids or canonical(id_) in draft.fresh_ids:
            id_ += f"@{draft.name}"
        draft.fresh_ids.add(canonical(id_))
    for parent, share in parents.items():
        draft.rows.append(len(draft.classes))
        draft.columns.append(parent)
        draft.shares.append(share)
    draft.keys.append(key)
    draft.classes.append(name)
    draft.ids.append(id_)


def _check_mark(key: str, content: dict[Any, Any], path: Place) -> None:
    """Check `guessed: true`, the mark of an origin that nobody has checked; it does not change what the file means."""
    if not _is_true(content["guessed"]):
        problem = f"`guessed` of {key!r} must be true, not {_show(content['guessed'])}"
        raise SchemaError(path, f"{problem}; remove it once the origin is checked")
    if "from" not in content and "renamed" not in content:
        raise SchemaError(path, f"{key!r} has `guessed`, but no origin; remove it, or add `from` or `renamed`")


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, Plain) and value.text.lower() == "true")


def guessed_origins(data: Any) -> list[str]:
    """Return the origins that are marked as guessed in the content of a valid ontology file, such as "husky from dog".

    >>> classes = {"cat": None, "husky": {"from": "dog", "guessed": True}}
    >>> guessed_origins({"versions": [{"name": "v1", "classes": ["cat", "dog"]}, {"name": "v2", "classes": classes}]})
    ['husky from dog']
    """
    found = []
    for version in data["versions"]:
        classes = version["classes"]
        for key, spec in classes.items() if isinstance(classes, dict) else ():
            if spec and "guessed" in spec:
                origin = spec.get("from", spec.get("renamed"))
                found.append(f"{key} from {origin if isinstance(origin, str) else ' and '.join(origin) or 'nothing'}")
    return found


def _parents(draft: _Draft, key: str, spec: object, path: Place) -> dict[int, float]:
    """Parse `from`: a parent, a list of parents with equal shares (maybe empty), or a mapping of parents to shares."""
    if isinstance(spec, dict):
        pairs = [(parent, (*path, parent), _share(share, (*path, parent))) for parent, share in spec.items()]
    elif isinstance(spec, list):
        pairs = [(parent, (*path, number), 1 / len(spec)) for number, parent in enumerate(spec)]
    else:
        pairs = [(spec, path, 1.0)]
    if not pairs:  # brand-new, although the previous version may have a class of this name
        return {}
    shares: dict[int, float] = {}
    for parent, place, share in pairs:
        index = _parent(draft, key, parent, place)
        if index in shares:
            raise SchemaError(place, f"duplicate parent {parent!r} of {key!r}")
        shares[index] = share
    total = sum(shares.values())
    if abs(total - 1) > _SHARE_TOLERANCE:
        raise SchemaError(path, f"the shares of {key!r} sum to {total:g}, not 1")
    if abs(total - 1) < 1e-9:  # do not rescale, so that writing and reading changes nothing
        return shares
    return {parent: share / total for parent, share in shares.items()}


def _parent(draft: _Draft, key: str, spec: object, path: Place) -> int:
    """Return the index of the class in the previous version that `from` or `renamed` names."""
    before = draft.before
    assert before is not None
    if spec is None:
        raise SchemaError(path, f"`{path[-1]}` of {key!r} is empty; remove it if the class is brand-new")
    parent = _text(spec, path, "a parent")
    if parent not in before.lookup:
        _explain_unknown(draft, key, parent, path)
    index = _resolve(before, parent, path)
    if index == NO_LABEL:
        problem = (
            f"{parent!r} is ignored in {before.name}, so it cannot be the origin of {key!r}; make it a class there"
        )
        raise SchemaError(path, f"{problem}, or remove `from`")
    return index


def _resolve(version: Version, label: str, path: Place) -> int:
    try:
        return version.index(label)
    except LecoError as error:
        raise SchemaError(path, str(error)) from None


def _explain_unknown(draft: _Draft, key: str, parent: str, path: Place) -> NoReturn:
    before = draft.before
    assert before is not None
    for version in reversed(draft.earlier[:-1]):
        if parent in version.lookup:
            problem = f"{parent!r} is a class of {version.name}, not of {before.name}, the previous version"
            raise SchemaError(path, f"{problem}; name its descendant in {before.name}{nearest(parent, before.lookup)}")
    problem = f"{parent!r} is not a class of {before.name}"
    if parent in draft.specs:
        problem = _cycle(draft.specs, key) or f"{problem} but of {draft.name} itself"
        problem += f"; parents come from {before.name}"
    raise SchemaError(path, problem + nearest(parent, before.lookup))


def _cycle(specs: dict[Any, Any], key: str) -> str:
    """Return the cycle of `from` within one version, or ""."""
    chain: dict[str, None] = {}
    while key not in chain:
        chain[key] = None
        spec = specs.get(key)
        parents = spec.get("from", spec.get("renamed")) if isinstance(spec, dict) else []
        named = [parents] if isinstance(parents, str) else list(parents or [])
        inside = [parent for parent in named if isinstance(parent, str) and parent in specs]
        if not inside:
            return ""
        key = inside[0]
    loop = [*list(chain)[list(chain).index(key) :], key]
    shown = loop if len(loop) < 8 else [*loop[:3], "…", *loop[-3:]]
    return f"{' <- '.join(shown)} is a cycle"


def _share(value: object, path: Place) -> float:
    text = value.text if isinstance(value, Plain) else value
    if isinstance(text, str) and _NUMBER.fullmatch(text):
        text = float(text)
    if isinstance(text, bool) or not isinstance(text, int | float) or not 0 < text <= 1:
        shown = reprlib.repr(value.text)[1:-1] if isinstance(value, Plain) else _show(value)
        problem = f"a share must be in (0, 1], not {shown}"
        raise SchemaError(path, problem + ("; remove the parent" if text == 0 else ""))
    return float(text)


def _ignored(draft: _Draft, labels: object, path: Place) -> tuple[str, ...]:
    if labels is None:
        return ()
    if not isinstance(labels, list):
        raise SchemaError(path, f"`ignore` must be a list of labels, not {_show(labels)}")
    classes = set(map(canonical, draft.classes))
    ignored: dict[str, str] = {}
    for number, item in enumerate(labels):
        label = _text(item, (*path, number), "an ignored label")
        if canonical(label) in classes or canonical(label) in ignored:
            problem = "is also a class of this version" if canonical(label) in classes else "is a duplicate"
            raise SchemaError((*path, number), f"ignored label {label!r} {problem}")
        if draft.before and draft.before.lookup.get(label, NO_LABEL) < NO_LABEL:
            _resolve(draft.before, label, (*path, number))
        ignored[canonical(label)] = label
    return tuple(ignored.values())


def _mapping(value: object, path: Place, what: str, keys: set[str]) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise SchemaError(path, f"{what} must be a mapping with the keys {', '.join(sorted(keys))}, not {_show(value)}")
    for key in value:
        if key not in keys:
            raise SchemaError((*path, key), f"{what} has the unknown key {str(key)!r}{nearest(str(key), keys)}")
    return value


def _text(value: object, path: Place, what: str) -> str:
    """Return a string after checking that it can be a name."""
    if isinstance(value, Plain):
        raise SchemaError(
            path, f'{what} must be text, but YAML reads {value.text} as {value.kind}; write "{value.text}"'
        )
    if not isinstance(value, str):
        raise SchemaError(path, f"{what} must be text, not {_show(value)}")
    if problem := name_problem(value):
        raise SchemaError(path, f"{what} {problem}")
    return value


def name_problem(value: str) -> str:
    """Return why a string cannot be a name, or ""."""
    if not value.strip() or value != value.strip() or not value.isprintable():
        return f"must not be empty, padded with blanks or contain control characters: {_show(value)}"
    if len(value) > _LONGEST_NAME:
        return f"must have at most {_LONGEST_NAME} characters, not {len(value)}: {_show(value)}"
    return ""


def _show(value: object) -> str:
    if isinstance(value, Plain):
        return f"{value.kind} {reprlib.repr(value.text)[1:-1]}"
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return reprlib.repr(value)

"""The content of an ontology file, as plain data, to an `Ontology` and back. `docs/ontology.md` describes it.

Where something is wrong, `SchemaError` carries the path to it, so that the reader of the file can name the line.
"""

from dataclasses import dataclass, field
from typing import Any, NoReturn

from scipy import sparse

from leco.errors import LecoError, nearest
from leco.ontology.ontology import Ontology
from leco.ontology.strict_yaml import Plain
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL, Version

Path = tuple[str | int, ...]

# Shares are written by hand: 0.333 three times is meant to be a whole.
_SHARE_TOLERANCE = 0.005


class SchemaError(LecoError):
    """What is wrong with an ontology's content, and where."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{spell(path)}: {problem}" if path else problem)


def spell(path: Path) -> str:
    """Write a path the way people do.

    >>> spell(("versions", 1, "classes", "road"))
    'versions[1].classes.road'
    """
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


@dataclass
class _Draft:
    """One version being read: its classes so far, and the edges to the version before."""

    name: str
    path: Path
    before: Version | None
    earlier: list[Version]
    used_ids: set[str]
    specs: dict[Any, Any] = field(default_factory=dict)  # as written
    keys: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
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
    if len(versions) == 1:
        raise SchemaError(("versions",), "there is only one version; an ontology that evolves has at least two")
    built: list[Version] = []
    steps: list[Transition] = []
    used_ids: set[str] = set()
    for number, spec in enumerate(versions):
        version, edges = _version(spec, ("versions", number), built, used_ids)
        if built:
            steps.append(Transition(built[-1], version, edges))
        built.append(version)
    return Ontology(name, tuple(built), tuple(steps))


def _version(spec: object, path: Path, earlier: list[Version], used_ids: set[str]) -> tuple[Version, Any]:
    content = _mapping(spec, path, "a version", {"name", "classes", "ignore"})
    if "name" not in content:
        raise SchemaError(path, "the version has no `name`")
    name = _text(content["name"], (*path, "name"), "a version name")
    if name in (version.name for version in earlier):
        raise SchemaError((*path, "name"), f"there are two versions named {name!r}")
    draft = _Draft(name, (*path, "classes"), earlier[-1] if earlier else None, earlier, used_ids)
    classes = content.get("classes")
    if isinstance(classes, list):
        seen: set[str] = set()
        for number, item in enumerate(classes):
            key = _text(item, (*draft.path, number), "a class name")
            if key in seen:
                raise SchemaError((*draft.path, number), f"class {key!r} of {name} is listed twice")
            seen.add(key)
            _add_class(draft, key, None, (*draft.path, number))
    elif isinstance(classes, dict):
        draft.specs = classes
        for key, item in classes.items():
            _add_class(draft, _text(key, (*draft.path, key), "a class name"), item, (*draft.path, key))
    elif classes is not None:
        raise SchemaError(draft.path, f"`classes` must be a list or a mapping of class names, not {_show(classes)}")
    if not draft.classes:
        raise SchemaError(draft.path if "classes" in content else path, f"version {name!r} has no classes")
    return _finish(draft, _ignored(content, path))


def _finish(draft: _Draft, ignored: tuple[str, ...]) -> tuple[Version, Any]:
    """Check the version as a whole, and make it."""
    version = Version(draft.name, tuple(draft.classes), tuple(draft.ids), ignored)
    for what, values in (("id", draft.ids), ("name", [*draft.classes, *ignored])):
        if len(set(values)) == len(values):
            continue
        seen: dict[str, int] = {}
        for index, value in enumerate(values):
            if value not in seen:
                seen[value] = index
            elif what == "id":
                first, second = draft.keys[seen[value]], draft.keys[index]
                problem = f"{first!r} and {second!r} both claim to be the class {value!r} of before; use `from` for one"
                raise SchemaError((*draft.path, second), problem)
            elif index >= len(draft.classes):
                raise SchemaError(draft.path[:-1], f"{value!r} is both a class and ignored, or ignored twice")
            elif draft.ids[index] in version.lookup and version.lookup[draft.ids[index]] != index:
                problem = f"the key {draft.ids[index]!r} of a class named {value!r} is the name of another class"
                raise SchemaError((*draft.path, draft.keys[index]), problem)
    draft.used_ids.update(draft.ids)
    shape = (len(version), len(draft.before) if draft.before else 0)
    return version, sparse.csr_array((draft.shares, (draft.rows, draft.columns)), shape=shape)


def _add_class(draft: _Draft, key: str, spec: object, path: Path) -> None:
    """Read one class. Its key is its name, or its id where a `name` is given beside it."""
    before = draft.before
    if spec is None:
        content: dict[Any, Any] = {}
    else:
        content = _mapping(spec, path, f"class {key!r}", {"from", "renamed", "name"})
    for word in ("from", "renamed"):
        if word in content and before is None:
            raise SchemaError((*path, word), f"{draft.name} is the first version: nothing comes before {key!r}")
    if "from" in content and "renamed" in content:
        raise SchemaError(path, f"{key!r} has both `from` and `renamed`; give one of them")

    same = before.lookup.get(key, NO_LABEL) if before else NO_LABEL  # the class of this name, or id, before
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
        name = before.classes[same]  # the key may be its id
    if before and same in parents:
        id_ = before.ids[same]
    else:
        id_ = key if key not in draft.used_ids else f"{key}@{draft.name}"
    for parent, share in parents.items():
        draft.rows.append(len(draft.classes))
        draft.columns.append(parent)
        draft.shares.append(share)
    draft.keys.append(key)
    draft.classes.append(name)
    draft.ids.append(id_)


def _parents(draft: _Draft, key: str, spec: object, path: Path) -> dict[int, float]:
    """Read `from`: one parent, a list of parents with equal shares, or a mapping of parents to shares."""
    if isinstance(spec, dict):
        pairs = [(parent, (*path, parent), _share(share, (*path, parent))) for parent, share in spec.items()]
    elif isinstance(spec, list):
        pairs = [(parent, (*path, number), 1 / len(spec)) for number, parent in enumerate(spec)]
    else:
        pairs = [(spec, path, 1.0)]
    if not pairs:
        raise SchemaError(path, f"`from` of {key!r} is empty; leave it out for a brand-new class")
    shares: dict[int, float] = {}
    for parent, place, share in pairs:
        index = _parent(draft, key, parent, place)
        if index in shares:
            raise SchemaError(place, f"{key!r} names the parent {parent!r} twice")
        shares[index] = share
    total = sum(shares.values())
    if abs(total - 1) > _SHARE_TOLERANCE:
        raise SchemaError(path, f"the shares of {key!r} sum to {total:g}, not 1")
    if abs(total - 1) < 1e-9:  # leave alone what is right, so that writing and reading changes nothing
        return shares
    return {parent: share / total for parent, share in shares.items()}


def _parent(draft: _Draft, key: str, spec: object, path: Path) -> int:
    """Return the index, in the version before, of the class that `from` or `renamed` names."""
    before = draft.before
    assert before is not None
    if spec is None:
        raise SchemaError(path, f"{key!r} names no parent; leave `{path[-1]}` out for a brand-new class")
    parent = _text(spec, path, "a parent")
    if parent not in before.lookup:
        _explain_unknown(draft, key, parent, path)
    try:
        index = before.index(parent)
    except LecoError as error:
        raise SchemaError(path, str(error)) from None
    if index == NO_LABEL:
        problem = f"{parent!r} is ignored in {before.name}, so its labels say nothing of {key!r}; make it a class there"
        raise SchemaError(path, problem + ", or leave `from` out")
    return index


def _explain_unknown(draft: _Draft, key: str, parent: str, path: Path) -> NoReturn:
    before = draft.before
    assert before is not None
    for version in reversed(draft.earlier[:-1]):
        if parent in version.lookup:
            problem = f"{parent!r} is a class of {version.name}, not of {before.name}, the version just before"
            raise SchemaError(path, f"{problem}; name its descendant in {before.name}{nearest(parent, before.lookup)}")
    problem = f"{parent!r} is not a class of {before.name}"
    if parent in draft.specs:
        chain = _chain(draft.specs, key)
        if chain[-1] in chain[:-1]:
            problem = f"{' <- '.join(chain)} is a cycle within {draft.name}; parents come from {before.name}"
        else:
            problem += f" but of {draft.name} itself; parents come from the version before"
    raise SchemaError(path, problem + nearest(parent, before.lookup))


def _chain(specs: dict[Any, Any], key: str) -> list[str]:
    """Follow `from` within one version, as far as it leads or until it comes round."""
    chain = [key]
    while len(set(chain)) == len(chain):
        spec = specs.get(chain[-1])
        parent = spec.get("from", spec.get("renamed")) if isinstance(spec, dict) else None
        if not isinstance(parent, str) or parent not in specs:
            break
        chain.append(parent)
    return chain


def _share(value: object, path: Path) -> float:
    text = value.text if isinstance(value, Plain) else value
    try:
        share = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise SchemaError(path, f"a share must be a number between 0 and 1, not {_show(value)}") from None
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise SchemaError(path, f"a share must be a number between 0 and 1, not {_show(value)}")
    return share


def _ignored(content: dict[Any, Any], path: Path) -> tuple[str, ...]:
    ignored = content.get("ignore")
    if ignored is None:
        return ()
    if not isinstance(ignored, list):
        raise SchemaError((*path, "ignore"), f"`ignore` must be a list of labels, not {_show(ignored)}")
    return tuple(_text(item, (*path, "ignore", n), "an ignored label") for n, item in enumerate(ignored))


def _mapping(value: object, path: Path, what: str, keys: set[str]) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise SchemaError(path, f"{what} must be a mapping with the keys {', '.join(sorted(keys))}, not {_show(value)}")
    for key in value:
        if key not in keys:
            raise SchemaError((*path, key), f"{what} has the unknown key {key!r}{nearest(str(key), sorted(keys))}")
    return value


def _text(value: object, path: Path, what: str) -> str:
    """Return a string that is fit to be a name."""
    if isinstance(value, Plain):
        raise SchemaError(
            path, f'{what} must be text, but YAML reads {value.text} as {value.kind}; write "{value.text}"'
        )
    if not isinstance(value, str):
        raise SchemaError(path, f"{what} must be text, not {_show(value)}")
    if not value.strip() or value != value.strip() or not value.isprintable():
        raise SchemaError(path, f"{what} must not be empty, padded with blanks or hold control characters: {value!r}")
    return value


def _show(value: object) -> str:
    if isinstance(value, Plain):
        return f"{value.kind} {value.text}"
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)


def unparse(ontology: Ontology) -> dict[str, Any]:
    """Return plain data that `parse` turns into an equal ontology."""
    versions = []
    for number, version in enumerate(ontology.versions):
        step = ontology.steps[number - 1] if number else None
        specs = {}
        for index in range(len(version)):
            key, spec = _unparse_class(version, index, step)
            specs[key] = spec
        plain = not any(specs.values())
        content: dict[str, Any] = {"name": version.name, "classes": list(specs) if plain else specs}
        if version.ignored:
            content["ignore"] = list(version.ignored)
        versions.append(content)
    return {"name": ontology.name, "versions": versions}


def _unparse_class(version: Version, index: int, step: Transition | None) -> tuple[str, dict[str, Any] | None]:
    """Return key and content of one class, so that `_add_class` finds the same name, id and parents again."""
    name, id_ = version.classes[index], version.ids[index]
    parents = step.origins(index) if step else {}
    same = next((parent for parent in parents if step and step.old.ids[parent] == id_), NO_LABEL)
    key = _key(version, index, step.old if step else None, same)
    implied = key
    spec: dict[str, Any] = {}
    if step and parents:
        if same != NO_LABEL and step.old.lookup.get(key) == same:
            implied = step.old.classes[same]
            if len(parents) > 1:
                spec["from"] = _unparse_parents(step.old, parents)
        elif same != NO_LABEL:
            spec["renamed"] = step.old.handle(same)
        else:
            spec["from"] = _unparse_parents(step.old, parents)
    if name != implied:
        spec["name"] = name
    return key, spec or None


def _key(version: Version, index: int, before: Version | None, same: int) -> str:
    """A class that is new has its id as key; others have their name, if that says which class it was before."""
    id_, handle = version.ids[index], version.handle(index)
    if before is None or same == NO_LABEL or (handle != id_ and handle in version.ids):
        return id_
    unclear = before.lookup.get(handle) != same and before.classes[same] == version.classes[index]
    return id_ if unclear and before.lookup.get(id_) == same else handle


def _unparse_parents(old: Version, parents: dict[int, float]) -> str | list[str] | dict[str, float]:
    shares = {old.handle(parent): share for parent, share in parents.items()}
    if len(shares) == 1:
        return next(iter(shares))
    equal = all(abs(share - 1 / len(shares)) < 1e-12 for share in shares.values())
    return list(shares) if equal else shares

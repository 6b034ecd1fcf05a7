"""Tables with a column of paths and one of labels: a file per version, or a single file with a column `version`."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from leco.data.importers.importer import (
    SPLITS_BY_NAME,
    Finder,
    LeftOut,
    Options,
    Sample,
    Source,
    check_paths,
    common_root,
    prefix,
    version_names,
)
from leco.data.manifest.table import Fault, Table, read_table
from leco.errors import LecoError, nearest
from leco.ontology.schema import name_problem

# Common names, the most specific first.
PATHS = ("image", "path", "image_path", "img_path", "file", "filename", "file_name", "filepath", "file_path", "img")
LABELS = ("label", "class", "category", "class_name", "label_name", "category_name", "target", "species", "choice")
_SPLITS = ("split", "subset", "partition", "set")
_VERSION = "version"


def read_tables(paths: Sequence[Path], options: Options) -> Source:
    """Read CSV files (also .jsonl and .parquet); their paths are relative to the file, or to `options.images`."""
    check_paths(paths)
    tables = [read_table(path) for path in paths]
    if len(paths) == 1 and _column(tables[0], (_VERSION,)) is None:
        raise LecoError(f"{paths[0]}: has no column 'version'; add one, or give a file per version, oldest first")
    folders = [options.images or path.parent for path in paths]
    root, left_out = common_root(folders), LeftOut()
    named = version_names(paths)
    versions: dict[str, None] = {} if len(paths) == 1 else dict.fromkeys(named)
    samples: list[Sample] = []
    remarks = []
    for table, folder, name in zip(tables, folders, named, strict=True):
        for problem in table.broken:
            left_out.add(f"a broken row of {table.source.name}", str(problem))
        path_column = pick(table, options.path_column, PATHS, "--path-column")
        label_column = pick(table, options.label_column, LABELS, "--label-column")
        if path_column == label_column:
            raise LecoError(
                f"{table.source}: {path_column!r} cannot be both the column of paths and the column of labels"
            )
        split_column, finder, start = _column(table, _SPLITS), Finder(folder), prefix(root, folder)
        given = table[_column(table, (_VERSION,)) or _VERSION] if len(paths) == 1 else [name] * len(table)
        remarks.append(f"{table.source.name}: paths are in column {path_column!r}, labels in {label_column!r}")
        cells = zip(table[path_column], table[label_column], table[split_column or ""], given, strict=True)
        for place, (path, label, split, version) in enumerate(cells):
            row = f"{table.source.name} {table.name(place)}"
            below = finder.at(path) if path else Fault("no input", "a row without a path")
            if isinstance(below, Fault):
                left_out.add(below.message if not path else f"outside {folder}; set another folder with --images", row)
            elif split and split.lower() not in SPLITS_BY_NAME:
                left_out.add("a split other than train, val and test", f"{row}: {split}")
            elif label and (not version or name_problem(version)):
                left_out.add("a label without a valid version", row)
            else:
                if label:
                    versions.setdefault(version)
                taken = SPLITS_BY_NAME.get(split.lower(), "")
                samples.append(Sample(f"{start}{below}", label, version if label else "", taken))
    if not versions:
        raise LecoError(f"{paths[0]}: no row has a label and a version")
    if len(paths) > 1:
        return Source(root, tuple(versions), samples, left_out, remarks)
    ordered, by = oldest_first(versions)
    if len(ordered) > 1:
        order = " before ".join(ordered)
        remarks.append(f"{paths[0].name}: {order}, {by}; if that is wrong, give a file per version, oldest first")
    return Source(root, ordered, samples, left_out, remarks)


def oldest_first(names: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """Order versions by their numbers, if their names differ in nothing else, and say how they were ordered.

    >>> oldest_first(["v10", "v2"])
    (('v2', 'v10'), 'by number')
    >>> oldest_first(["groups", "classes"])
    (('groups', 'classes'), 'as they first appear')
    """
    names = tuple(names)
    if len({re.sub(r"\d+", "0", name) for name in names}) == 1:
        width = max(map(len, names))
        return tuple(
            sorted(names, key=lambda name: re.sub(r"\d+", lambda found: found[0].zfill(width), name))
        ), "by number"
    return names, "as they first appear"


def pick(table: Table, chosen: str | None, common: Sequence[str], option: str) -> str:
    """Return the chosen column, or by default the first one with a common name."""
    if chosen is not None:
        if chosen not in table.columns:
            raise LecoError(f"{table.source}: has no column {chosen!r}{nearest(chosen, table.columns)}")
        return chosen
    if found := _column(table, common):
        return found
    header = next(iter(table.columns), "")
    if len(table.columns) == 1 and any(mark in header for mark in ";\t|"):
        raise LecoError(f"{table.source}: columns are not separated by commas: {header[:60]!r}; save it with commas")
    names = f"{common[0]}, {common[1]} or the like"
    raise LecoError(f"{table.source}: no column named {names}; choose one with {option}{nearest('', table.columns)}")


def _column(table: Table, common: Sequence[str]) -> str | None:
    """Find a column by name, ignoring case, blanks and hyphens."""
    named = {name.strip().lower().replace(" ", "_").replace("-", "_"): name for name in reversed(table.columns)}
    return next((named[name] for name in common if name in named), None)

"""Tables with a column of paths and a column of labels: a file per version, or one file with a column `version`."""

from collections.abc import Sequence
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
from leco.data.manifest.problems import Fault
from leco.data.manifest.table import Table, read_table
from leco.errors import LecoError, nearest
from leco.ontology.schema import name_problem

# The usual names, the surest first.
PATHS = ("image", "path", "image_path", "img_path", "file", "filename", "file_name", "filepath", "file_path", "img")
LABELS = ("label", "class", "category", "class_name", "label_name", "category_name", "target", "species", "choice")
_SPLITS = ("split", "subset", "partition", "set")
_VERSION = "version"


def read_tables(paths: Sequence[Path], options: Options) -> Source:
    """Read CSV files (also .jsonl and .parquet); paths in them are relative to them, or to `options.images`."""
    check_paths(paths)
    tables = [read_table(path) for path in paths]
    if len(paths) == 1 and _column(tables[0][0], (_VERSION,)) is None:
        raise LecoError(f"{paths[0]}: has no column 'version'; give a file per version, oldest first, or such a column")
    folders = [options.images or path.parent for path in paths]
    root, left_out = common_root(folders), LeftOut()
    named = version_names(paths)
    versions: dict[str, None] = {} if len(paths) == 1 else dict.fromkeys(named)
    samples: list[Sample] = []
    remarks = []
    for (table, broken), folder, name in zip(tables, folders, named, strict=True):
        for problem in broken:
            left_out.add(f"a broken row of {table.source.name}", str(problem))
        path_column = pick(table, options.path_column, PATHS, "the paths", "--path-column")
        label_column = pick(table, options.label_column, LABELS, "the labels", "--label-column")
        if path_column == label_column:
            raise LecoError(f"{table.source}: the paths and the labels are in the same column, {path_column!r}")
        split_column, finder, start = _column(table, _SPLITS), Finder(folder), prefix(root, folder)
        given = table[_column(table, (_VERSION,)) or _VERSION] if len(paths) == 1 else [name] * len(table)
        remarks.append(f"{table.source.name}: paths are in column {path_column!r}, labels in {label_column!r}")
        cells = zip(table[path_column], table[label_column], table[split_column or ""], given, strict=True)
        for place, (path, label, split, version) in enumerate(cells):
            row = f"{table.source.name} {table.name(place)}"
            below = finder.at(path) if path else Fault("no input", "a row without a path")
            if isinstance(below, Fault):
                left_out.add(below.message if not path else f"outside {folder}; --images names another folder", row)
            elif split and split.lower() not in SPLITS_BY_NAME:
                left_out.add("a split that is none of train, val and test", f"{row}: {split}")
            elif label and (not version or name_problem(version)):
                left_out.add("a label without a version, or with one that cannot be a name", row)
            else:
                if label:
                    versions.setdefault(version)
                taken = SPLITS_BY_NAME.get(split.lower(), "")
                samples.append(Sample(f"{start}{below}", label, version if label else "", taken))
    if not versions:
        raise LecoError(f"{paths[0]}: no row has a label and a version")
    return Source(root, tuple(versions), samples, left_out, remarks)


def pick(table: Table, asked: str | None, usual: Sequence[str], what: str, option: str) -> str:
    """The column that was asked for, or else the first of the usual ones that is there."""
    if asked is not None:
        if asked not in table.columns:
            raise LecoError(f"{table.source}: has no column {asked!r}{nearest(asked, table.columns)}")
        return asked
    if found := _column(table, usual):
        return found
    header = next(iter(table.columns), "")
    if len(table.columns) == 1 and any(mark in header for mark in ";\t|"):
        raise LecoError(
            f"{table.source}: the columns are not separated by commas: {header[:60]!r}; save it with commas"
        )
    raise LecoError(
        f"{table.source}: no column is named as {what} usually are; say {option}{nearest('', table.columns)}"
    )


def _column(table: Table, usual: Sequence[str]) -> str | None:
    """A column by its name, whatever its capitals, blanks and hyphens."""
    named = {name.strip().lower().replace(" ", "_").replace("-", "_"): name for name in reversed(table.columns)}
    return next((named[name] for name in usual if name in named), None)

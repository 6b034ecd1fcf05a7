"""Sections as the paper's tables: ours beside the paper's, the best in bold, gaps where nothing was trained."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from leco.paper import Cell, value_of
from leco.reports.comparison import Scores, gap_closed
from leco.reports.sections import FIRST, Key, Section

_STRATEGIES = ("finetune", "freeze", "scratch", "lp-ft")
_ANNOTATIONS = ("label-new", "relabel-old", "all-fine")
_COARSE = ("ce", "joint", "lpl")
_PSEUDO = ("st-hard", "st-soft", "pl", "fixmatch")
_REFINE = ("", "/filter", "/cond")


@dataclass(frozen=True)
class Entry:
    """One cell: ours, and what the paper has."""

    key: Key
    scores: Scores | None
    paper: tuple[Cell, ...]
    share: float | None = None  # of the gap to all-fine that is closed
    best: bool = False

    @property
    def paper_text(self) -> str:
        """The paper's figure, or figures where it disagrees with itself."""
        return " or ".join(str(cell) for cell in self.paper)


@dataclass(frozen=True)
class Row:
    """A row: its labels, and an entry for each column, None where the paper has no such cell."""

    labels: tuple[str, ...]
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True)
class Table:
    """One of the paper's tables, filled with ours."""

    name: str
    caption: str
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def entries(self) -> list[Entry]:
        """All entries, row by row."""
        return [entry for row in self.rows for entry in row.entries if entry is not None]

    @property
    def counts(self) -> list[int]:
        """How many seeds cells have: one number, if all have the same."""
        return sorted({len(entry.scores) for entry in self.entries if entry.scores is not None})

    @property
    def has_paper(self) -> bool:
        """Whether the paper has any of the cells."""
        return any(entry.paper for entry in self.entries)

    @property
    def has_shares(self) -> bool:
        """Whether any cell says which share of the gap it closes."""
        return any(entry.share is not None for entry in self.entries)


# A layout: labels and the key of every column, of each row.
Layout = list[tuple[tuple[str, ...], list[Key | None]]]


def tables(section: Section) -> list[Table]:
    """The paper's tables of a section, as far as anything in them was trained."""
    last = section.last
    if not last:
        return [_fill(section, "first", "The first period.", (), ("TP0",), [((), [FIRST])])]
    if last == 1:
        made = [_baseline(section), _joint(section), _hierarchy(section), _combinations(section)]
    else:
        made = [_baseline_periods(section), _losses_periods(section), _combinations(section)]
    return [_compact(table) for table in made if _adds_something(table)]


def _adds_something(table: Table) -> bool:
    """Whether anything was trained that is not in the baseline anyway."""
    own = [entry.key for entry in table.entries if entry.scores is not None and entry.key.period]
    return any(key.method != "ce" or table.name.startswith("baseline") for key in own)


def _compact(table: Table) -> Table:
    """Without the rows and columns that are empty here and not in the paper either."""

    def says(entry: Entry | None) -> bool:
        return entry is not None and (entry.scores is not None or bool(entry.paper))

    columns = [c for c in range(len(table.columns)) if any(says(row.entries[c]) for row in table.rows)]
    rows = [row for row in table.rows if any(map(says, row.entries))]
    return replace(
        table,
        columns=tuple(table.columns[c] for c in columns),
        rows=tuple(replace(row, entries=tuple(row.entries[c] for c in columns)) for row in rows),
    )


def _baseline(section: Section) -> Table:
    layout: Layout = []
    for number, strategy in enumerate(_STRATEGIES):
        keys: list[Key | None] = [Key(1, "ce", strategy, annotation) for annotation in _ANNOTATIONS]
        layout.append(((strategy,), [None if number else FIRST, *keys]))
    caption = "Which data to label and what to start from, with cross-entropy alone (Table 2)."
    table = _fill(section, "baseline", caption, ("strategy",), ("TP0", *_ANNOTATIONS), layout)
    return replace(table, rows=_bold(table.rows, lambda entry: entry.key.annotation))


def _joint(section: Section) -> Table:
    layout: Layout = [(("none",), [Key(1), Key(1, annotation="all-fine"), Key(1, "joint"), None, None])]
    for pseudo in _PSEUDO:
        layout.append(((pseudo,), [None, None, None, *(Key(1, f"{coarse}+{pseudo}") for coarse in ("ce", "joint"))]))
    caption = "What old data add through pseudo-labels, a second head for old labels, or both (Table 3)."
    columns = ("ce", "all-fine", "joint", "ce+SSL", "joint+SSL")
    return _shared(_fill(section, "ssl-joint", caption, ("SSL",), columns, layout))


def _hierarchy(section: Section) -> Table:
    layout: Layout = [(("none",), [Key(1), Key(1, annotation="all-fine"), Key(1, "lpl"), *[None] * 4])]
    for pseudo in _PSEUDO:
        methods = [f"joint+{pseudo}", *(f"lpl+{pseudo}{refine}" for refine in _REFINE)]
        layout.append(((pseudo,), [None, None, None, *(Key(1, method) for method in methods)]))
    caption = "What knowing the hierarchy adds: partial labels, and pseudo-labels refined by the old label (Table 4)."
    columns = ("ce", "all-fine", "lpl", "joint+SSL", "lpl+SSL", "lpl+SSL/filter", "lpl+SSL/cond")
    return _shared(_fill(section, "hierarchy", caption, ("SSL",), columns, layout))


def _combinations(section: Section) -> Table:
    last = section.last
    layout: Layout = [(("none", ""), [Key(last, coarse) for coarse in _COARSE])]
    for pseudo in _PSEUDO:
        for refine in _REFINE:
            keys: list[Key | None] = [Key(last, f"{coarse}+{pseudo}{refine}") for coarse in _COARSE]
            layout.append(((pseudo, refine.lstrip("/") or "plain"), keys))
    layout.append((("all-fine", ""), [Key(last, annotation="all-fine"), None, None]))
    done = sum(section.scores(key) is not None for _, keys in layout[:-1] for key in keys if key)
    caption = f"All combinations of losses, with finetune: {done} of 39 were trained (Table 12)."
    return _shared(_fill(section, "combinations", caption, ("SSL", "refined"), _COARSE, layout))


def _baseline_periods(section: Section) -> Table:
    layout: Layout = []
    for strategy in _STRATEGIES:
        for annotation in _ANNOTATIONS:
            keys: list[Key | None] = [Key(p, "ce", strategy, annotation) for p in range(1, section.last + 1)]
            layout.append(((strategy, annotation), [None if layout else FIRST, *keys]))
    caption = "Which data to label and what to start from, over all periods (Table 5)."
    table = _fill(section, "baseline-periods", caption, ("strategy", "annotation"), _periods(section), layout)
    return replace(table, rows=_bold(table.rows, lambda entry: f"{entry.key.period} {entry.key.annotation}"))


def _losses_periods(section: Section) -> Table:
    trained = {key.method for key in section.cells if key.period and key.strategy == "finetune"}
    methods = [f"{c}+{p}{r}" if p else c for c in _COARSE for p in ("", *_PSEUDO) for r in (_REFINE if p else ("",))]
    layout: Layout = [
        ((name,), [None if number else FIRST, *(Key(p, name) for p in range(1, section.last + 1))])
        for number, name in enumerate(m for m in methods if m in trained or m == "ce")
    ]
    keys: list[Key | None] = [Key(p, annotation="all-fine") for p in range(1, section.last + 1)]
    layout.append((("all-fine",), [None, *keys]))
    caption = "What the losses on old data add, with finetune, over all periods (Table 6)."
    return _shared(_fill(section, "losses-periods", caption, ("method",), _periods(section), layout))


def _periods(section: Section) -> tuple[str, ...]:
    return tuple(f"TP{period}" for period in range(section.last + 1))


def _fill(
    section: Section, name: str, caption: str, labels: tuple[str, ...], columns: Sequence[str], layout: Layout
) -> Table:
    rows = [Row(texts, tuple(key and entry(section, key) for key in keys)) for texts, keys in layout]
    return Table(name, caption, labels, tuple(columns), tuple(rows))


def entry(section: Section, key: Key) -> Entry:
    """Ours and the paper's, for one cell."""
    paper = value_of(section.benchmark, key.method, key.strategy, key.annotation, key.period)
    return Entry(key, section.scores(key), tuple(paper), share_closed(section, key))


def share_closed(section: Section, key: Key) -> float | None:
    """The share of the gap between `ce` and all-fine that a method closes, over the seeds that all three have."""
    ours = [section.scores(k) for k in (key, Key(key.period), Key(key.period, annotation="all-fine"))]
    if key.period == 0 or key.method == "ce":
        return None
    found = [scores for scores in ours if scores is not None]
    if len(found) < 3:
        return None
    seeds = set.intersection(*(set(scores.by_seed) for scores in found))
    if not seeds:
        return None
    return gap_closed(*(Scores({seed: scores.by_seed[seed] for seed in seeds}) for scores in found))


def _shared(table: Table) -> Table:
    """Mark the best methods of each period; all-fine is what they are measured by, so it does not compete."""
    return replace(
        table, rows=_bold(table.rows, lambda e: None if e.key.annotation == "all-fine" else str(e.key.period))
    )


def _bold(rows: Iterable[Row], pool: Callable[[Entry], str | None]) -> tuple[Row, ...]:
    """Mark the best entry of every pool, and those less than one standard deviation (of the best) below it."""
    rows = tuple(rows)
    best: dict[str, Scores] = {}
    competing: dict[str, int] = {}
    for found in (e for row in rows for e in row.entries if e and e.scores is not None and e.key.period):
        name = pool(found)
        if name is not None and found.scores is not None:
            competing[name] = competing.get(name, 0) + 1
            if name not in best or found.scores.mean > best[name].mean:
                best[name] = found.scores

    def marked(entry: Entry | None) -> Entry | None:
        if entry is None or entry.scores is None or not entry.key.period:
            return entry
        name = pool(entry)
        if name is None or competing[name] < 2:
            return entry
        top = best[name]
        return replace(entry, best=entry.scores.mean >= top.mean - (top.std or 0))

    return tuple(replace(row, entries=tuple(marked(entry) for entry in row.entries)) for row in rows)

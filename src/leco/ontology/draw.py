"""Draw the history of an ontology: a column per version, and a line from every class to what it became."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape

from leco.errors import LecoError, nearest
from leco.ontology.changes import KINDS, MEANING, Kind
from leco.ontology.ontology import Ontology
from leco.ontology.version import Version

_ROW = 18  # height of a class, in px
_TOP = 44
_GAP = 150  # width of the links between two versions
_LETTER = 6.7  # average width of a letter
_MOST_ROWS = 3_000

Node = tuple[int, int]  # version position, class index


@dataclass(frozen=True)
class _Layout:
    rows: dict[Node, float]
    links: list[tuple[Node, Node, float]]  # old, new, share
    columns: list[tuple[float, float]]  # left and right edge of each version


def to_svg(ontology: Ontology, focus: Sequence[str] = ()) -> str:
    """Draw the history as a self-contained SVG, in light or dark mode as the reader prefers.

    If `focus` names classes, of any version, only they and their relatives are drawn.
    """
    layout = _layout(ontology, focus)
    kinds = _kinds(ontology)
    width = layout.columns[-1][1] + 12
    height = _TOP + _ROW * (max(layout.rows.values()) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" font-family="system-ui, sans-serif" font-size="12">',
        f"<title>Ontology {escape(ontology.name)}</title>",
        f"<style>{_style()}</style>",
    ]
    for (left, _), version in zip(layout.columns, ontology.versions, strict=True):
        parts.append(f'<text class="version" x="{left:.0f}" y="18">{escape(version.name)}</text>')
        parts.append(f'<text class="count" x="{left:.0f}" y="33">{_count(version)}</text>')
    shares_shown = Counter[Node]()
    for old, new, share in layout.links:
        x0, x1 = layout.columns[old[0]][1] + 4, layout.columns[new[0]][0] - 8
        y0, y1 = _y(layout, old), _y(layout, new)
        parts.append(
            f'<path class="link {kinds.get(new, "kept")}" data-a="{_name(old)}" data-b="{_name(new)}" '
            f'stroke-width="{0.8 + 1.6 * share:.2f}" d="M{x0:.0f},{y0:.1f} C{(x0 + x1) / 2:.0f},{y0:.1f} '
            f'{(x0 + x1) / 2:.0f},{y1:.1f} {x1:.0f},{y1:.1f}"/>'
        )
        if share < 1:
            x = x0 + 6 + 34 * shares_shown[old]  # the shares of one old class are side by side
            shares_shown[old] += 1
            parts.append(f'<text class="share" x="{x:.0f}" y="{y0 - 3:.1f}">{share:.0%}</text>')
    for node in sorted(layout.rows):
        left = layout.columns[node[0]][0]
        version = ontology.versions[node[0]]
        name = version.classes[node[1]]
        kind = kinds.get(node)
        note = f"{version.handle(node[1])} in {version.name}" + (f": {MEANING[kind]}" if kind else "")
        parts.append(
            f'<g class="node {kind or ""}" data-id="{_name(node)}"><title>{escape(note)}</title>'
            f'<circle cx="{left - 4:.0f}" cy="{_y(layout, node):.1f}" r="2.6"/>'
            f'<text x="{left + 3:.0f}" y="{_y(layout, node) + 4:.1f}">{escape(name)}</text></g>'
        )
    return "\n".join([*parts, *_legend({kinds[n] for n in layout.rows if n in kinds}, height - 10), "</svg>"]) + "\n"


def _legend(kinds: set[Kind], y: float) -> list[str]:
    parts, x = [], 12.0
    for kind in (kind for kind in KINDS if kind in kinds):
        parts.append(
            f'<g class="{kind} legend"><title>{MEANING[kind]}</title><circle cx="{x:.0f}" cy="{y - 4:.0f}" r="2.6"/>'
            f'<text class="count" x="{x + 7:.0f}" y="{y:.0f}">{kind}</text></g>'
        )
        x += 24 + _LETTER * len(kind)
    return parts


def to_html(ontology: Ontology, focus: Sequence[str] = ()) -> str:
    """Draw the history as a self-contained page with legend, list of changes and search."""
    steps = []
    for old, new in ((step.old, step.new) for step in ontology.steps):
        found = ontology.changes(old.name, new.name)
        counts = [(kind, sum(change.kind == kind for change in found)) for kind in KINDS]
        steps.append(
            {
                "old": old.name,
                "new": new.name,
                "counts": [(kind, count, MEANING[kind]) for kind, count in counts if count],
                "changes": [change for change in found if change.kind != "kept"],
            }
        )
    environment = Environment(
        loader=PackageLoader("leco.ontology", "."), autoescape=select_autoescape(default=True), trim_blocks=True
    )
    template = environment.get_template("drawing.html")
    return template.render(ontology=ontology, svg=to_svg(ontology, focus), steps=steps)


def _layout(ontology: Ontology, focus: Sequence[str]) -> _Layout:
    links = [
        ((position, old), (position + 1, new), share)
        for position, step in enumerate(ontology.steps)
        for new in range(len(step.new))
        for old, share in step.origins(new).items()
    ]
    nodes = {(p, i) for p, version in enumerate(ontology.versions) for i in range(len(version))}
    if focus:
        nodes = _relatives(_find(ontology, focus), links)
        links = [link for link in links if link[0] in nodes and link[1] in nodes]
    rows = _rows(nodes, links)
    if len(rows) and max(rows.values()) > _MOST_ROWS:
        raise LecoError(
            f"{len(nodes):,} classes are too many for one drawing; draw some of them, with their relatives, "
            "with --focus CLASS"
        )
    columns = []
    left = 16.0
    for position, version in enumerate(ontology.versions):
        texts = [version.classes[i] for p, i in nodes if p == position] + [version.name + "  ", _count(version)]
        letters = max(len(text) for text in texts)
        columns.append((left, left + 8 + _LETTER * letters))
        left = columns[-1][1] + _GAP
    return _Layout(rows, links, columns)


def _rows(nodes: set[Node], links: list[tuple[Node, Node, float]]) -> dict[Node, float]:
    """Place a class in the middle of its descendants; one without descendants gets the next row."""
    children: dict[Node, list[Node]] = {}
    for old, new, _ in sorted(links):
        children.setdefault(old, []).append(new)
    rows: dict[Node, float] = {}
    next_row = 0
    for root in sorted(nodes):
        stack = [(root, False)]
        while stack:
            node, children_done = stack.pop()
            if node in rows:
                continue
            if children_done:
                rows[node] = float(np.mean([rows[child] for child in children[node]]))
            elif node in children:
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(children[node]))
            else:
                rows[node] = next_row
                next_row += 1
    # Merged classes share descendants, so they would share a row: push them apart.
    for position in {position for position, _ in nodes}:
        lowest = -1.0
        for node in sorted((n for n in nodes if n[0] == position), key=lambda n: (rows[n], n)):
            rows[node] = lowest = max(rows[node], lowest + 1)
    return rows


def _find(ontology: Ontology, focus: Sequence[str]) -> set[Node]:
    found = set()
    for label in focus:
        matches = {
            (position, index)
            for position, version in enumerate(ontology.versions)
            for index, (name, id_) in enumerate(zip(version.classes, version.ids, strict=True))
            if label in (name, id_)
        }
        if not matches:
            known = (handle for version in ontology.versions for handle in version.lookup)
            ignored = [version.name for version in ontology.versions if label in version.ignored]
            problem = f"is ignored in {ignored[0]}, so it is not drawn" if ignored else "is not a class of any version"
            raise LecoError(f"{label!r} {problem}" + ("" if ignored else nearest(label, known)))
        found |= matches
    return found


def _relatives(start: set[Node], links: list[tuple[Node, Node, float]]) -> set[Node]:
    """Return the classes with all their descendants and ancestors."""
    found = set(start)
    for forward in (True, False):
        reached = set(start)
        for old, new, _ in sorted(links, reverse=not forward):
            near, far = (old, new) if forward else (new, old)
            if near in reached:
                reached.add(far)
        found |= reached
    return found


def _kinds(ontology: Ontology) -> dict[Node, Kind]:
    """Return the change that each class came from, or that removed it."""
    kinds: dict[Node, Kind] = {}
    for position, (old, new) in enumerate((step.old, step.new) for step in ontology.steps):
        for change in ontology.changes(old.name, new.name):
            for label in change.new:
                kinds[position + 1, new.index(label)] = change.kind
            if not change.new:
                kinds[position, old.index(change.old[0])] = change.kind
    return kinds


def _count(version: Version) -> str:
    return f"{len(version)} classes" + (f", {len(version.ignored)} ignored" if version.ignored else "")


def _y(layout: _Layout, node: Node) -> float:
    return _TOP + _ROW * (layout.rows[node] + 0.5)


def _name(node: Node) -> str:
    return f"{node[0]}-{node[1]}"


_COLOURS: dict[str, tuple[str, str]] = {  # on light, on dark
    "kept": ("#8a8f98", "#767c87"),
    "renamed": ("#1f6fc4", "#6cb0ff"),
    "replaced": ("#0e7c86", "#4fc6d1"),
    "split": ("#1a7f4b", "#4cc38a"),
    "carved": ("#1a7f4b", "#4cc38a"),
    "merged": ("#8a3fb5", "#c792ea"),
    "redrawn": ("#8a3fb5", "#c792ea"),
    "added": ("#b35900", "#ffb068"),
    "removed": ("#c0262d", "#ff8080"),
    "ignored": ("#c0262d", "#ff8080"),
}


def _style() -> str:
    light = "".join(f".{kind}{{--c:{colours[0]}}}" for kind, colours in _COLOURS.items())
    dark = "".join(f".{kind}{{--c:{colours[1]}}}" for kind, colours in _COLOURS.items())
    return (
        "svg{--c:#8a8f98;background:#fff}text{fill:#1b1f24}.version{font-weight:600;font-size:14px}"
        ".count,.share{fill:#5b626d;font-size:11px}.link{fill:none;stroke:var(--c);opacity:.65}"
        f"circle{{fill:var(--c)}}.node.removed text,.node.ignored text{{text-decoration:line-through}}{light}"
        "@media(prefers-color-scheme:dark){svg{background:#14171c}text{fill:#e6e9ee}.count,.share{fill:#9aa3af}"
        f"{dark}}}"
    )

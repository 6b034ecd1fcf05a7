"""Figures as SVG text: transparent, with colours for the colour-blind, and ink that follows light and dark mode."""

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from leco.planning.record import CurvePoint, Option
from leco.reports.details import ClassScore, Mistakes, Point

# Okabe and Ito's colours that show on white and on black; a line style and a marker for each.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_INK = "#010203"  # a placeholder for the colour of text
_STYLE = (
    "<style>svg{color:#1b1f24}@media(prefers-color-scheme:dark){svg{color:#e6e9ee}}"
    "text{font-family:system-ui,sans-serif}</style>"
)
_WIDTH = 6.4
_BEST = "best"  # the name of the best mixture in plans


def curves(lines: Mapping[str, Sequence[Point]], ylabel: str) -> str:
    """A line for each cell, in percent over steps."""
    figure, axes = _figure(3.1)
    for number, (name, points) in enumerate(lines.items()):
        _line(axes, number, [point.step for point in points], [100 * point.value for point in points], name)
    axes.set_xlabel("step")
    axes.set_ylabel(ylabel)
    _legend(figure, axes)
    return _svg(figure)


def sizes(lines: Mapping[str, Sequence[tuple[float, float]]], xlabel: str, ylabel: str) -> str:
    """A line for each cell over sizes or costs, on a logarithmic scale."""
    figure, axes = _figure(3.4)
    for number, (name, points) in enumerate(lines.items()):
        ordered = sorted(points)
        _line(axes, number, [x for x, _ in ordered], [y for _, y in ordered], name)
    axes.set_xscale("log")
    ticks = sorted({x for points in lines.values() for x, _ in points})
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks], rotation=45 if len(ticks) > 6 else 0)
    axes.minorticks_off()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    _legend(figure, axes)
    return _svg(figure)


def classes_dots(cells: Mapping[str, Sequence[ClassScore]], xlabel: str) -> str:
    """A row for each class and a marker for each cell, for few classes."""
    names = [found.name for found in next(iter(cells.values()))]
    figure, axes = _figure(0.24 * len(names) + 1.2)
    for number, (cell, scores) in enumerate(cells.items()):
        places = [len(names) - 1 - names.index(s.name) for s in scores if s.name in names]
        values = [100 * s.value for s in scores if s.name in names]
        style = {"marker": _MARKERS[number % 6], "color": _COLOURS[number % 6], "markersize": 6, "alpha": 0.85}
        axes.plot(values, places, linestyle="none", label=_plain(cell), **style)
    axes.set_yticks(range(len(names)), [_short(name) for name in reversed(names)])
    axes.grid(axis="y", color="#808080", alpha=0.25, linewidth=0.6)
    axes.set_xlabel(xlabel)
    _legend(figure, axes)
    return _svg(figure)


def classes_sorted(cells: Mapping[str, Sequence[ClassScore]], ylabel: str) -> str:
    """The classes of each cell from the best to the worst, for many classes."""
    figure, axes = _figure(3.1)
    for number, (cell, scores) in enumerate(cells.items()):
        values = sorted((100 * found.value for found in scores), reverse=True)
        _line(axes, number, range(1, len(values) + 1), values, cell, marks=False)
    axes.set_xlabel("classes, best first in each cell")
    axes.set_ylabel(ylabel)
    _legend(figure, axes)
    return _svg(figure)


def by_frequency(cells: Mapping[str, Sequence[tuple[str, float]]], ylabel: str, counted: str) -> str:
    """A line for each cell over groups of classes, rarest first."""
    figure, axes = _figure(3.1)
    names = [name for name, _ in next(iter(cells.values()))]
    for number, (cell, values) in enumerate(cells.items()):
        _line(axes, number, range(len(values)), [100 * value for _, value in values], cell)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel(f"classes, grouped by number of {counted}")
    axes.set_ylabel(ylabel)
    _legend(figure, axes)
    return _svg(figure)


def stacked_mistakes(rows: Mapping[str, Mistakes], older: str) -> str:
    """A bar for each row: right, wrong but right at the older version, wrong at both."""
    figure, axes = _figure(0.32 * len(rows) + 1.2)
    names = list(rows)
    left = [0.0] * len(names)
    kinds = (
        ("right", "#0072b2", ""),
        (f"wrong, but right at {older}", "#e69f00", "//"),
        ("wrong at both", "#999999", ".."),
    )
    for (label, colour, hatch), part in zip(kinds, ("right", "within", "outside"), strict=True):
        widths = [100 * getattr(rows[name], part) for name in names]
        places = range(len(names) - 1, -1, -1)
        axes.barh(
            places, widths, 0.66, left, color=colour, hatch=hatch, edgecolor=_INK, linewidth=0.3, label=_plain(label)
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(names)), [_short(name) for name in reversed(names)])
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of test samples")
    _legend(figure, axes)
    return _svg(figure)


def costs(lines: Mapping[str, Sequence[CurvePoint]], chosen: Option) -> str:
    """Cost against expected accuracy: a line for each strategy, the interval of the best one, and the chosen point."""
    figure, axes = _figure(3.4)
    for number, (name, points) in enumerate(lines.items()):
        ordered = sorted(points, key=lambda point: point.cost)
        x, y = [point.cost for point in ordered], [100 * point.macc for point in ordered]
        if name == _BEST:  # broad and below the others, since it often coincides with one of them
            low, high = ([100 * getattr(point, end) for point in ordered] for end in ("low", "high"))
            axes.fill_between(x, low, high, color=_COLOURS[number % 6], alpha=0.15, linewidth=0)
            axes.plot(x, y, color=_COLOURS[number % 6], linewidth=6, alpha=0.45, zorder=1.5, label=name)
        else:
            _line(axes, number, x, y, name)
    ring = {"marker": "o", "markersize": 13, "markerfacecolor": "none", "markeredgecolor": _INK, "linestyle": "none"}
    axes.plot([chosen.cost], [100 * chosen.macc], markeredgewidth=1.6, label="chosen", **ring)
    axes.xaxis.set_major_formatter("{x:,.0f}" if max(axes.get_xlim()) > 10 else "{x:g}")
    axes.set_xlabel("cost")
    axes.set_ylabel("expected mAcc, %")
    _legend(figure, axes)
    return _svg(figure)


def _line(axes: Any, number: int, x: Sequence[float], y: Sequence[float], name: str, *, marks: bool = True) -> None:
    style = {"color": _COLOURS[number % 6], "linestyle": _LINES[number % 6], "linewidth": 1.8}
    marker = _MARKERS[number % 6] if marks and len(x) <= 40 else None
    axes.plot(list(x), list(y), marker=marker, markersize=4.5, label=_plain(name), **style)


def _figure(height: float) -> tuple[Any, Any]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "leco"})
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#808080")
    axes.tick_params(colors="#808080", labelcolor=_INK, labelsize=9)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    axes.grid(axis="x", color="#808080", alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _legend(figure: Any, axes: Any) -> None:
    handles, names = axes.get_legend_handles_labels()
    if handles:
        options = {"ncols": _legend_columns(names), "frameon": False, "labelcolor": _INK, "fontsize": 9}
        figure.legend(handles, names, loc="outside upper left", **options)


def _legend_columns(names: Sequence[str]) -> int:
    """The most columns, up to four, that a legend has room for: about 85 characters, 7 of which a line takes."""
    import numpy as np

    for columns in range(min(4, len(names)), 1, -1):
        if sum(7 + max(map(len, column)) for column in np.array_split(np.array(names), columns)) <= 85:
            return columns
    return 1


def _plain(text: str) -> str:
    """A name without what matplotlib would take for a formula, or hide: a leading underscore."""
    text = "".join(c for c in text if c.isprintable()).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _short(name: str, longest: int = 28) -> str:
    return _plain(name if len(name) <= longest else name[: longest - 1] + "…")


def _svg(figure: Any) -> str:
    text = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # readers' fonts may have what matplotlib's lack
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    start = svg.index("<svg")
    end = svg.index(">", start) + 1
    return svg[start:end] + _STYLE + svg[end:].replace(_INK, "currentColor")

"""Figures of scores, drawn with matplotlib and read without colour, too."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from leco.reports.comparison import Scores


def draw_scores(cells: Mapping[str, Scores], path: Path, bottom: str, top: str, title: str) -> None:
    """One row per cell: a dot for every seed, the mean and its standard deviation; two lines to compare with."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names: Sequence[str] = list(cells)
    figure, axes = plt.subplots(figsize=(7.5, 0.42 * len(names) + 1.3), layout="constrained")
    for row, name in enumerate(names):
        scores, y = cells[name], len(names) - 1 - row
        axes.plot(list(scores.by_seed.values()), [y] * len(scores), "o", color="#7aa6c2", markersize=4, alpha=0.7)
        axes.errorbar(scores.mean, y, xerr=scores.std or 0, fmt="D", color="#123f5a", markersize=6, capsize=4)
        axes.annotate(str(scores), (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    for name, style in ((bottom, ":"), (top, "--")):
        axes.axvline(cells[name].mean, linestyle=style, color="#888888", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), list(reversed(names)))
    axes.set_xlabel("mean per-class accuracy on test, %")
    axes.set_title(title, fontsize=10, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(path, dpi=150, metadata={"Software": None} if path.suffix == ".png" else None)
    plt.close(figure)

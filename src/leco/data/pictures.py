"""Pictures of a benchmark: some of its samples, and how its classes are distributed."""

import colorsys

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from leco.data.benchmarks.benchmark import Benchmark
from leco.data.draws import Draws
from leco.data.periods import Split
from leco.data.samples import Samples
from leco.data.views.sets import view_set
from leco.data.views.sheet import contact_sheet

_PER_ROW = 10
_CLASSES = 6  # of each period


def class_counts(samples: Samples, indices: Tensor, version: str, num_classes: int) -> Tensor:
    """How many samples (or pixels) of each class there are; those without a label are left out."""
    counts = torch.zeros(num_classes, dtype=torch.int64)
    for part in indices.split(256):  # type: ignore[no-untyped-call]
        labels = samples.labels[version].read(part).long().flatten()
        counts += torch.bincount(labels[labels >= 0], minlength=num_classes)
    return counts


def long_tail(benchmark: Benchmark, split: Split) -> Image.Image:
    """Plot the samples (or pixels) per class, sorted, for each period, on a log scale (the paper's appendix D)."""
    figure = Figure(figsize=(4 * len(split.periods), 3), layout="constrained")
    unit = "pixels" if benchmark.recipe.task == "segmentation" else "samples"
    for number, period in enumerate(split.periods):
        version = benchmark.ontology[period.version]
        counts = class_counts(benchmark.pool, period.train, version.name, len(version)).sort(descending=True).values
        axes = figure.add_subplot(1, len(split.periods), number + 1)
        axes.bar(np.arange(len(counts)), counts.numpy(), width=1.0, color="#1a7f4b")
        axes.set_yscale("symlog", linthresh=1)
        axes.set(title=f"TP{number}: {version.name} ({len(version)})", xlabel="class, by frequency", ylabel=unit)
        axes.margins(x=0)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return Image.fromarray(pixels).convert("RGB")


def samples_sheet(benchmark: Benchmark, split: Split) -> Image.Image | None:
    """Show some samples of each period with their labels; None for features, which have no looks."""
    if benchmark.recipe.task == "features":
        return None
    rows: list[tuple[str, Tensor]] = []
    for number, period in enumerate(split.periods):
        if benchmark.recipe.task == "segmentation":
            chosen = period.train[torch.linspace(0, len(period.train) - 1, _PER_ROW).long()]
            rows.append((f"TP{number}", benchmark.pool.inputs.read(chosen)))
            for version in benchmark.ontology.versions[: number + 1]:
                masks = benchmark.pool.labels[version.name].read(chosen)
                rows.append((version.name, palette(len(version))[masks.long()].permute(0, 3, 1, 2)))
            continue
        version = benchmark.ontology[period.version]
        labels = benchmark.pool.labels[version.name].read(period.train)
        for label in sorted({round(x) for x in np.linspace(0, len(version) - 1, _CLASSES).tolist()}):
            members = period.train[labels == label][:_PER_ROW]
            if len(members):
                rows.append((f"TP{number} {version.handle(label)}", benchmark.pool.inputs.read(members)))
    if benchmark.recipe.task == "classification":
        views, shown = view_set(benchmark.recipe.views), split.periods[0].train[:_PER_ROW]
        images, draws = benchmark.pool.inputs.read(shown), Draws(split.seed, 0, shown)
        rows += [(f"{kind} view", getattr(views, kind)(images, draws)) for kind in ("evaluate", "weak", "strong")]
    return contact_sheet(rows)


def palette(num_classes: int) -> Tensor:
    """A colour per class, far apart in hue; the last one, for -1 (no label), is black: (c + 1, 3) uint8."""
    hues = [(index * 0.618034) % 1.0 for index in range(num_classes)]  # the golden ratio spreads any number of hues
    colours = [colorsys.hsv_to_rgb(h, 0.55 + 0.35 * (i % 2), 0.95 - 0.3 * (i % 3 == 2)) for i, h in enumerate(hues)]
    return torch.tensor([[round(255 * part) for part in colour] for colour in [*colours, (0, 0, 0)]], dtype=torch.uint8)

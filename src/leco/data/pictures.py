"""Pictures of a benchmark: some of its samples, and its class frequencies."""

import colorsys
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from leco.data.periods import Split
from leco.data.rng import Draws
from leco.data.views.segmentation import joint

if TYPE_CHECKING:
    from leco.data.benchmarks.benchmark import Benchmark

_PER_ROW = 10
_CLASSES = 6  # of each period
_GAP, _LETTERS, _LEAST = 4, 14, 64  # pixels: gap between images, height of letters, least side of an image


def class_counts(benchmark: "Benchmark", split: Split) -> list[Tensor]:
    """Return the number of training samples (or pixels) of each class in each period."""
    found = []
    for period in split.periods:
        counts = torch.zeros(len(benchmark.ontology[period.version]), dtype=torch.int64)
        for part in period.train.split(256):  # type: ignore[no-untyped-call]
            labels = benchmark.pool.labels[period.version].read(part).long().flatten()
            counts += torch.bincount(labels[labels >= 0], minlength=len(counts))
        found.append(counts)
    return found


def long_tail(benchmark: "Benchmark", counts_of_periods: list[Tensor]) -> Image.Image:
    """Plot the samples (or pixels) per class, sorted, for each period, on a log scale (the paper's appendix D)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(counts_of_periods), 3), layout="constrained")
    unit = "pixels" if _has_masks(benchmark) else "samples"
    for number, (version, counts) in enumerate(zip(benchmark.ontology.versions, counts_of_periods, strict=True)):
        axes = figure.add_subplot(1, len(counts_of_periods), number + 1)
        axes.bar(np.arange(len(counts)), counts.sort(descending=True).values.numpy(), width=1.0, color="#1a7f4b")
        axes.set_yscale("symlog", linthresh=1)
        axes.set(title=f"TP{number}: {version.name} ({len(version)})", xlabel="class, by frequency", ylabel=unit)
        axes.margins(x=0)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return Image.fromarray(pixels).convert("RGB")


def samples_sheet(benchmark: "Benchmark", split: Split) -> Image.Image | None:
    """Show some samples of each period with their labels; None if they are not images."""
    if benchmark.pool.inputs.read(split.periods[0].train[:1]).ndim != 4:
        return None
    has_masks = _has_masks(benchmark)
    rows: list[tuple[str, Tensor]] = []
    for number, period in enumerate(split.periods):
        if has_masks:
            chosen = period.train[torch.linspace(0, len(period.train) - 1, _PER_ROW).long()]
            rows += _segmentation_rows(benchmark, number, chosen)
            continue
        version = benchmark.ontology[period.version]
        labels = benchmark.pool.labels[version.name].read(period.train)
        for label in sorted({round(x) for x in np.linspace(0, len(version) - 1, _CLASSES).tolist()}):
            members = period.train[labels == label][:_PER_ROW]
            if len(members):
                rows.append((f"TP{number} {version.handle(label)}", benchmark.pool.inputs.read(members)))
    if not has_masks:
        views, shown = benchmark.views, split.periods[0].train[:_PER_ROW]
        images, draws = benchmark.pool.inputs.read(shown), Draws(split.seed, 0, shown)
        rows += [(f"{kind} view", getattr(views, kind)(images, draws)) for kind in ("evaluate", "weak", "strong")]
    return contact_sheet(rows)


def _has_masks(benchmark: "Benchmark") -> bool:
    return benchmark.pool.labels[benchmark.ontology.newest.name].read(torch.tensor([0])).ndim > 1


def _segmentation_rows(benchmark: "Benchmark", number: int, chosen: Tensor) -> list[tuple[str, Tensor]]:
    """Return images, their masks in every version so far, and a joint view of both, scaled down if large."""
    images = benchmark.pool.inputs.read(chosen)
    every = max(1, max(images.shape[-2:]) // 256)
    small = images[..., ::every, ::every].contiguous()
    rows, masks = [(f"TP{number}", small)], []
    for version in benchmark.ontology.versions[: number + 1]:
        masks.append(benchmark.pool.labels[version.name].read(chosen)[..., ::every, ::every].long())
        rows.append((version.name, palette(len(version))[masks[-1]].permute(0, 3, 1, 2)))
    draws, longest = Draws(0, 0, chosen), max(small.shape[-2:])
    seen, moved = joint(small, masks[-1:], draws, base_size=longest, crop=min(small.shape[-2:]))
    coloured = palette(len(version))[moved[0]].permute(0, 3, 1, 2)
    return [*rows, ("joint view", seen), (f"joint {version.name}", coloured)]


def palette(num_classes: int) -> Tensor:
    """Return a colour per class, far apart in hue; the last one, for -1 (no label), is black: (c + 1, 3) uint8."""
    hues = [(index * 0.618034) % 1.0 for index in range(num_classes)]  # the golden ratio spreads any number of hues
    colours = [colorsys.hsv_to_rgb(h, 0.55 + 0.35 * (i % 2), 0.95 - 0.3 * (i % 3 == 2)) for i, h in enumerate(hues)]
    return torch.tensor([[round(255 * part) for part in colour] for colour in [*colours, (0, 0, 0)]], dtype=torch.uint8)


def contact_sheet(rows: Sequence[tuple[str, Tensor]]) -> Image.Image:
    """Draw rows of images (k, c, h, w) uint8, c = 1 or 3, below each other; tiny ones are enlarged."""
    strips = [(label, _strip(images)) for label, images in rows]
    font = ImageFont.load_default(_LETTERS)
    margin = 2 * _GAP + int(max((font.getlength(label) for label, _ in strips), default=0))
    width = margin + max((image.width for _, image in strips), default=0)
    *tops, height = accumulate((image.height for _, image in strips), initial=0)
    sheet = Image.new("RGB", (max(width, 1), max(height, 1)), "white")
    draw = ImageDraw.Draw(sheet)
    for top, (label, image) in zip(tops, strips, strict=True):
        draw.text((_GAP, top + image.height // 2), label, "black", font, anchor="lm")
        sheet.paste(image, (margin, top))
    return sheet


def _strip(images: Tensor) -> Image.Image:
    """Draw the images of one row side by side."""
    times = -(-_LEAST // min(images.shape[-2:]))
    pixels = images.cpu().expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    pixels = pixels.repeat(times, axis=1).repeat(times, axis=2)
    bordered = np.pad(pixels, ((0, 0), (0, _GAP), (0, _GAP), (0, 0)), constant_values=255)
    return Image.fromarray(np.concatenate(list(bordered), axis=1))

"""Pictures of segmentation: image, ground truth, prediction, and the same in the old version."""

import io

import torch
from torch import Tensor, nn

from leco.data.pictures import contact_sheet, palette
from leco.evaluation.evaluate import Judge
from leco.ontology.version import NO_LABEL

_FRAMES = 6
_LARGEST = 512  # pixels of an edge


@torch.no_grad()
def overlay_sheet(judge: Judge, network: nn.Module) -> bytes:
    """Draw some test frames, one column each, as a PNG; unlabelled pixels are black in the ground truth."""
    periods = judge.periods
    tested = periods.tested(judge.period)
    chosen = tested[torch.linspace(0, len(tested) - 1, min(_FRAMES, len(tested))).long()]
    frames = [_rows(judge, network, index) for index in chosen.split(1)]  # type: ignore[no-untyped-call]
    rows = [(name, torch.cat([frame[name] for frame in frames])) for name in frames[0]]
    file = io.BytesIO()
    contact_sheet(rows).save(file, "PNG")
    return file.getvalue()


def _rows(judge: Judge, network: nn.Module, index: Tensor) -> dict[str, Tensor]:
    periods, samples = judge.periods, judge.periods.test
    images = samples.inputs.read(index)
    ontology = periods.until(judge.period)
    newest = ontology.newest
    every = max(1, max(images.shape[-2:]) // _LARGEST)
    small = images[..., ::every, ::every]
    truth = samples.labels[newest.name].read(index)[..., ::every, ::every].long()
    predicted = judge.predict(network, images, index, samples).argmax(dim=1).cpu()[..., ::every, ::every]
    rows = {"image": small, f"{newest.name}: truth": _coloured(truth, len(newest), small)}
    rows["prediction"] = _coloured(predicted, len(newest), small)
    for old in ontology.versions[-2:-1]:
        given = samples.labels[old.name].read(index)[..., ::every, ::every].long()
        rows[f"{old.name}: label"] = _coloured(given, len(old), small)
    return rows


def _coloured(labels: Tensor, num_classes: int, images: Tensor) -> Tensor:
    """Blend the image with the colours of the labels, where there are any: (1, 3, h, w) uint8."""
    colours = palette(num_classes)[labels].permute(0, 3, 1, 2).float()
    mixed = torch.lerp(images.float(), colours, 0.7)
    return mixed.masked_fill((labels == NO_LABEL)[:, None], 0.0).round().byte()

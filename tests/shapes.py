"""Own data for `auto`: drawn shapes, and weights for a tiny network."""

import csv
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file

from leco.data.example import ONTOLOGY, draw_shapes

BACKBONE = "test_efficientnet"  # the smallest of timm's models for tests
SETTINGS = f"""\
training:
  network: {{backbone: {BACKBONE}, weights: weights.safetensors}}
  batches: {{steps: 4, size: 8, evaluate_every: 2}}
"""


def write_project(folder: Path, *, new: int = 5, history: int = 4, test: int = 3, val: int = 0, **changes: str) -> Path:
    """Draw shapes, some of v1 and some of v2, and weights for a tiny network."""
    folder.mkdir(parents=True, exist_ok=True)
    source = draw_shapes(folder)
    most = {("v1", "train"): history, ("v2", "train"): new, ("v2", "test"): test}
    rows = [("image", "label", "version", "split")]
    for path, label, version, split in source.samples:
        number = int(Path(path).stem[-2:])
        if number < most[version, split]:
            held_out = "val" if version == "v2" and split == "train" and number < val else split
            rows.append((path, label, version, held_out))
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    (folder / "ontology.yaml").write_text(ONTOLOGY)
    torch.manual_seed(0)
    save_file(timm.create_model(BACKBONE).state_dict(), folder / "weights.safetensors")
    (folder / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml, image_size: 32}\n" + SETTINGS
    )
    return folder / "experiment.yaml"

"""Draw views.jpg: every operation and view, on scikit-learn's two photographs (three columns each).

.venv/bin/python docs/figures/views.py
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from leco.data.pictures import contact_sheet
from leco.data.rng import Draws
from leco.data.views import cutout, flip, pad_crop, random_resized_crop, strong, weak
from leco.data.views.randaugment import POOL, apply_each, setting

BOXES = ((60, 0, 487, 427), (100, 0, 527, 427))
UNLEVELLED = ("Identity", "AutoContrast", "Equalize")
VIEWS = {
    "flip": flip,
    "pad_crop by up to 12": partial(pad_crop, padding=12),
    "random_resized_crop": partial(random_resized_crop, size=96),
    "cutout": cutout,
    "weak": weak,
    "strong": strong,
}

photographs = zip(load_sample_images().images, BOXES, strict=True)
squares = [Image.fromarray(p).crop(box).resize((96, 96), Image.Resampling.LANCZOS) for p, box in photographs]
pixels = torch.from_numpy(np.stack([np.asarray(square) for square in squares]))
images = pixels.permute(0, 3, 1, 2).contiguous().repeat_interleave(3, 0)
unlevelled = torch.tensor([setting(name) for name in UNLEVELLED] * 2)
rows = [("original, AutoContrast, Equalize", apply_each(images, unlevelled))]
for name, operation in POOL.items():
    if name not in UNLEVELLED:
        levels = (9, 4, -9) if operation.signed else (1, 5, 9)
        chosen = [setting(name, abs(level), 1 if level > 0 else -1) for level in levels]
        rows.append((f"{name} at {', '.join(map(str, levels))}", apply_each(images, torch.tensor(chosen * 2))))
rows += [(name, view(images, Draws(0, 0, torch.arange(6)))) for name, view in VIEWS.items()]
rows.append(("strong, at the next step", strong(images, Draws(0, 1, torch.arange(6)))))
contact_sheet(rows).save(Path(__file__).with_suffix(".jpg"), quality=88)

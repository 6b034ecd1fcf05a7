"""Views (augmentations) of whole batches, on the model's device; determined by seed, step and sample."""

from leco.data.views.images import View, centre_crop_resize, cutout, flip, normalise, pad_crop, random_resized_crop
from leco.data.views.randaugment import strong, weak
from leco.data.views.segmentation import joint
from leco.data.views.sets import VIEW_SETS, ViewSet, feature_views, view_set

__all__ = [
    "VIEW_SETS",
    "View",
    "ViewSet",
    "centre_crop_resize",
    "cutout",
    "feature_views",
    "flip",
    "joint",
    "normalise",
    "pad_crop",
    "random_resized_crop",
    "strong",
    "view_set",
    "weak",
]

"""Modalities: images, feature vectors, and images with a label for every pixel; others can be registered."""

from leco.modalities.image import Images
from leco.modalities.modality import MODALITIES, Modality, Normalise, register_modality
from leco.modalities.segmentation import Segmentation
from leco.modalities.vector import Vectors

__all__ = ["MODALITIES", "Images", "Modality", "Normalise", "Segmentation", "Vectors", "register_modality"]

"""Backbones and heads."""

from leco.models.backbones import build_backbone
from leco.models.network import Network
from leco.models.segmentation import SegmentationNetwork, build_segmenter

__all__ = ["Network", "SegmentationNetwork", "build_backbone", "build_segmenter"]

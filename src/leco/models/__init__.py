"""Backbones and heads."""

from leco.models.backbones import build_backbone
from leco.models.dense.network import SegmentationNetwork, build_segmenter
from leco.models.network import AnyNetwork, Network

__all__ = ["AnyNetwork", "Network", "SegmentationNetwork", "build_backbone", "build_segmenter"]

"""Backbones and heads."""

from leco.models.backbones import build_backbone
from leco.models.network import Network

__all__ = ["Network", "build_backbone"]

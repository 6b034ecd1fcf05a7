"""Datasets: samples and ontology, wherever they come from, and the periods they are dealt to."""

from leco.dataset.dataset import BenchmarkDataset, Dataset, ManifestDataset, benchmark
from leco.dataset.periods import Periods

__all__ = ["BenchmarkDataset", "Dataset", "ManifestDataset", "Periods", "benchmark"]

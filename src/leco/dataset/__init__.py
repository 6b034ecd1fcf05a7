"""Datasets: samples and ontology from any source, and their split into periods."""

from leco.dataset.benchmark import BenchmarkDataset, benchmark
from leco.dataset.dataset import Dataset, ManifestDataset
from leco.dataset.periods import Periods

__all__ = ["BenchmarkDataset", "Dataset", "ManifestDataset", "Periods", "benchmark"]

"""A hundred thousand classes are no reason for a dense table."""

import subprocess
import sys

import pytest

from leco import Ontology

SIZES = [10, 100, 1_000, 10_000, 100_000]


@pytest.mark.slow
def test_a_hundred_thousand_classes_in_five_versions_need_little_memory(tmp_path):
    versions = [{"name": "v0", "classes": [f"v0-{i}" for i in range(SIZES[0])]}]
    for level, size in enumerate(SIZES[1:], start=1):
        classes = {f"v{level}-{i}": {"from": f"v{level - 1}-{i % SIZES[level - 1]}"} for i in range(size)}
        versions.append({"name": f"v{level}", "classes": classes})
    path = tmp_path / "large.yaml"
    Ontology.from_dict({"name": "large", "versions": versions}).save(path)
    code = f"""
import resource, torch
from leco import Ontology
from leco.ontology import evidence, files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
built = Ontology.load({str(path)!r}).evidence()
rows = built.rows(torch.arange(64) % 10, "v0")
assert rows.shape == (64, 100_000) and rows.isfinite().sum() == 64 * 10_000
assert len(built.classes) == 5 * 100_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(result.stdout) < 500  # MB, above the imports

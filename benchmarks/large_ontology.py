"""Load, check and use an ontology of 100,000 classes in five versions: time, and memory in addition to the imports.

    .venv/bin/python benchmarks/large_ontology.py            # a tree of 10, 100, 1,000, 10,000 and 100,000 classes
    .venv/bin/python benchmarks/large_ontology.py --flat     # five versions of 100,000 classes each

Times are printed, not asserted; `tests/smoke/test_scale.py` asserts the limit on memory.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch

from leco import Ontology


def tree(sizes: list[int]) -> dict[str, object]:
    """Each class of a level refines one of the level above."""
    versions = [{"name": "v1", "classes": [f"v1-{i}" for i in range(sizes[0])]}]
    for level, (above, size) in enumerate(pairwise(sizes), start=2):
        classes = {f"v{level}-{i}": {"from": f"v{level - 1}-{i % above}"} for i in range(size)}
        versions.append({"name": f"v{level}", "classes": classes})  # type: ignore[dict-item]
    return {"name": "large", "versions": versions}


def peak_mb() -> float:
    """Peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Time all steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--format", default="yaml", choices=["yaml", "json", "tsv"])
    options = parser.parse_args()
    sizes = [100_000] * 5 if options.flat else [10, 100, 1_000, 10_000, 100_000]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"large.{options.format}"
        child = Path(folder) / "write.py"
        # Written by another process, so that its memory does not count here.
        child.write_text(
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            "from large_ontology import tree\nfrom leco import Ontology\n"
            f"Ontology.from_dict(tree({sizes})).save({str(path)!r})\n"
        )
        subprocess.run([sys.executable, str(child)], check=True)
        size = path.stat().st_size / 1e6
        labels = torch.randint(sizes[0], (64,))
        torch.zeros(1).logsumexp(0)
        before, start = peak_mb(), time.perf_counter()
        ontology = Ontology.load(path)
        loaded = time.perf_counter()
        evidence = ontology.evidence()
        compiled = time.perf_counter()
        rows = evidence.rows(labels, "v1")
        done = time.perf_counter()
        print(f"{sizes} classes, {size:.1f} MB of {options.format}, evidence for a batch of {tuple(rows.shape)}")
        print(f"load and check {loaded - start:.2f} s, compile {compiled - loaded:.2f} s, rows {done - compiled:.3f} s")
        print(f"in all {done - start:.2f} s and {peak_mb() - before:.0f} MB above {before:.0f} MB for the imports")


if __name__ == "__main__":
    main()

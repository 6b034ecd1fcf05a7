"""Loading time of CIFAR-100 from its official files, and of a manifest of 100,000 rows.

.venv/bin/python benchmarks/loading.py [--cifar ROOT]      # ROOT/cifar-100-python
"""

import argparse
import tempfile
import time
from pathlib import Path

from leco import Ontology
from leco.data.benchmarks import load
from leco.data.manifest.manifest import read_manifest

ROWS = 100_000


def main() -> None:
    """Time both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", type=Path, help="folder with cifar-100-python")
    options = parser.parse_args()
    if options.cifar:
        start = time.perf_counter()
        load("cifar-leco", options.cifar)
        print(f"CIFAR-100 from its official files: {time.perf_counter() - start:.2f} s")
    ontology = Ontology.from_taxonomy("pets", ["v1", "v2"], [("dog", "husky"), ("dog", "poodle"), ("cat", "lynx")])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = ["image,label,version"]
        for number in range(ROWS):
            part = folder / str(number // 1000)
            part.mkdir(exist_ok=True)
            (part / f"{number}.png").write_bytes(b"x")
            lines.append(f"{number // 1000}/{number}.png,{'dog' if number % 2 else 'cat'},v1")
        (folder / "labels.csv").write_text("\n".join(lines) + "\n")
        start = time.perf_counter()
        manifest, _ = read_manifest(folder / "labels.csv", ontology, decode=False)
        print(f"a manifest of {len(manifest):,} rows, not decoded: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()

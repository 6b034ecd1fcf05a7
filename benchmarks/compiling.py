"""Steps with `training.network.compile`, and the time until the first one is done.

    .venv/bin/python benchmarks/compiling.py                  # WRN-16-1, 64 + 64 images
    .venv/bin/python benchmarks/compiling.py --model wrn-28-2 --device cuda --precision bf16-mixed

`lpl+fixmatch/cond`, which has a pass without gradient, too. Both sides take turns. What has been compiled is not taken
from torch's cache.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch

from leco.methods.method import Method
from leco.settings import Settings
from leco.training.loop import Training
from made_up import make_training, ontology, samples
from rows import row

METHOD = "lpl+fixmatch/cond"


def step(run: object, count: int) -> float:
    """Mean time of some steps."""
    started = time.perf_counter()
    for _ in range(count):
        next(run)  # type: ignore[call-overload]
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / count


def training(model: str, device: str, precision: str, *, compiles: bool) -> Training:
    """A training whose network is compiled, or not."""
    tree = ontology(100)
    settings = Settings().change(network={"compile": compiles, "precision": precision})
    return make_training(Method.parse(METHOD), model, samples(tree, 2_000), tree, device=device, settings=settings)


def main() -> None:
    """Time both in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wrn-16-1")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="32-true", help="as training.network.precision, of both sides")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    given = (options.model, options.device, options.precision)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        plain, quick = (training(*given, compiles=flag).run() for flag in (False, True))
        first, compiling = step(plain, 1), step(quick, 1)
        times = [(step(plain, 4), step(quick, 4)) for _ in range(options.repeats)]
    usual, fast = (statistics.median(column) for column in zip(*times, strict=True))
    start_up = compiling - first
    row(
        "steps",
        f"factor of a step with `training.network.compile`; {options.model}, `{METHOD}`, {options.precision}",
        f"{usual / fast:.2f} ({usual * 1e3:.0f} and {fast * 1e3:.0f} ms), after {start_up:.0f} s of compilation",
        limit="convolutions, which stay as they are",
    )


if __name__ == "__main__":
    main()

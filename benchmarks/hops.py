"""The functions of leco between `leco.train` and the loss, as a profiler sees them.

    .venv/bin/python benchmarks/hops.py

Trains digits-leco for one step and prints the call stack of the first loss, outermost first.
"""

import sys
import tempfile
from types import FrameType
from typing import Any

import leco
from leco.methods.terms import newest_labels


def hops(first: str = "train") -> list[str]:
    """Names of the functions of leco on the stack when the first loss is computed, from `first` on."""
    found: list[str] = []

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is newest_labels.__code__ and not found:
            found.extend(_stack(frame))

    with tempfile.TemporaryDirectory() as folder:
        data = leco.benchmark("digits-leco", size=20)
        sys.setprofile(trace)
        try:
            leco.train(data, method="ce", batches={"steps": 1}, store=folder, progress=False)
        finally:
            sys.setprofile(None)
    return found[found.index(first) :]


def _stack(frame: FrameType | None) -> list[str]:
    """Outermost first; comprehensions and lambdas are part of the function that they are in."""
    names = []
    while frame is not None:
        module, name = str(frame.f_globals.get("__name__", "")), frame.f_code.co_qualname
        if module.startswith("leco") and not frame.f_code.co_name.startswith("<"):
            names.append(name)
        frame = frame.f_back
    return names[::-1]


if __name__ == "__main__":
    chain = hops()
    print(" -> ".join(chain))
    print(f"{len(chain) - 1} hops")

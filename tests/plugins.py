"""The toys, registered for a while: other tests count what leco itself registers."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import patch

from leco import registry
from leco.data.benchmarks import BENCHMARKS
from leco.methods import method
from leco.methods.terms import TERMS
from leco.modalities import MODALITIES
from leco.training.finish import HEADS
from leco.training.loggers import LOGGERS
from leco.training.optimisers import OPTIMISERS, SCHEDULES

REGISTRIES: tuple[Any, ...] = (BENCHMARKS, HEADS, LOGGERS, MODALITIES, OPTIMISERS, SCHEDULES, TERMS)


@contextmanager
def registered_toys() -> Iterator[ModuleType]:
    """Import `tests.toys`, and forget it in the end."""
    imported = list(registry.IMPORTED)
    with ExitStack() as stack:
        for known in REGISTRIES:
            stack.enter_context(patch.dict(known._entries))
            stack.enter_context(patch.dict(known._modules))
        for names in (method._COARSE, method._PSEUDO):
            stack.enter_context(patch.dict(names))
        try:
            yield import_module("tests.toys")
        finally:
            registry.IMPORTED[:] = imported
            sys.modules.pop("tests.toys", None)

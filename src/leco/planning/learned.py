"""The stages of a store, found by what they learned from."""

import json
from functools import cached_property
from pathlib import Path

from leco.experiments.store import Store


class Learned(Store):
    """A store that also finds what `leco run` trained, without a look at what it was tested on."""

    def folder(self, fingerprint: str) -> Path:
        """Where a complete stage is, or another that learned the very same."""
        mine = super().folder(fingerprint)
        return mine if mine.is_dir() else self._others.get(fingerprint, mine)

    @cached_property
    def _others(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for result in sorted(self.stages.glob("*/result.json")):
            try:
                config = json.loads(result.with_name("config.json").read_bytes())
            except (OSError, ValueError):  # damaged: it is trained anew
                continue
            if isinstance(config, dict) and isinstance(config.get("learned"), str):
                found.setdefault(config["learned"], result.parent)
        return found

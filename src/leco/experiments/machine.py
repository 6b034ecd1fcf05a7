"""The device and the callbacks of a run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lightning_fabric import Fabric

from leco.devices import make_fabric
from leco.settings import Precision


class Stopped(KeyboardInterrupt):
    """A run was asked to stop, and has saved a checkpoint."""


@dataclass(frozen=True)
class Machine:
    """Device, workers and callbacks of a run; none of this changes results, except for rounding."""

    device: str = "auto"
    workers: int = 0  # processes that read files ahead; 0 for threads
    loggers: tuple[str, ...] = ()
    stop: Callable[[], bool] = lambda: False  # called after every step
    say: Callable[[str], object] = lambda _: None  # called with problems that do not stop the run
    note: Callable[[str], object] = lambda _: None  # called with news, such as the first answer of `auto`
    saved: Callable[[Path], object] = lambda _: None  # called with the folder of every new checkpoint
    shown: bool = False  # whether work other than training shows its progress
    own_fabric: Fabric | None = field(default=None, compare=False)  # in place of the one that `torchrun` implies

    def fabric(self, precision: Precision, shard: bool = False) -> Fabric:
        """Return the device, or devices, of this run, which may `shard` networks."""
        return self.own_fabric or make_fabric(self.device, precision, shard)

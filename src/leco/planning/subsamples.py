"""Nested subsamples of what is labelled: what the learning curve is measured on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leco.data.periods import deal, seeded
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known

FOLDS = 5
NEW_LEVELS = (1.0, 0.707, 0.5, 0.354)  # shares of the newest labels
OLD_LEVELS = (1.0, 0.5, 0.0)  # shares of the history


@dataclass(frozen=True)
class Level:
    """Shares of the newest labels and of the history."""

    new: float
    old: float

    def __str__(self) -> str:
        return f"{self.new:g}-{self.old:g}"


@dataclass(frozen=True, eq=False)
class Draw:
    """One fold held out, and an order in which the rest, and the history, are taken: any start is a subsample."""

    number: int
    held_out: Tensor  # samples to look at: a fold of the newest, and validation
    newest: Tensor
    history: Tensor

    def taken(self, level: Level) -> tuple[Tensor, Tensor]:
        """The newest samples, and the history, of a level."""
        return tuple(  # type: ignore[return-value]
            samples[: round(share * len(samples))]
            for samples, share in ((self.newest, level.new), (self.history, level.old))
        )


def draw(known: Known, number: int, seed: int) -> Draw:
    """Hold out a fold, and put the rest in an order whose starts have classes in proportion."""
    newest, history = known.samples(NEWEST), known.samples(HISTORY)
    generator = seeded(1_000_003 * seed + number // FOLDS)
    folds = deal(_first_labels(known, newest), [len(newest)], generator)[0].tensor_split(FOLDS)
    looked_at = newest[folds[number % FOLDS]]
    rest = newest[~torch.isin(newest, looked_at)]
    later = seeded(1_000_003 * seed + 500_009 + number)
    ordered = [part[deal(_first_labels(known, part), [len(part)], later)[0]] for part in (rest, history)]
    return Draw(number, torch.cat([looked_at, known.samples(VALIDATION)]), ordered[0], ordered[1])


def levels(known: Known) -> Sequence[Level]:
    """All combinations; without history, only the newest labels vary."""
    old = OLD_LEVELS if len(known.samples(HISTORY)) else (0.0,)
    return [Level(new, share) for new in NEW_LEVELS for share in old]


def _first_labels(known: Known, samples: Tensor) -> Tensor:
    """A label of each sample, to deal them in proportion; in segmentation, that of its first pixel."""
    rows = known.rows(samples)
    label = torch.zeros(int(known.sample.max()) + 1, dtype=torch.int64)
    label[known.sample[rows.flip(0)]] = known.labels[rows.flip(0)]
    return label[samples]

"""Which old samples to relabel, given how many of each old class: seeded, and the same for the same data."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leco.data.periods import seeded
from leco.errors import LecoError, nearest
from leco.methods.refinement import condition
from leco.planning.heads import logits
from leco.planning.shares import share_out

if TYPE_CHECKING:
    from leco.planning.measuring import Head
    from leco.planning.preparing import Ground

CRITERIA = ("random", "uncertain", "diverse", "balanced", "mixed")
MEANING = {
    "random": "at random",
    "uncertain": "highest entropy of what the model says, given the old label",
    "diverse": "far, in features, from what was picked before (k-means++)",
    "balanced": "of the class that, by its suggestion, has fewest labels; within it at random",
    "mixed": "as balanced; within the class by distance from what was picked, times entropy",
}


def pick(ground: "Ground", count: int, criterion: str) -> Tensor:
    """Samples to relabel: each old class in proportion to how many it has, and within it by the criterion."""
    if criterion not in CRITERIA:
        raise LecoError(f"{criterion!r} is no criterion{nearest(criterion, CRITERIA)}")
    known, history = ground.known, ground.known.history
    pool = history.relabellable
    labels, counts = history.label[pool].unique(return_counts=True)  # type: ignore[no-untyped-call]
    suggestion, features = suggestions(ground.head, history.samples[pool])
    generator = seeded(1_000_003 * ground.seed + 7)
    have = known.labelled.clone()
    picked = []
    for label, share in zip(labels.tolist(), share_out(count, counts), strict=True):
        members = (history.label[pool] == label).nonzero().flatten()
        chosen = _CHOOSERS[criterion](suggestion[members], features[members], have, share, generator)
        have = have + suggestion[members[chosen]].sum(dim=0)
        picked.append(members[chosen])
    return history.samples[pool[torch.cat(picked)]] if picked else history.samples[:0]


def pick_unlabelled(ground: "Ground", count: int, criterion: str) -> Tensor:
    """Unlabelled samples to label, by the same criterion."""
    known, history = ground.known, ground.known.history
    pool = history.unlabelled
    count = min(count, len(pool))
    if not count:
        return history.samples[:0]
    suggestion, features = suggestions(ground.head, history.samples[pool])
    generator = seeded(1_000_003 * ground.seed + 11)
    chosen = _CHOOSERS[criterion](suggestion, features, known.labelled, count, generator)
    found: Tensor = history.samples[pool[chosen]]
    return found


def suggestions(head: "Head", samples: Tensor) -> tuple[Tensor, Tensor]:
    """(n, c) what the head says of samples given their old labels, and (n, d) features; means over their rows."""
    known = head.known
    rows = known.rows(samples)
    posterior = condition(logits(head.of_all, known.features[rows]), known.evidence.gather(known.labels[rows])).double()
    order, position = samples.sort()[1], torch.searchsorted(samples.sort()[0], known.sample[rows])
    place = order[position]
    counts = torch.bincount(place, minlength=len(samples)).clamp(min=1)[:, None]
    means = [
        torch.zeros(len(samples), values.shape[1]).double().index_add(0, place, values.double()) / counts
        for values in (posterior, known.features[rows])
    ]
    return means[0], means[1]


def entropy(probs: Tensor) -> Tensor:
    """In nats."""
    found: Tensor = torch.special.entr(probs).sum(dim=1)
    return found


def _random(probs: Tensor, features: Tensor, have: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(len(probs), generator=generator)[:count]


def _uncertain(probs: Tensor, features: Tensor, have: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return entropy(probs).argsort(descending=True, stable=True)[:count]


def _diverse(probs: Tensor, features: Tensor, have: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return _spread_out(features, torch.ones(len(probs)).double(), count, generator)


def _balanced(probs: Tensor, features: Tensor, have: Tensor, count: int, generator: torch.Generator) -> Tensor:
    order = torch.randperm(len(probs), generator=generator)
    return _by_class(probs, have, order, count)


def _mixed(probs: Tensor, features: Tensor, have: Tensor, count: int, generator: torch.Generator) -> Tensor:
    order = _spread_out(features, entropy(probs) + 1e-6, len(probs), generator)
    return _by_class(probs, have, order, count)


def _by_class(probs: Tensor, have: Tensor, order: Tensor, count: int) -> Tensor:
    """Take in turn from the class with fewest labels, among those that are suggested for what is left."""
    have = have.clone()
    queues: dict[int, list[int]] = {}
    for sample in reversed(order.tolist()):
        queues.setdefault(int(probs[sample].argmax()), []).append(sample)
    picked = []
    for _ in range(min(count, len(order))):
        poorest = min(queues, key=lambda cls: (float(have[cls]), cls))
        picked.append(queues[poorest].pop())
        have[poorest] += 1
        if not queues[poorest]:
            del queues[poorest]
    return torch.tensor(picked, dtype=torch.int64)


def _spread_out(features: Tensor, weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++: the next one is drawn in proportion to its weight and its squared distance from those picked."""
    if not count:
        return torch.zeros(0, dtype=torch.int64)
    distance = torch.full((len(features),), 1.0).double()
    left = torch.ones(len(features)).double()
    picked = []
    for _ in range(min(count, len(features))):
        chances = distance * weights * left
        if float(chances.sum()) <= 0:
            chances = left
        index = int(torch.multinomial(chances, 1, generator=generator))
        picked.append(index)
        left[index] = 0
        away = (features - features[index]).square().sum(dim=1)
        distance = away if len(picked) == 1 else torch.minimum(distance, away)
    return torch.tensor(picked, dtype=torch.int64)


_Chooser = Callable[[Tensor, Tensor, Tensor, int, torch.Generator], Tensor]
_CHOOSERS: dict[str, _Chooser] = {
    **{"random": _random, "uncertain": _uncertain, "diverse": _diverse},
    **{"balanced": _balanced, "mixed": _mixed},
}

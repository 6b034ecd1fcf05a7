"""A batch of samples for annotators: what each may be, what the model suggests, and the files that say so."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from leco.data.manifest.manifest import Manifest
from leco.data.masks import decode_mask
from leco.data.periods import seeded
from leco.errors import LecoError, nearest
from leco.io import write_text
from leco.methods.refine import condition
from leco.ontology.evidence import UNLABELLED
from leco.planning.costs import share_out
from leco.planning.known import Known
from leco.planning.label_studio import DOUBT, labelling_config, tasks
from leco.planning.measure import logits
from leco.planning.prepare import Ground

if TYPE_CHECKING:
    from leco.planning.measure import Head


COLUMNS = ("kind", "sample", "old_version", "old_label", "choices", "suggestion", "probability")
ANSWERS = ("label", "annotator", "time")  # to be filled in


@dataclass(frozen=True)
class Question:
    """One sample to annotate."""

    kind: str  # relabel or new
    sample: str  # path below the manifest's folder
    old_version: str
    old_label: str
    choices: tuple[str, ...]  # the classes that the old label leaves possible
    suggestion: str
    probability: float  # of the suggestion, given the old label


def make_batch(ground: Ground, manifest: Manifest, new: int, relabel: int, criterion: str) -> list[Question]:
    """Pick samples, and ask as little as their old labels allow."""
    known = ground.known
    chosen = pick(ground, relabel, criterion) if relabel else known.sample[:0]
    unlabelled = pick_unlabelled(ground, new, criterion)
    samples = torch.cat([chosen, unlabelled])
    if not len(samples):
        raise LecoError("there is nothing to export: no sample to relabel, and none that is unlabelled")
    said, _ = suggestions(ground.head, samples)
    options = [_choices(known, manifest, sample) for sample in samples.tolist()]
    handles = known.evidence.ontology.newest.handles
    if DOUBT in handles:
        raise LecoError(f"a class is called {DOUBT!r}, which is how annotators say that an old label is wrong")
    place = {sample: position for position, sample in enumerate(known.history.samples.tolist())}
    found = []
    for number, sample in enumerate(samples.tolist()):
        label = int(known.history.label[place[sample]])
        version, name = ("", "") if label == UNLABELLED else known.name(label)
        likeliest = int(said[number].argmax())
        found.append(
            Question(
                "relabel" if number < len(chosen) else "new",
                manifest.inputs[sample],
                version,
                name,
                tuple(handles[index] for index in options[number]),
                handles[likeliest],
                float(said[number, likeliest]),
            )
        )
    return found


def _choices(known: Known, manifest: Manifest, sample: int) -> list[int]:
    """The newest classes that a sample may show; of an image with masks, all that any labelled pixel may be."""
    labels: Tensor = known.labels[known.sample == sample].unique()  # type: ignore[no-untyped-call]
    version = "" if labels.tolist() == [UNLABELLED] else known.name(int(labels.max()))[0]
    if manifest.masks and version:  # what is known of are only some of its pixels
        shown = np.unique(decode_mask(manifest.root / manifest.masks[version][sample]))
        labels = known.evidence.ids(torch.from_numpy(shown[shown >= 0]), version)
    possible = (known.evidence.gather(labels) > -torch.inf).any(dim=0)
    return possible.nonzero().flatten().tolist()


def write_batch(
    questions: Sequence[Question], manifest: Manifest, folder: Path, prefix: str, told: dict[str, Any]
) -> list[Path]:
    """Write tasks.json and config.xml for Label Studio, batch.csv for anything else, and how it came about."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{folder}: cannot be written: {error.strerror}") from None
    kind = "mask" if manifest.masks else manifest.kind
    model = f"leco plan, seed {told['seed']}"
    content = {
        "tasks.json": json.dumps(tasks(questions, kind, prefix, model), ensure_ascii=False, indent=1) + "\n",
        "config.xml": labelling_config(kind),
        "batch.csv": to_csv(questions, manifest.kind, "mask" if manifest.masks else "label"),
        "batch.json": json.dumps(told, ensure_ascii=False, indent=1) + "\n",
    }
    for name, text in content.items():
        write_text(folder / name, text)
    return [folder / name for name in content]


def to_csv(questions: Sequence[Question], kind: str, target: str) -> str:
    """A table with empty columns for the answers; choices are a JSON list."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([kind if name == "sample" else name for name in COLUMNS] + [target, *ANSWERS[1:]])
    for question in questions:
        cells = [getattr(question, name) for name in COLUMNS]
        cells[COLUMNS.index("choices")] = json.dumps(question.choices, ensure_ascii=False)
        cells[COLUMNS.index("probability")] = f"{question.probability:.4f}"
        rows.writerow([*cells, "", "", ""])
    return text.getvalue()


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

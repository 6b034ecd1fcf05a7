"""Batches of samples for annotators: the classes each may show, a suggestion, and the files of a labelling tool."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leco.data.manifest.manifest import Manifest
from leco.data.masks import decode_mask
from leco.data.periods import seeded
from leco.errors import LecoError
from leco.io import write_text
from leco.methods.refine import condition
from leco.ontology.evidence import UNLABELLED
from leco.planning.heads import Head, logits
from leco.planning.known import Known
from leco.planning.label_studio import NONE_OF_THESE, labelling_config, tasks
from leco.planning.prepare import Context
from leco.planning.strategies import share_out
from leco.text import csv_cells

COLUMNS = ("kind", "sample", "old_version", "old_label", "choices", "suggestion", "probability")


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


def make_batch(context: Context, manifest: Manifest, new: int, relabel: int) -> list[Question]:
    """Draw samples, and offer only the classes that their old labels leave possible."""
    known = context.known
    handles = known.evidence.ontology.newest.handles
    if NONE_OF_THESE in handles:
        raise LecoError(f"{NONE_OF_THESE!r} is a class of the ontology, but annotators reject an old label with it")
    to_relabel = pick(context, relabel)
    samples = torch.cat([to_relabel, pick_unlabelled(context, new)])
    if not len(samples):
        reasons = ["no old label is ambiguous"] if relabel else []
        reasons += [f"collect {new:,} new samples, and list them in the manifest unlabelled"] if new else []
        raise LecoError(f"nothing to export: {'; '.join(reasons) or 'pass --relabel or --new above 0'}")
    probabilities, suggested = suggestions(context.head, samples).max(dim=1)
    label = dict(zip(known.history.samples.tolist(), known.history.label.tolist(), strict=True))
    return [
        Question(
            "relabel" if number < len(to_relabel) else "new",
            manifest.inputs[sample],
            *(("", "") if label[sample] == UNLABELLED else known.name(label[sample])),
            tuple(handles[index] for index in _choices(known, manifest, sample)),
            handles[int(suggested[number])],
            float(probabilities[number]),
        )
        for number, sample in enumerate(samples.tolist())
    ]


def pick(context: Context, count: int) -> Tensor:
    """Draw samples to relabel: each old class in proportion to its frequency, and within it at random."""
    history = context.known.history
    pool = history.relabellable
    labels, counts = history.label[pool].unique(return_counts=True)  # type: ignore[no-untyped-call]
    generator = seeded(1_000_003 * context.seed + 7)
    picked = [history.samples[:0]]
    for label, share in zip(labels.tolist(), share_out(count, counts), strict=True):
        members = pool[history.label[pool] == label]
        picked.append(history.samples[members[torch.randperm(len(members), generator=generator)[:share]]])
    return torch.cat(picked)


def pick_unlabelled(context: Context, count: int) -> Tensor:
    """Draw unlabelled samples at random."""
    history = context.known.history
    order = torch.randperm(len(history.unlabelled), generator=seeded(1_000_003 * context.seed + 11))
    found: Tensor = history.samples[history.unlabelled[order[:count]]]
    return found


def suggestions(head: Head, samples: Tensor) -> Tensor:
    """(n, c) class probabilities given the old label of each sample, averaged over its rows."""
    known = head.known
    rows = known.rows(samples)
    posterior = condition(logits(head.weights, known.features[rows]), known.evidence.gather(known.labels[rows]))
    ordered, order = samples.sort()
    place = order[torch.searchsorted(ordered, known.sample[rows])]
    counts = torch.bincount(place, minlength=len(samples)).clamp(min=1)[:, None]
    sums = torch.zeros(len(samples), known.num_classes).double().index_add(0, place, posterior.double())
    return sums / counts


def _choices(known: Known, manifest: Manifest, sample: int) -> list[int]:
    """Return the newest classes that a sample may show; with masks, those of any labelled pixel."""
    labels: Tensor = known.labels[known.sample == sample].unique()  # type: ignore[no-untyped-call]
    version = "" if labels.tolist() == [UNLABELLED] else known.name(int(labels.max()))[0]
    if manifest.masks and version:  # only some of its pixels are among the rows
        shown = np.unique(decode_mask(manifest.root / manifest.masks[version][sample]))
        labels = known.evidence.ids(torch.from_numpy(shown[shown >= 0]), version)
    possible = (known.evidence.gather(labels) > -torch.inf).any(dim=0)
    return possible.nonzero().flatten().tolist()


def write_batch(
    questions: Sequence[Question], manifest: Manifest, folder: Path, prefix: str, about: dict[str, Any]
) -> list[Path]:
    """Write tasks.json and config.xml for Label Studio, batch.csv for other tools, and batch.json; return the paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LecoError(f"{folder}: cannot be written: {error.strerror}") from None
    kind = "mask" if manifest.masks else manifest.kind
    model = f"leco plan, seed {about['seed']}"
    content = {
        "tasks.json": json.dumps(tasks(questions, kind, prefix, model), ensure_ascii=False, indent=1) + "\n",
        "config.xml": labelling_config(kind),
        "batch.csv": to_csv(questions, manifest.kind, "mask" if manifest.masks else "label"),
        "batch.json": json.dumps(about, ensure_ascii=False, indent=1) + "\n",
    }
    for name, text in content.items():
        write_text(folder / name, text)
    return [folder / name for name in content]


def to_csv(questions: Sequence[Question], kind: str, target: str) -> str:
    """Return a table for a spreadsheet, with empty columns for the answers; choices are a JSON list."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*(kind if name == "sample" else name for name in COLUMNS), target, "annotator", "time"])
    for question in questions:
        cells = [getattr(question, name) for name in COLUMNS]
        cells[COLUMNS.index("choices")] = json.dumps(question.choices, ensure_ascii=False)
        cells[COLUMNS.index("probability")] = f"{question.probability:.4f}"
        rows.writerow(csv_cells([*cells, "", "", ""]))
    return text.getvalue()

"""A batch of samples for annotators: what each may be, what the model suggests, and the files that say so."""

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

from leco.data.manifest import Manifest
from leco.data.mask_files import decode_mask
from leco.errors import LecoError
from leco.ontology.evidence import UNLABELLED
from leco.ontology.files import write_text
from leco.planning.known import Known
from leco.planning.label_studio import DOUBT, labelling_config, tasks
from leco.planning.picking import pick, pick_unlabelled, suggestions
from leco.planning.preparing import Ground

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

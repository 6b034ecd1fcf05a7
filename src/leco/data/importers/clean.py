"""From samples as a source has them to those of a manifest: each file once, no contradictions, and a test set."""

import random
from collections import defaultdict
from dataclasses import replace

from leco.data.images import SUFFIXES
from leco.data.importers.importer import LeftOut, Sample, Source
from leco.data.manifest.checks import SPLITS, look, normalise, same_bytes
from leco.errors import LecoError
from leco.ontology.schema import name_problem

SEED = 0
SHARE = 5  # one in so many newest samples is for testing


def settle(source: Source) -> Source:
    """Leave out what a manifest could not have, and say what and why.

    Files with the same bytes are one sample. Of a sample with several labels in one version none stays, as none can be
    trusted; of one in several splits, all of it is in `test`, or else in `val`.
    """
    left_out, remarks = source.left_out, list(source.remarks)
    fit = [sample for sample in source.samples if not _unfit(sample, left_out)]
    sizes, faults = look(source.root, dict.fromkeys(sample.path for sample in fit))
    for path, fault in faults.items():
        left_out.add(fault.message, path)
    first = {file: files[0] for files in same_bytes(source.root, sizes, lambda some: len(some) > 1) for file in files}
    there = [s._replace(path=first.get(s.path, s.path)) for s in fit if s.path in sizes]
    if copies := sum(file != kept for file, kept in first.items()):
        remarks.append(f"{copies:,} files have the bytes of another one: each of these images counts as one sample")
    samples = _one_label_each(there, left_out)
    splits: dict[str, set[str]] = defaultdict(set)
    for sample in there:
        if sample.split:
            splits[sample.path].add(sample.split)
    if several := sum(len(found) > 1 for found in splits.values()):
        remarks.append(f"{several:,} images are in several splits: all of each is in test, or else in val")
    chosen = {path: max(found, key=SPLITS.index) for path, found in splits.items()}
    settled = replace(
        source, samples=[s._replace(split=chosen.get(s.path, "")) for s in samples], left_out=left_out, remarks=remarks
    )
    for version, classes in settled.classes().items():
        if not classes:
            why = "; ".join([f"no image that can be used is labelled in {version}", *left_out.summary()])
            raise LecoError(why)
    return settled


def _unfit(sample: Sample, left_out: LeftOut) -> bool:
    """Note why a sample cannot be written down, if that is so."""
    if not _fits_a_cell(sample.path) or sample.path != normalise(sample.path):
        left_out.add(
            "a path that a manifest cannot have: not UTF-8, of several lines, with blanks around it", sample.path
        )
    elif not sample.path.lower().endswith(SUFFIXES):
        left_out.add("not an image", sample.path)
    elif sample.label and (problem := name_problem(sample.label)):
        left_out.add(f"a label that cannot be the name of a class: it {problem}", sample.path)
    else:
        return False
    return True


def _fits_a_cell(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return path == path.strip() and not {"\n", "\r"}.intersection(path)


def _one_label_each(samples: list[Sample], left_out: LeftOut) -> list[Sample]:
    """One row per image and version; an image without a label has a row only if it has no other."""
    labels: dict[tuple[str, str], dict[str, Sample]] = defaultdict(dict)
    labelled = {sample.path for sample in samples if sample.label}
    for sample in samples:
        if sample.label or sample.path not in labelled:
            labels[sample.path, sample.version].setdefault(sample.label, sample)
    kept: list[Sample] = []
    for (path, version), found in labels.items():
        if len(found) == 1:
            kept.extend(found.values())
        else:
            left_out.add("several labels in one version", f"{path}: {', '.join(sorted(found))} in {version}")
    return kept


def with_test(source: Source) -> tuple[Source, int]:
    """Deal a fifth of every newest class to `test`, unless there is such a split; return how many.

    Of fewer than three images none is taken: they are needed for training.
    """
    newest = source.versions[-1]
    candidates: dict[str, list[str]] = defaultdict(list)
    for sample in source.samples:
        if sample.version == newest:
            if sample.split == "test":
                return source, 0
            if sample.split != "val":
                candidates[sample.label].append(sample.path)
    dealt: set[str] = set()
    for label, paths in sorted(candidates.items()):
        # A seed of its own for each class: a new class does not change what the others are tested with.
        dealt.update(random.Random(f"{SEED} {label}").sample(sorted(paths), round(len(paths) / SHARE)))
    samples = [s._replace(split="test" if s.path in dealt else s.split or "train") for s in source.samples]
    return replace(source, samples=samples), len(dealt)

"""From the material of an experiment to what is known: newest labels, validation and history, never the test split."""

import torch
from torch import Tensor

from leco.data.periods import Part
from leco.data.samples import Samples
from leco.experiments.material import Material
from leco.ontology.evidence import UNLABELLED, Evidence
from leco.planning.features import Directions, Extractor, read_maps, read_rows
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known


def gather_known(material: Material, extractor: Extractor, seed: int) -> tuple[Known, Directions]:
    """Read all samples but those of the test split, with the labels of the newest period."""
    period = len(material.versions) - 1
    annotated = material.annotated(period, "label-new")
    evidence = material.until(period).evidence()
    parts = [(NEWEST, annotated.newest), (VALIDATION, annotated.validation)]
    parts += [(HISTORY, part) for part in annotated.history]
    found = [
        (part, rows_of(material, material.pool, chosen, evidence, extractor, seed))
        for part, chosen in parts
        if len(chosen.indices)
    ]
    columns = [torch.cat([rows[column] for _, rows in found]) for column in range(4)]
    columns.append(torch.cat([torch.full((len(rows[1]),), part) for part, rows in found]))
    # A newest mask may be void all over: that is no sample to learn from, or to look at.
    kept = (columns[4] == HISTORY) | (columns[3] != UNLABELLED)
    features, samples, pixels, labels, kinds = (column[kept] for column in columns)
    directions = Directions.of(features)
    return Known(evidence, directions.project(features), samples, labels, kinds, pixels), directions


def rows_of(
    material: Material, samples: Samples, chosen: Part, evidence: Evidence, extractor: Extractor, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, sample, place in its map and row id of evidence, of every row of a part."""
    if material.task == "segmentation":
        found = read_maps(material, samples, chosen.version, chosen.indices, extractor, seed)
    else:
        found = read_rows(material, samples, chosen.version, chosen.indices, extractor)
    features, position, pixels, classes = found
    return features, chosen.indices[position], pixels, evidence.ids(classes, chosen.version)

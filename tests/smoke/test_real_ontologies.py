"""The ontologies people really have: iNaturalist, CamVid, CUB, Mapillary Vistas, Cityscapes."""

import csv
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from leco import Ontology
from leco.data.masks import MaskClasses, count_masks, pair_masks
from leco.ontology.draw import to_html, to_svg
from leco.ontology.guess import guess
from leco.ontology.inference import infer, parents
from leco.ontology.lint import remarks

pytestmark = pytest.mark.data


def inaturalist(root: Path) -> Ontology:
    folder = root / "semi-inat-2021"
    taxa = json.loads((folder / "all_taxa_info.json").read_text())
    labels = json.loads((folder / "label2taxaid.json").read_text())
    levels = ["order", "family", "genus", "species"]
    return Ontology.from_taxonomy("inat", levels, [[taxa[label][level] for level in levels] for label in labels])


def camvid(root: Path) -> Ontology:
    rows = list(csv.DictReader((root / "camvid" / "classes.csv").read_text().splitlines()))
    lineages = [(row["group"], row["name"]) for row in rows if row["group"]]
    return Ontology.from_taxonomy("camvid", ["11", "31"], lineages, ignored=["Void"])


def cub(root: Path) -> Ontology:
    rows = csv.DictReader((root / "cub200-features" / "taxonomy.csv").read_text().splitlines())
    levels = ["order", "family", "species"]
    return Ontology.from_taxonomy("cub", levels, [[row[level] for level in levels] for row in rows])


def cityscapes(root: Path) -> Ontology:
    labels = json.loads((root / "ontologies" / "cityscapes.json").read_text())["labels"]
    return Ontology.from_taxonomy("cityscapes", ["categories", "labels"], [(x["category"], x["name"]) for x in labels])


def mapillary(root: Path) -> Ontology:
    """Without the masks only equal names are known to be kept; old names that begin a new one are its parents."""
    old, new = (
        [
            label["name"]
            for label in json.loads((root / "ontologies" / f"mapillary_vistas_{v}.json").read_text())["labels"]
        ]
        for v in ("v1.2", "v2.0")
    )
    classes = {}
    for name in new:
        parent = max((o for o in old if name.startswith(f"{o}--")), key=len, default=None)
        classes[name] = None if name in old or parent is None else {"from": parent}
    versions = [{"name": "v1.2", "classes": old}, {"name": "v2.0", "classes": classes}]
    return Ontology.from_dict({"name": "mapillary", "versions": versions})


REAL = {
    inaturalist: [123, 339, 729, 810],
    camvid: [11, 31],
    cub: [13, 37, 200],
    cityscapes: [8, 35],
    mapillary: [66, 124],
}


@pytest.mark.parametrize("build", REAL, ids=lambda build: build.__name__)
def test_a_real_ontology_loads_checks_compares_and_draws(build, data_root, tmp_path):
    ontology = build(data_root)
    assert [len(version) for version in ontology.versions] == REAL[build]
    for ending in ("yaml", "json"):
        ontology.save(tmp_path / f"o.{ending}")
        assert Ontology.load(tmp_path / f"o.{ending}").fingerprint == ontology.fingerprint
    changes_of_steps = [ontology.changes(step.old.name, step.new.name) for step in ontology.steps]
    assert isinstance(remarks(ontology, changes_of_steps), list)
    oldest, newest = ontology.versions[0], ontology.newest
    changes = ontology.changes(oldest.name, newest.name)
    assert sum(len(change.new) for change in changes) == len(newest)
    assert sum(len(change.old) for change in changes) == len(oldest)
    assert len(to_svg(ontology)) < len(to_html(ontology))
    if build is not mapillary:
        assert ontology.transition(newest.name, oldest.name).is_tree
        assert ontology.evidence().rows(np.arange(len(oldest)), oldest.name).isfinite().sum() == len(newest)


def test_nothing_was_renamed_in_a_taxonomy(data_root):
    ontology = inaturalist(data_root)
    kinds = {change.kind for old, new in pairwise(ontology.versions) for change in ontology.changes(old.name, new.name)}
    assert kinds == {"split", "replaced"}


@pytest.mark.parametrize("build", REAL, ids=lambda build: build.__name__)
def test_the_command_line_takes_a_real_ontology(build, data_root, tmp_path):
    build(data_root).save(tmp_path / "o.yaml")
    for arguments in (["check"], ["diff"], ["draw", "-o", "o.svg"], ["draw", "-o", "o.html"]):
        command = [sys.executable, "-m", "leco", "ontology", arguments[0], "o.yaml", *arguments[1:]]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    assert (tmp_path / "o.svg").stat().st_size < (tmp_path / "o.html").stat().st_size


@pytest.mark.parametrize("build", REAL, ids=lambda build: build.__name__)
def test_origins_guessed_from_real_names_are_right(build, data_root):
    ontology, wrong, number = build(data_root), {}, 0
    for step in ontology.steps:
        versions = {version.name: version.handles for version in (step.old, step.new)}
        (guessed,) = guess("n", versions, {}).steps
        for name, origin in guessed.guessed.items():
            number += 1
            if [step.old.handles[i] for i in step.origins(step.new.index(name))] != list(origin.values()):
                wrong[name] = origin
    assert wrong == ({"ego vehicle": {"from": "vehicle"}} if build is cityscapes else {})
    assert number >= {inaturalist: 800, mapillary: 8}.get(build, 0)


def test_satyrium_is_a_butterfly_and_an_orchid(data_root):
    ontology = inaturalist(data_root)
    assert ontology["genus"].classes.count("Satyrium") == 2
    assert ontology.translate(["Satyrium w-album", "Satyrium odorum"], "species", "order") == [
        "Lepidoptera",
        "Asparagales",
    ]


@pytest.mark.slow
def test_the_published_grouping_of_camvid_is_recovered_from_its_masks(data_root, tmp_path):
    rows = list(csv.DictReader((data_root / "camvid" / "classes.csv").read_text().splitlines()))
    published = {row["name"]: row["group"] for row in rows}
    groups = [*sorted({group for group in published.values() if group}), "Void"]
    table = np.array([groups.index(row["group"] or "Void") for row in rows], dtype=np.uint8)
    (tmp_path / "groups.csv").write_text("id,name\n" + "".join(f"{i},{group}\n" for i, group in enumerate(groups)))
    fine = data_root / "camvid" / "labels"
    coarse = tmp_path / "coarse"
    coarse.mkdir()
    for path in fine.glob("*.png"):
        Image.fromarray(table[np.asarray(Image.open(path))]).save(coarse / path.name)
    colabels = count_masks(
        pair_masks(coarse, fine)[0],
        MaskClasses.load(tmp_path / "groups.csv", ignored=["Void"]),
        MaskClasses.load(data_root / "camvid" / "classes.csv", ignored=["Void"]),
    )
    found = parents(colabels)
    seen = {parent.new: parent.parent for parent in found if parent.status != "unseen"}
    assert seen == {name: group for name, group in published.items() if name in seen}
    assert len(seen) == 29
    assert {parent.new for parent in found if parent.status == "unseen"} == {"Train", "Tunnel"}  # in no frame
    assert all(parent.status == "decided" and parent.conflict == 0 for parent in found if parent.parent)
    ontology = infer(colabels)
    assert [len(version) for version in ontology.versions] == [11, 31]

"""digits-leco: scikit-learn's handwritten digits, first labelled by their strokes. Needs no download."""

from pathlib import Path

import torch

from leco.data.benchmarks.benchmark import Benchmark, Recipe, labelled, register
from leco.data.samples import InMemory
from leco.data.views.sets import view_set
from leco.ontology.ontology import Ontology

STROKES = {"loop": "0689", "straight": "147", "open-curve": "235"}
_POOL = 1_200  # the rest is the test set: mostly other writers


def ontology() -> Ontology:
    """Strokes, then digits."""
    digits = {str(d): {"from": stroke} for d in range(10) for stroke, members in STROKES.items() if str(d) in members}
    versions = [{"name": "v1", "classes": list(STROKES)}, {"name": "v2", "classes": digits}]
    return Ontology.from_dict({"name": "digits", "versions": versions})


def build(recipe: Recipe, root: Path) -> Benchmark:
    """Load 1,797 images of 8 x 8 pixels."""
    from sklearn import datasets

    bunch = datasets.load_digits()
    images = torch.from_numpy(bunch.images * 15).to(torch.uint8).unsqueeze(1)  # 0 to 16 becomes 0 to 240
    labels = torch.from_numpy(bunch.target).long()
    history = ontology()
    return Benchmark(
        recipe,
        history,
        labelled(InMemory(images[:_POOL]), labels[:_POOL], history),
        lambda: labelled(InMemory(images[_POOL:]), labels[_POOL:], history),
        view_set("digits"),
        strata=labels[:_POOL],
    )


_SETTINGS = {
    "network": {"backbone": "mlp", "norm_momentum": 0.05},
    "optimiser": {"learning_rate": (0.05,)},
    "batches": {"steps": 300, "size": 64, "evaluate_every": 300},
}
register(
    Recipe(
        "digits-leco",
        "classification",
        (3, 10),
        200,
        "nothing",
        build,
        {"paper": _SETTINGS, "small": _SETTINGS},
    )
)

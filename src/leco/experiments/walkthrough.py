"""The idea in a minute, on real handwritten digits that come with scikit-learn: what a coarse label is still worth.

Version v1 tells digits by their strokes (loop, straight, open curve), v2 says which digit. 600 samples carry v1 labels,
100 others carry v2 labels. A linear softmax is trained on the new samples alone, on both (the old ones through their
evidence), and, as the upper bound, on both with v2 labels for all. Test mAcc, 10 seeds, 10 s on two CPU cores: new
labels only 89.9 ± 1.1 %, with the old labels 92.7 ± 1.0 %, all fine 95.7 ± 0.3 %.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from leco.data.benchmarks import load
from leco.evaluation import confusion, predict_at, scores
from leco.methods import agrees, condition, evidence_nll
from leco.ontology.evidence import Evidence
from leco.ontology.ontology import Ontology

NUM_NEW, NUM_OLD, SEEDS, STEPS = 100, 600, 10, 300


@dataclass(frozen=True)
class Digits:
    """A split of the digits: few with new labels, more with old ones, the rest for testing."""

    new: Tensor
    old: Tensor
    test: Tensor
    pixels: Tensor  # (n, 64)
    fine: Tensor  # (n,) label of v2
    coarse: Tensor  # (n,) label of v1


def load_digits(seed: int) -> Digits:
    """Split scikit-learn's 1,797 digits at random."""
    benchmark = load("digits-leco", Path())
    parts = [(part, torch.arange(len(part))) for part in (benchmark.pool, benchmark.test)]
    pixels = torch.cat([part.inputs.read(every) for part, every in parts]).flatten(1) / 240
    fine, coarse = (torch.cat([part.labels[v].read(every) for part, every in parts]) for v in ("v2", "v1"))
    order = torch.randperm(len(fine), generator=torch.Generator().manual_seed(seed))
    new, old, test = order.tensor_split([NUM_NEW, NUM_NEW + NUM_OLD])
    return Digits(new, old, test, pixels, fine, coarse)


def train_linear(pixels: Tensor, evidence_nc: Tensor) -> torch.nn.Linear:
    """Fit a linear softmax to whatever is known about each sample."""
    model = torch.nn.Linear(pixels.shape[1], evidence_nc.shape[1])
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=1e-3)
    for _ in range(STEPS):
        optimiser.zero_grad()
        evidence_nll(model(pixels), evidence_nc, reduction="mean").backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


def run_seed(ontology: Ontology, evidence: Evidence, seed: int) -> dict[str, float]:
    """Train the three models on one split, and look at the pseudo-labels of the first."""
    data = load_digits(seed)
    new, old = evidence.rows(data.fine[data.new], "v2"), evidence.rows(data.coarse[data.old], "v1")
    both = torch.cat([data.new, data.old])
    evidences = {
        "new labels only (ce)": (data.new, new),
        "and the old labels (lpl)": (both, torch.cat([new, old])),
        "all labelled anew (all-fine)": (both, evidence.rows(data.fine[both], "v2")),
    }
    found: dict[str, float] = {}
    step = ontology.transition("v2", "v1")
    for name, (samples, rows) in evidences.items():
        model = train_linear(data.pixels[samples], rows)
        with torch.no_grad():
            probs, logits = model(data.pixels[data.test]).softmax(dim=1), model(data.pixels[data.old])
        test = confusion(probs.argmax(dim=1), data.fine[data.test], 10)
        coarse = confusion(predict_at(probs, step), data.coarse[data.test], 3)
        found[f"v2/{name}"] = scores(test, ontology["v2"].classes).macc
        found[f"v1/{name}"] = scores(coarse, ontology["v1"].classes).macc
        if len(samples) == NUM_NEW:
            right = logits.argmax(dim=1) == data.fine[data.old]
            kept = agrees(logits, old)
            found["pseudo/plain"] = right.float().mean().item()
            found["pseudo/filter"] = right[kept].float().mean().item()
            found["pseudo/kept"] = kept.float().mean().item()
            found["pseudo/cond"] = (condition(logits, old).argmax(dim=1) == data.fine[data.old]).float().mean().item()
    return found

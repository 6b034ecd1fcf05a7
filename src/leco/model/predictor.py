"""A model at work: raw inputs to probabilities."""

import torch
from torch import Tensor

from leco.devices import make_fabric
from leco.errors import LecoError
from leco.model.bundle import Bundle
from leco.models.dense.sliding_window import sliding_window
from leco.models.dense.trunks import resize
from leco.ontology.ontology import Ontology
from leco.ontology.version import NO_LABEL


class Predictor:
    """The network of a bundle on a device, with what is done to inputs before it."""

    def __init__(self, bundle: Bundle, device: str = "auto") -> None:
        self.device = make_fabric(device).device
        self.network = bundle.network().to(self.device)
        self.description, self.ontology = bundle.description, bundle.ontology
        self.normalise = bundle.description.normaliser()

    @torch.no_grad()
    def probs(self, inputs: Tensor) -> Tensor:
        """Probabilities (n, c) of the newest classes, of images (n, c, h, w) uint8 or vectors (n, d)."""
        logits: Tensor = self.network(self.normalise(inputs.to(self.device)))[self.description.newest]
        probs = logits.float().softmax(dim=1).cpu()
        if not probs.isfinite().all():
            raise LecoError("the model's answers are no numbers: its weights, or its normalisation, are broken")
        return probs

    @torch.no_grad()
    def pixel_probs(self, image: Tensor) -> Tensor:
        """Probabilities (1, c, h, w) of the newest classes, of an image (1, 3, h, w) uint8."""
        window = self.description.window
        assert window is not None
        ready = self.normalise(image.to(self.device))
        return sliding_window(self.network, ready, self.description.newest, window, 2 * window // 3)


def label_map(probs: Tensor, ontology: Ontology, version: str, height: int, width: int) -> Tensor:
    """The likeliest class of every pixel at a version (h, w), -1 where it has no name there, of probs (1, c, …).

    Probabilities are enlarged, not classes, so that edges are smooth; one class at a time, so that memory does not
    grow with their number.
    """
    projected = ontology.transition(ontology.newest.name, version).project(probs)
    best = resize(1 - projected.sum(dim=1, keepdim=True), height, width)[0, 0]  # what has no name there
    labels = torch.full(best.shape, NO_LABEL, device=best.device)
    for number, plane in enumerate(projected[0]):
        large = resize(plane[None, None], height, width)[0, 0]
        # As of `predict_at`: a name wins a tie with none, and the first class one with another.
        wins = (large > best) | ((large == best) & (labels == NO_LABEL))
        best, labels = torch.where(wins, large, best), labels.masked_fill(wins, number)
    return labels.cpu()

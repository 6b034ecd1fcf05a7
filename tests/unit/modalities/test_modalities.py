"""Modalities: what each answers, and what it refuses."""

import pytest
import torch

from leco import LecoError, Ontology
from leco.modalities import MODALITIES
from leco.settings import Settings

BUNDLE = {"shape": (3, 32, 32), "side": 32, "window": None, "mean": (0.5,) * 3, "std": (0.2,) * 3}
VERSIONS = Ontology.from_dict({"versions": [{"name": "v1", "classes": ["a", "b"]}]}).versions
SHAPES = {"classification": (3, 16, 16), "features": (5,), "segmentation": (3, 32, 32)}
BACKBONES = {"classification": "wrn-10-1", "features": "linear", "segmentation": "tiny"}


@pytest.mark.parametrize("name", SHAPES)
def test_defaults_are_valid_settings_and_name_a_backbone_that_exists(name):
    modality = MODALITIES[name]
    settings = Settings.model_validate(modality.defaults(32))
    modality.check_backbone(settings.network.backbone)
    with pytest.raises(LecoError, match="is not a backbone"):
        modality.check_backbone("resnet-eighteen")


@pytest.mark.parametrize("name", SHAPES)
def test_probabilities_are_those_of_a_version_and_sum_to_one(name):
    torch.manual_seed(0)
    modality, shape = MODALITIES[name], SHAPES[name]
    network = modality.network(BACKBONES[name], shape, VERSIONS).eval()
    with torch.no_grad():
        probs = modality.probs(network, torch.randn(2, *shape), "v1", window=32, sizes=None)
    assert probs.shape[:2] == (2, 2)
    torch.testing.assert_close(probs.sum(dim=1), torch.ones_like(probs.sum(dim=1)))


WRONG = {
    "flat images": ("classification", {"shape": (5,)}, "do not fit"),
    "no side": ("classification", {"side": None}, "need a `side`"),
    "larger than its side": ("classification", {"side": 16}, "cannot be cut out of"),
    "a window for classes": ("classification", {"window": 16}, "`window` is for segmentation"),
    "no spread": ("classification", {"std": (0.2, 0.2, 0.0)}, "positive `std`"),
    "deep vectors": ("features", {}, "do not fit"),
    "no window": ("segmentation", {}, "needs a `window`"),
    "a tiny window": ("segmentation", {"window": 4}, "too small, or too large"),
}


@pytest.mark.parametrize("case", WRONG)
def test_descriptions_that_do_not_fit_together_are_refused(case):
    name, changes, problem = WRONG[case]
    with pytest.raises(ValueError, match=problem):
        MODALITIES[name].check_bundle(BUNDLE | changes)


def test_images_that_were_padded_are_segmented_without_their_padding():
    torch.manual_seed(0)
    modality = MODALITIES["segmentation"]
    network = modality.network("tiny", (3, 32, 32), VERSIONS).eval()
    image = torch.zeros(1, 3, 32, 32)
    image[:, :, :20, :28] = torch.randn(1, 3, 20, 28)
    with torch.no_grad():
        padded = modality.probs(network, image, "v1", window=16, sizes=torch.tensor([[20, 28]]))
        alone = modality.probs(network, image[:, :, :20, :28], "v1", window=16, sizes=None)
    assert torch.equal(padded[:, :, :20, :28], alone)
    assert not padded[:, :, 20:].any()

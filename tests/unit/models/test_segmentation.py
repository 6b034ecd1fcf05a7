import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leco import LecoError, Version
from leco.methods.terms import auxiliary
from leco.models import SegmentationNetwork, build_segmenter
from leco.models.backbones import timm_model
from leco.models.dense import trunks as high_resolution
from leco.models.dense.ocr import CHANNELS, KEY_CHANNELS, OcrHead

OLD = Version("v1.2", ("road", "sky", "tree"))  # a name with a dot
NEW = Version("v2", tuple("abcde"))
SMALL_HRNET = "hrnet_w18_small"


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def randomise_norms(module: nn.Module) -> None:
    """Give BatchNorm statistics that matter, so that a reference without it would fail."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)


# Sizes


@pytest.fixture(scope="module", params=[SMALL_HRNET, "tiny", "resnet18", "mobilenetv3_small_100", "convnext_atto"])
def network(request) -> SegmentationNetwork:
    torch.manual_seed(0)
    return build_segmenter(request.param, [OLD, NEW]).eval()


@pytest.mark.parametrize(("height", "width"), [(64, 64), (33, 65), (45, 90), (71, 38)])
def test_logits_have_the_size_of_the_image_whatever_it_is(network, height, width):
    with torch.no_grad():
        logits = network(torch.randn(2, 3, height, width))
    assert {version: tuple(z.shape) for version, z in logits.items()} == {
        "v1.2": (2, 3, height, width),
        "v2": (2, 5, height, width),
    }


def test_only_ocr_heads_have_auxiliary_logits_and_only_while_training(network):
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert set(network.eval()(images)) == {"v1.2", "v2"}
        logits = network.train()(images)
    is_ocr = isinstance(network.heads[0], OcrHead)
    expected = {auxiliary(version): logits[version].shape for version in network.versions} if is_ocr else {}
    assert {key: z.shape for key, z in logits.items() if key not in network.versions} == expected


@pytest.mark.parametrize("name", [SMALL_HRNET, "tiny", "mobilenetv3_small_100"])
def test_gradients_reach_every_parameter(name):
    torch.manual_seed(0)
    network = build_segmenter(name, [OLD, NEW])
    logits = network(torch.randn(2, 3, 64, 64))
    sum(z.square().mean() for z in logits.values()).backward()
    without = [key for key, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


# HRNet


def test_hrnet_w48_with_ocr_has_its_published_size():
    """Published: 70.3 M parameters for the 19 classes of Cityscapes (Wang et al. 2019), 65.9 M without OCR.

    By hand, the published code has 65,325,120 in the trunk and 5,047,558 in the head: 70,372,678. Two of the head's
    convolutions have biases there (512 + 720), although BatchNorm follows and takes them out again; not so here.
    """
    with torch.device("meta"):
        network = build_segmenter("hrnet_w48", [Version("cityscapes", tuple(map(str, range(19))))])
    assert network.backbone.num_features == 48 + 96 + 192 + 384
    assert parameters(network.backbone) == 65_325_120
    assert parameters(network) == 70_372_678 - 512 - 720


def test_hrnet_w48_takes_the_papers_crops_whose_side_is_not_a_multiple_of_32():
    with torch.device("meta"), torch.no_grad():
        network = build_segmenter("hrnet_w48", [OLD]).eval()
        assert network.backbone(torch.empty(1, 3, 720, 720)).shape == (1, 720, 180, 180)
        assert network(torch.empty(1, 3, 720, 720))["v1.2"].shape == (1, 3, 720, 720)


def test_weights_of_timms_hrnet_fit():
    torch.manual_seed(0)
    whole = timm.create_model(SMALL_HRNET)
    maps = build_segmenter(SMALL_HRNET, [OLD]).backbone.maps
    missing, unexpected = maps.load_state_dict(whole.state_dict(), strict=False)
    assert missing == []
    of_classification = ("incre_modules.", "downsamp_modules.", "final_layer.", "classifier.")
    assert all(name.startswith(of_classification) for name in unexpected)


def test_hrnet_equals_timms_where_that_one_works_except_for_the_interpolation(monkeypatch):
    def nearest(maps: Tensor, height: int, width: int) -> Tensor:
        return F.interpolate(maps, size=(height, width), mode="nearest")

    monkeypatch.setattr(high_resolution, "resize", nearest)
    torch.manual_seed(0)
    ours = high_resolution.HighResolution(SMALL_HRNET).eval()
    theirs = timm.create_model(SMALL_HRNET, features_only=True, feature_location="").eval()
    randomise_norms(theirs)
    ours.maps.load_state_dict(theirs.state_dict())
    images = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    with torch.no_grad():
        _, *maps = theirs.double()(images)  # the first is the stem
        expected = torch.cat([nearest(m, 16, 24) for m in maps], dim=1)
        torch.testing.assert_close(ours.double()(images), expected)


# OCR


def naive_ocr(head: OcrHead, features: Tensor) -> tuple[Tensor, Tensor]:
    """The head in evaluation mode, with loops over images, classes and pixels."""

    def layer(conv_norm_relu: nn.Sequential, x: Tensor) -> Tensor:
        conv, norm, _ = conv_norm_relu
        x = F.conv2d(x, conv.weight, padding=conv.kernel_size[0] // 2)
        shape = (1, -1, 1, 1)
        x = (x - norm.running_mean.view(shape)) / (norm.running_var.view(shape) + norm.eps).sqrt()
        return (x * norm.weight.view(shape) + norm.bias.view(shape)).clamp(min=0)

    def vector(layers: list[nn.Sequential], x: Tensor) -> Tensor:
        """The same 1x1 layers on a single feature vector."""
        x = x.view(1, -1, 1, 1)
        for one in layers:
            x = layer(one, x)
        return x.flatten()

    auxiliary = head.auxiliary_classifier(layer(head.auxiliary, features))
    pixels = layer(head.pixels, features)
    (n, _, h, w), k = pixels.shape, auxiliary.shape[1]
    context = torch.zeros(n, CHANNELS, h, w)
    attention = head.attention
    for i in range(n):
        objects = []
        for c in range(k):
            weights = auxiliary[i, c].exp() / auxiliary[i, c].exp().sum()  # over pixels
            objects.append(sum(weights[y, x] * pixels[i, :, y, x] for y in range(h) for x in range(w)))
        keys = [vector(list(attention.key), o) for o in objects]
        values = [vector([attention.value], o) for o in objects]
        for y in range(h):
            for x in range(w):
                query = vector(list(attention.query), pixels[i, :, y, x])
                alike = torch.stack([query @ key for key in keys]) / KEY_CHANNELS**0.5
                shares = alike.exp() / alike.exp().sum()  # over classes
                mixture = sum(share * value for share, value in zip(shares, values, strict=True))
                context[i, :, y, x] = vector([attention.out], mixture)
    merged = layer(head.merge[0], torch.cat([context, pixels], dim=1))
    return head.classifier(merged), auxiliary


@torch.no_grad()
def test_the_ocr_head_computes_what_its_definition_says():
    torch.manual_seed(0)
    head = OcrHead(channels_in=12, num_classes=4).eval()
    randomise_norms(head)
    features = torch.randn(2, 12, 3, 5)
    logits, auxiliary = head(features)
    naive_logits, naive_auxiliary = naive_ocr(head, features)
    assert logits.shape == auxiliary.shape == (2, 4, 3, 5)
    torch.testing.assert_close(auxiliary, naive_auxiliary, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits, naive_logits, atol=1e-4, rtol=1e-4)


def test_a_head_trains_on_a_single_image():
    logits, auxiliary = OcrHead(8, 3)(torch.randn(1, 8, 4, 4))
    (logits.sum() + auxiliary.sum()).backward()


# Names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hrnet-w48", "'hrnet-w48' is not a backbone; did you mean 'hrnet_w48'"),
        ("resnet-18", "'resnet-18' is not a backbone; did you mean 'resnet18'"),
        ("tinny", "'tinny' is not a backbone; did you mean 'tiny'"),
        ("wrn-28-2", "is not a backbone"),
        ("vit_tiny_patch16_224", "vit_tiny_patch16_224 has no feature maps for images of any size; choose"),
        ("mambaout_femto", "mambaout_femto has no feature maps"),  # (n, h, w, c)
    ],
)
def test_unsuitable_networks_are_refused(name, message):
    with pytest.raises(LecoError, match=message):
        build_segmenter(name, [OLD])


def test_a_network_that_timm_fails_to_build_is_refused_in_one_line():
    # Which networks timm cannot make as trunks changes with its releases; stages that no network has, it never can.
    with pytest.raises(LecoError, match=r"^resnet18 cannot be built: [^\n]+$"):
        timm_model("resnet18", features_only=True, out_indices=(99,))

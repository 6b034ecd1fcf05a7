import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from leco import LecoError, Version
from leco.models import build_segmenter
from leco.models.dense.sliding_window import sliding_window, starts


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return build_segmenter("tiny", [Version("v1", tuple("abc")), Version("v2", tuple("abcd"))]).eval()


def naive(network, images: Tensor, window: int, stride: int) -> Tensor:
    """One image, one window, one pixel at a time, without flips."""
    _, _, height, width = images.shape
    padded = torch.zeros(*images.shape[:2], max(height, window), max(width, window))
    padded[:, :, :height, :width] = images
    found = {(y, x): [] for y in range(height) for x in range(width)}
    tops = sorted({min(k * stride, max(0, height - window)) for k in range(height)})
    lefts = sorted({min(k * stride, max(0, width - window)) for k in range(width)})
    for top in tops:
        for left in lefts:
            part = padded[:, :, top : top + window, left : left + window]
            probs = network(part)["v2"].softmax(dim=1)
            for y in range(window):
                for x in range(window):
                    if (top + y, left + x) in found:
                        found[top + y, left + x].append(probs[:, :, y, x])
    result = torch.zeros(len(images), 4, height, width)
    for (y, x), seen in found.items():
        result[:, :, y, x] = torch.stack(seen).mean(dim=0)
    return result


@torch.no_grad()
def test_one_window_over_the_whole_image_is_one_forward_pass(network):
    images = torch.randn(2, 3, 48, 48)
    probs = sliding_window(network, images, "v2", window=48, stride=32, flip=False)
    torch.testing.assert_close(probs, network(images)["v2"].softmax(dim=1))


@torch.no_grad()
def test_a_smaller_image_is_padded_and_the_padding_cut_off(network):
    images = torch.randn(1, 3, 30, 40)
    probs = sliding_window(network, images, "v1", window=64, stride=64, flip=False)
    whole = network(F.pad(images, (0, 24, 0, 34)))["v1"].softmax(dim=1)
    torch.testing.assert_close(probs, whole[:, :, :30, :40])


@torch.no_grad()
@pytest.mark.parametrize(
    ("height", "width", "window", "stride"), [(50, 77, 32, 32), (50, 77, 32, 20), (20, 70, 32, 31), (64, 32, 32, 8)]
)
def test_windows_are_averaged_as_in_a_plain_loop(network, height, width, window, stride):
    images = torch.randn(2, 3, height, width)
    expected = naive(network, images, window, stride)
    probs = sliding_window(network, images, "v2", window, stride, flip=False)
    torch.testing.assert_close(probs, expected)
    torch.testing.assert_close(probs.sum(dim=1), torch.ones(2, height, width))


@pytest.mark.parametrize(("height", "width", "stride"), [(50, 77, 24), (32, 32, 32), (40, 20, 32)])
def test_with_flips_a_mirrored_image_gets_the_mirrored_prediction(network, height, width, stride):
    images = torch.randn(1, 3, height, width)
    probs = sliding_window(network, images, "v2", 32, stride)
    mirrored = sliding_window(network, images.flip(3), "v2", 32, stride)
    torch.testing.assert_close(mirrored, probs.flip(3))
    torch.testing.assert_close(probs.sum(dim=1), torch.ones(1, height, width))
    assert not torch.allclose(probs, sliding_window(network, images, "v2", 32, stride, flip=False))


@torch.no_grad()
def test_flips_average_the_image_and_its_mirror(network):
    images = torch.randn(1, 3, 32, 32)
    both = [network(images)["v2"].softmax(dim=1), network(images.flip(3))["v2"].softmax(dim=1).flip(3)]
    torch.testing.assert_close(sliding_window(network, images, "v2", 32, 32), torch.stack(both).mean(dim=0))


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("stride", [1, 7, 32])
def test_windows_cover_an_edge_without_reaching_beyond_it(size, stride):
    tops = starts(size, 32, stride)
    assert len(set(tops)) == len(tops)
    assert {p for top in tops for p in range(top, top + 32)} == set(range(max(size, 32)))


@pytest.mark.parametrize("stride", [0, 33])
def test_strides_that_would_leave_gaps_are_refused(network, stride):
    with pytest.raises(LecoError, match=f"the stride {stride} does not fit windows of 32 pixels"):
        sliding_window(network, torch.zeros(1, 3, 40, 40), "v2", 32, stride)


def test_no_gradients_are_kept(network):
    assert not sliding_window(network, torch.zeros(1, 3, 32, 32), "v2", 32, 32).requires_grad

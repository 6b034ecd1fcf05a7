import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from leco import LecoError
from leco.data.rng import Draws
from leco.data.views import joint


def draw(n: int, step: int = 0) -> Draws:
    return Draws(0, step, torch.arange(n))


def blocks(n: int, height: int = 60, width: int = 80) -> tuple[Tensor, Tensor]:
    """Masks of random 10x10 blocks, and images whose grey is 20 times the label."""
    labels = torch.randint(12, (n, height // 10, width // 10), generator=torch.Generator().manual_seed(0))
    masks = labels.repeat_interleave(10, 1).repeat_interleave(10, 2)
    return (20 * masks).byte()[:, None].expand(-1, 3, -1, -1).contiguous(), masks


def naive(image: Tensor, mask: Tensor, draws: Draws, base_size: int, crop: int) -> tuple[Tensor, Tensor]:
    """Flip, resize the whole image, pad, crop."""
    factor, mirrored, top, left = draws.uniform("joint", 4)[0].tolist()
    height, width = mask.shape
    longer = torch.tensor(base_size * (0.5 + (2.1 - 0.5) * factor))
    size = [round(float(longer * edge / max(height, width))) for edge in (height, width)]
    if mirrored < 0.5:
        image, mask = image.flip(-1), mask.flip(-1)
    image = F.interpolate(image[None].float(), size, mode="bilinear")[0].round().byte()
    rows, columns = (
        [(2 * i + 1) * edge // (2 * length) for i in range(length)]
        for edge, length in zip(mask.shape, size, strict=True)
    )
    mask = mask[rows][:, columns]
    missing = [max(crop - edge, 0) for edge in size]
    image = F.pad(image, (0, missing[1], 0, missing[0]))
    mask = F.pad(mask, (0, missing[1], 0, missing[0]), value=-1)
    y, x = (int(u * (max(edge - crop, 0) + 1)) for u, edge in zip((top, left), size, strict=True))
    return image[:, y : y + crop, x : x + crop], mask[y : y + crop, x : x + crop]


@pytest.mark.parametrize("base_size", [80, 50, 150])
def test_the_joint_view_equals_resizing_padding_and_cropping_each_image(base_size, photographs):
    images = photographs
    masks = images[:, 0].long()
    found, (labels,) = joint(images, [masks], draw(len(images)), base_size, crop=40)
    for i in range(len(images)):
        image, mask = naive(images[i], masks[i], Draws(0, 0, torch.tensor([i])), base_size, 40)
        assert (found[i].int() - image.int()).abs().max() <= 1
        assert torch.equal(labels[i], mask)


def test_image_and_masks_stay_aligned():
    images, masks = blocks(20)
    found, (labels, again) = joint(images, [masks, masks.int()], draw(20), base_size=80, crop=64)
    assert torch.equal(labels, again)
    assert labels.dtype == torch.int64
    # Away from the edges of blocks, where bilinear mixes two greys, each grey is that of its label.
    flat = (F.max_pool2d(labels.float(), 5, 1, 2) == labels) & (-F.max_pool2d(-labels.float(), 5, 1, 2) == labels)
    flat &= labels >= 0
    found, labels, flat = (values[..., 3:-3, 3:-3] for values in (found[:, 0], labels, flat))
    assert flat.float().mean() > 0.2
    assert torch.equal(found[flat].long(), 20 * labels[flat])


def test_what_the_scaled_image_does_not_reach_has_no_label():
    images, masks = blocks(50)
    found, (labels,) = joint(images + 5, [masks], draw(50), base_size=40, crop=90, fill=3)
    padded = labels == -1
    assert padded[:, -1, -1].all()
    assert not padded[:, 0, 0].any()
    assert torch.equal(padded, (found == 3).all(dim=1))


def test_scales_cover_the_range_and_half_of_the_images_are_mirrored():
    n = 2000
    ramp = torch.arange(100).expand(n, 1, 50, 100).byte()
    found, _ = joint(ramp, [], draw(n), base_size=100, crop=20)
    across = found[:, 0, 0].float()
    slope = (across[:, -1] - across[:, 0]) / 19
    assert (slope < 0).float().mean() == pytest.approx(0.5, abs=0.05)
    scales = 1 / slope.abs()
    assert 0.45 < scales.min() < 0.6
    assert 1.9 < scales.max() < 2.3


@pytest.mark.parametrize("n", [0, 1, 4])
def test_the_view_of_a_sample_does_not_depend_on_its_batch(n):
    images, masks = blocks(n)
    found, (labels,) = joint(images, [masks], draw(n), base_size=80, crop=32)
    assert found.shape == (n, 3, 32, 32)
    assert found.dtype == torch.uint8
    assert labels.shape == (n, 32, 32)
    for i in range(n):
        alone, (label,) = joint(images[i : i + 1], [masks[i : i + 1]], Draws(0, 0, torch.tensor([i])), 80, 32)
        assert torch.equal(alone[0], found[i])
        assert torch.equal(label[0], labels[i])


def test_another_step_gives_another_view():
    images, masks = blocks(3)
    first, second = (joint(images, [masks], draw(3, step), 80, 32)[0] for step in (0, 1))
    assert not torch.equal(first, second)


def test_a_mask_of_another_size_is_refused():
    images, masks = blocks(2)
    with pytest.raises(LecoError, match=r"a mask of shape \(2, 60, 79\) does not fit images of \(2, 3, 60, 80\)"):
        joint(images, [masks[:, :, 1:]], draw(2), 80, 32)


def test_padding_that_only_made_images_stackable_is_never_shown():
    images = torch.zeros(40, 3, 64, 64, dtype=torch.uint8)
    images[:, :, :36] = 200  # 16:9, padded to a square
    masks = torch.full((40, 64, 64), -1)
    masks[:, :36] = 1
    sizes = torch.tensor([36, 64]).expand(40, 2)
    draws = Draws(0, 0, torch.arange(40))
    seen, (labels,) = joint(images, [masks], draws, base_size=64, crop=16, sizes=sizes)
    assert (labels == 1).all()
    assert (seen == 200).all()
    _, (blind,) = joint(images, [masks], draws, base_size=64, crop=16)
    assert (blind == -1).any()


def test_sizes_of_whole_images_change_nothing():
    images, masks = torch.randint(256, (5, 3, 20, 30)).byte(), torch.randint(4, (5, 20, 30))
    draws = Draws(1, 2, torch.arange(5))
    plain = joint(images, [masks], draws, base_size=30, crop=12)
    sized = joint(images, [masks], draws, base_size=30, crop=12, sizes=torch.tensor([20, 30]).expand(5, 2))
    assert torch.equal(plain[0], sized[0])
    assert torch.equal(plain[1][0], sized[1][0])

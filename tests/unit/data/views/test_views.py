import math

import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor
from torchvision.transforms import v2

from leco import LecoError
from leco.data.rng import Draws
from leco.data.views import (
    VIEW_SETS,
    centre_crop_resize,
    cutout,
    feature_views,
    flip,
    normalise,
    pad_crop,
    random_resized_crop,
    strong,
    view_set,
    weak,
)
from leco.data.views import features as feature
from leco.data.views.images import resample
from leco.data.views.randaugment import randaugment
from leco.data.views.sets import crop_views, cropped
from leco.settings import ViewSettings

IMAGE_VIEWS = {
    "flip": flip,
    "pad_crop": pad_crop,
    "cutout": cutout,
    "randaugment": randaugment,
    "random_resized_crop": lambda images, draws: random_resized_crop(images, draws, size=24),
    "weak": weak,
    "strong": strong,
    **{f"cifar {part}": getattr(VIEW_SETS["cifar"], part) for part in ("weak", "strong")},
    "digits strong": VIEW_SETS["digits"].strong,
    "crop": crop_views(0.35, 24).weak,
    "another crop": crop_views(0.35, 24).strong,
    "distorted crop": crop_views(0.35, distorted=True).strong,
}


def numbered(n: int, height: int = 8, width: int = 8) -> Tensor:
    """Images whose pixels tell where they came from: row in the first channel, column in the second."""
    rows = torch.arange(height).view(1, 1, height, 1).expand(n, 1, height, width)
    columns = torch.arange(width).view(1, 1, 1, width).expand(n, 1, height, width)
    return torch.cat([rows, columns, torch.zeros_like(rows)], dim=1).byte()


def draw(n: int, step: int = 0) -> Draws:
    return Draws(0, step, torch.arange(n))


@pytest.mark.parametrize("view", IMAGE_VIEWS.values(), ids=IMAGE_VIEWS.keys())
def test_a_sample_gets_the_same_view_alone_and_in_any_batch(view, photographs):
    ids = torch.arange(len(photographs)) * 7
    together = view(photographs, Draws(1, 2, ids))
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))
    assert torch.equal(view(photographs[order], Draws(1, 2, ids[order])), together[order])
    for i in range(len(ids)):
        assert torch.equal(view(photographs[i : i + 1], Draws(1, 2, ids[i : i + 1])), together[i : i + 1])


@pytest.mark.parametrize("view", IMAGE_VIEWS.values(), ids=IMAGE_VIEWS.keys())
def test_another_step_gives_another_view(view, photographs):
    n = len(photographs)
    assert not torch.equal(view(photographs, draw(n, step=1)), view(photographs, draw(n, step=2)))
    assert not torch.equal(view(photographs, Draws(1, 0, torch.arange(n))), view(photographs, draw(n)))


@pytest.mark.parametrize("view", IMAGE_VIEWS.values(), ids=IMAGE_VIEWS.keys())
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_type_and_shape_are_kept_and_the_batch_is_not_changed(view, n, channels):
    images = torch.randint(256, (n, channels, 24, 24), dtype=torch.uint8)
    before = images.clone()
    found = view(images, draw(n))
    assert found.dtype == torch.uint8
    assert found.shape == images.shape
    assert torch.equal(images, before)


@pytest.mark.parametrize("view", IMAGE_VIEWS.values(), ids=IMAGE_VIEWS.keys())
def test_the_draws_of_one_sample_are_not_used_for_others(view, photographs):
    with pytest.raises(LecoError, match=r"needs \d+ sample ids, not 1"):
        view(photographs, draw(1))


def test_flip_mirrors_half_of_the_images():
    images = numbered(2000)
    found = flip(images, draw(2000))
    mirrored = found[:, 1, 0, 0] == 7
    assert torch.equal(found[mirrored], images[mirrored].flip(-1))
    assert torch.equal(found[~mirrored], images[~mirrored])
    assert mirrored.float().mean() == pytest.approx(0.5, abs=0.05)


def test_pad_crop_equals_padding_by_reflection_and_cropping(photographs):
    n = len(photographs)
    shifts = draw(n).integers("pad_crop", -4, 5, 2) + 4
    padded = F.pad(photographs.float(), (4, 4, 4, 4), mode="reflect").byte()
    expected = [p[:, y : y + 48, x : x + 40] for p, (y, x) in zip(padded, shifts.tolist(), strict=True)]
    assert torch.equal(pad_crop(photographs, draw(n)), torch.stack(expected))


def test_weak_is_flip_then_pad_crop(photographs):
    draws = draw(len(photographs))
    assert torch.equal(weak(photographs, draws), pad_crop(flip(photographs, draws), draws))
    assert torch.equal(weak(photographs, draws, flip=False), pad_crop(photographs, draws))


def test_all_shifts_of_pad_crop_are_equally_likely():
    found = pad_crop(numbered(9000, 16, 16), draw(9000), padding=1)[:, :2, 5, 5].long() - 4
    counts = torch.bincount(3 * found[:, 0] + found[:, 1], minlength=9)
    torch.testing.assert_close(counts / 1000, torch.ones(9), atol=0.15, rtol=0)


def test_padding_wider_than_the_image_is_refused():
    with pytest.raises(LecoError, match="cannot reflect 8 pixels at the border of images of 8x8"):
        pad_crop(numbered(1), draw(1), padding=8)


def test_cutout_is_what_the_fixmatch_code_does():
    n, side = 300, 16
    draws = draw(n)
    ours = cutout(torch.zeros(n, 3, 32, 32, dtype=torch.uint8), draws)
    for index, (y, x) in enumerate((draws.uniform("cutout", 2) * 32).tolist()):
        left, top = int(max(0, x - side / 2)), int(max(0, y - side / 2))
        picture = Image.new("RGB", (32, 32))
        corners = (left, top, min(32, left + side), min(32, top + side))
        ImageDraw.Draw(picture).rectangle(corners, (127, 127, 127))
        assert picture.tobytes() == ours[index].permute(1, 2, 0).contiguous().numpy().tobytes()


def test_a_resampled_box_equals_pils_resize():
    photograph = Image.radial_gradient("L").resize((80, 60))
    pixels = torch.tensor(list(photograph.tobytes()), dtype=torch.uint8).view(1, 1, 60, 80)
    boxes = torch.tensor([[0, 0, 60, 80], [10, 20, 30, 40], [5, 3, 12, 9], [7.5, 3.25, 30.5, 30.5]])
    ours = resample(pixels.expand(4, -1, -1, -1), boxes, 20)
    for found, (top, left, tall, wide) in zip(ours, boxes.tolist(), strict=True):
        resized = photograph.resize((20, 20), Image.Resampling.BILINEAR, box=(left, top, left + wide, top + tall))
        theirs = torch.tensor(list(resized.tobytes())).view(20, 20)
        assert (found[0].int() - theirs).abs().max() <= 1


def test_random_resized_crops_have_the_areas_and_ratios_asked_for():
    n, side = 2000, 200
    found = random_resized_crop(numbered(n, side, side), draw(n), size=50, scale=(0.2, 0.5), ratio=(0.8, 1.25))
    # The first and last pixel centres lie half a result's pixel inside the box: 49/50 of its edge apart.
    edges = torch.stack(
        [found[:, 0, -1, 0].float() - found[:, 0, 0, 0], found[:, 1, 0, -1].float() - found[:, 1, 0, 0]]
    )
    tall, wide = edges * 50 / 49
    area, ratio = tall * wide / side**2, wide / tall
    assert area.min() > 0.18
    assert area.max() < 0.52
    assert area.mean() == pytest.approx(0.35, abs=0.01)
    assert ratio.log().mean() == pytest.approx(0, abs=0.01)
    assert ratio.log().std() == pytest.approx(2 * math.log(1.25) / math.sqrt(12), abs=0.02)


def test_a_box_too_wide_for_the_image_is_clipped():
    found = random_resized_crop(numbered(50, 10, 200), draw(50), size=8, scale=(1, 1), ratio=(1, 1))
    assert (found[:, 0, 0, 0] <= 1).all()
    assert (found[:, 0, -1, 0] >= 8).all()


def test_centre_crop_of_a_square_equals_torchvisions_closely(photographs):
    square = photographs[:, :, :40]
    theirs = v2.Compose([v2.Resize(32, antialias=True), v2.CenterCrop(28)])(square)
    difference = (centre_crop_resize(square, resize=32, size=28).float() - theirs.float()).abs()
    assert difference.max() <= 1


def test_normalised_channels_have_mean_zero_and_deviation_one(photographs):
    pixels = photographs.float() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    found = normalise(photographs, mean, std)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, (pixels - mean.view(3, 1, 1)) / std.view(3, 1, 1), atol=1e-5, rtol=1e-5)


def test_feature_noise_is_scaled_by_the_deviation_of_each_dimension():
    std = torch.tensor([0.1, 1.0, 10.0])
    found = feature.weak(torch.zeros(20_000, 3), draw(20_000), std)
    torch.testing.assert_close(found.std(0) / std, torch.full((3,), feature.WEAK_NOISE), rtol=0.05, atol=0)
    torch.testing.assert_close(found.mean(0) / std, torch.zeros(3), rtol=0, atol=0.002)


def test_feature_dropout_keeps_the_mean_and_its_noise_is_normal():
    found = feature.strong(torch.ones(20_000, 4), draw(20_000))
    kept = found != 0
    assert kept.float().mean().item() == pytest.approx(1 - feature.STRONG_DROPOUT, abs=0.01)
    torch.testing.assert_close(found.mean(0), torch.ones(4), rtol=0, atol=0.02)
    noise = (found[kept] * (1 - feature.STRONG_DROPOUT) - 1) / feature.STRONG_NOISE
    for quantile in (0.05, 0.5, 0.95):
        expected = torch.special.ndtri(torch.tensor(quantile)).item()
        assert torch.quantile(noise, quantile).item() == pytest.approx(expected, abs=0.04)


def test_the_strong_view_of_features_is_farther_away_than_the_weak_one_and_independent_of_it():
    samples = torch.randn(500, 32, generator=torch.Generator().manual_seed(0))
    views = feature_views(std=samples.std(0))
    weak_change = views.weak(samples, draw(500)) - samples
    strong_change = views.strong(samples, draw(500)) - samples
    assert strong_change.norm() > 3 * weak_change.norm()
    assert abs(torch.corrcoef(torch.stack([weak_change.flatten(), strong_change.flatten()]))[0, 1]) < 0.05
    assert torch.equal(views.evaluate(samples, draw(500)), samples)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_feature_views_keep_type_and_shape_and_do_not_depend_on_the_batch(dtype, n):
    samples = torch.randn(n, 6).to(dtype)
    for view in (feature_views(1.0).weak, feature_views(1.0).strong):
        found = view(samples, draw(n))
        assert found.dtype == dtype
        assert found.shape == samples.shape
        for i in range(n):
            alone = view(samples[i : i + 1], Draws(0, 0, torch.tensor([i])))
            torch.testing.assert_close(alone, found[i : i + 1])


@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1e-6, 1e6, 1e18, 1e37])
def test_features_of_any_scale_have_length_ten_and_the_same_direction(scale):
    features = torch.randn(5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = 10 * F.normalize(features, dim=1).float()
    torch.testing.assert_close(feature.unit_length((features * scale).float()), wanted, atol=2e-4, rtol=2e-4)
    assert (feature.unit_length(torch.zeros(2, 3)) == 0).all()


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_ordinary_features_are_normalised_to_the_bit_as_torch_does(scale):
    features = scale * torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(feature.unit_length(features), 10 * F.normalize(features, dim=1))


def test_inat_views_are_224_pixels_wide(photographs):
    views = view_set("inat")
    for view in (views.weak, views.strong, views.evaluate):
        found = view(photographs[:2], draw(2))
        assert found.shape == (2, 3, 224, 224)
        assert found.dtype == torch.uint8


def test_strong_views_without_cutout_and_whole_images_in_evaluation_are_those_of_the_released_inat(photographs):
    draws, views = Draws(0, 3, torch.arange(len(photographs))), VIEW_SETS["inat"]
    released = views.changed(ViewSettings(cutout=False, whole=True))
    own = draws.branch("strong")
    uncut = randaugment(flip(random_resized_crop(photographs, own, size=224), own), own)
    assert torch.equal(released.strong(photographs, draws), uncut)
    assert torch.equal(views.strong(photographs, draws), cutout(uncut, own))
    side = min(photographs.shape[-2:])
    boxes = torch.tensor([(n - side) / 2 for n in photographs.shape[-2:]] + [side] * 2).expand(len(photographs), 4)
    assert torch.equal(released.evaluate(photographs, draws), resample(photographs, boxes, 224))
    assert not torch.equal(released.evaluate(photographs, draws), views.evaluate(photographs, draws))
    assert views.changed(ViewSettings()).strong is views.strong
    assert torch.equal(released.weak(photographs, draws), views.weak(photographs, draws))


@pytest.mark.parametrize("name", ["cifar", "digits"])
def test_views_without_cutout_are_the_same_ones_otherwise(name, photographs):
    views, draws = VIEW_SETS[name], Draws(0, 3, torch.arange(len(photographs)))
    plain, changed = (
        v.strong(photographs, draws) for v in (views, views.changed(ViewSettings(cutout=False, whole=True)))
    )
    assert torch.equal(plain, changed) == (name == "digits")  # which have no cutout
    assert views.changed(ViewSettings(whole=True)).evaluate is views.evaluate


def test_an_unknown_set_of_views_is_refused_with_the_nearest():
    with pytest.raises(LecoError, match="'cifra' is not a set of views; did you mean 'cifar'"):
        view_set("cifra")


def test_crops_have_the_wanted_side_or_that_of_the_images(photographs):
    side = photographs.shape[-1]
    for size, expected in ((0, side), (24, 24), (40, 40)):
        views = crop_views(0.35, size)
        for view in (views.weak, views.strong):
            assert view(photographs, draw(len(photographs))).shape[-2:] == (expected, expected)
    assert crop_views(0.35, 24).evaluate(photographs, draw(len(photographs))) is photographs


@pytest.mark.parametrize("least", [0.1, 0.35, 0.8])
def test_a_crop_shows_at_least_its_share_of_the_area(least):
    """Pixels tell their place, so that the shown box can be read off a crop, up to a pixel at each edge."""
    side, n = 128, 300
    seen = cropped(numbered(n, side, side), draw(n), least=least).int()
    tall, wide = (seen[:, channel].flatten(1).amax(1) - seen[:, channel].flatten(1).amin(1) + 3 for channel in (0, 1))
    shares = tall * wide / side**2
    assert shares.min() >= 0.9 * least  # boxes that do not fit are clipped
    assert shares.max() > 0.9
    assert (shares < least + 0.2).any()


def test_half_of_the_crops_are_mirrored():
    seen = cropped(numbered(400, 32, 32), draw(400), least=0.5).int()
    mirrored = (seen[:, 1, 0, 0] > seen[:, 1, 0, -1]).float().mean()
    assert 0.4 < mirrored < 0.6


def test_the_strong_crop_is_another_one_and_distorted_only_on_request(photographs):
    draws = draw(len(photographs))
    plain, distorted = crop_views(0.35, 24), crop_views(0.35, 24, distorted=True)
    assert torch.equal(plain.weak(photographs, draws), distorted.weak(photographs, draws))
    weak_view, strong_view = plain.weak(photographs, draws), plain.strong(photographs, draws)
    assert not torch.equal(weak_view, strong_view)
    own = draws.branch("strong")
    assert torch.equal(strong_view, cropped(photographs, own, least=0.35, size=24))
    expected = cutout(randaugment(strong_view, own), own)
    assert torch.equal(distorted.strong(photographs, draws), expected)

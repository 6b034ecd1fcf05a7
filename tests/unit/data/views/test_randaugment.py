"""Every operation against PIL's, on photographs, on their grey versions and on CIFAR-100."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from leco.data.rng import Draws
from leco.data.views.randaugment import POOL, STRENGTHS, apply_each, randaugment, setting, strong, weak


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


# FixMatch's pool, with PIL: image, level (1 to 9) and sign.
REFERENCE: dict[str, Callable[[Image.Image, int, int], Image.Image]] = {
    "AutoContrast": lambda image, v, s: ImageOps.autocontrast(image),
    "Brightness": lambda image, v, s: ImageEnhance.Brightness(image).enhance(v * 0.9 / 10 + 0.05),
    "Color": lambda image, v, s: ImageEnhance.Color(image).enhance(v * 0.9 / 10 + 0.05),
    "Contrast": lambda image, v, s: ImageEnhance.Contrast(image).enhance(v * 0.9 / 10 + 0.05),
    "Equalize": lambda image, v, s: ImageOps.equalize(image),
    "Identity": lambda image, v, s: image,
    "Posterize": lambda image, v, s: ImageOps.posterize(image, int(v * 4 / 10) + 4),
    "Rotate": lambda image, v, s: image.rotate(s * int(v * 30 / 10)),
    "Sharpness": lambda image, v, s: ImageEnhance.Sharpness(image).enhance(v * 0.9 / 10 + 0.05),
    "ShearX": lambda image, v, s: affine(image, 1, s * v * 0.3 / 10, 0, 0, 1, 0),
    "ShearY": lambda image, v, s: affine(image, 1, 0, 0, s * v * 0.3 / 10, 1, 0),
    "Solarize": lambda image, v, s: ImageOps.solarize(image, 256 - int(v * 256 / 10)),
    "TranslateX": lambda image, v, s: affine(image, 1, 0, int(s * v * 0.3 / 10 * image.width), 0, 1, 0),
    "TranslateY": lambda image, v, s: affine(image, 1, 0, 0, 0, 1, int(s * v * 0.3 / 10 * image.height)),
}
GEOMETRIC = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"}


def with_pil(name: str, images: Tensor, level: int, sign: int) -> Tensor:
    found = []
    for pixels in images.permute(0, 2, 3, 1).numpy():
        image = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
        found.append(np.asarray(REFERENCE[name](image, level, sign)).reshape(pixels.shape))
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2)


def apply(name: str, images: Tensor, level: int = 5, sign: int = 1) -> Tensor:
    return apply_each(images, torch.full((len(images),), setting(name, level, sign)))


def assert_equals_pil(name: str, images: Tensor) -> None:
    for level, sign in STRENGTHS:
        ours, theirs = apply(name, images, level, sign), with_pil(name, images, level, sign)
        assert ours.dtype == torch.uint8
        assert ours.shape == images.shape
        differing = (ours != theirs).any(dim=1).float().mean().item()
        assert differing <= (0.01 if name in GEOMETRIC else 0), (level, sign)


def test_the_pool_is_fixmatchs():
    assert set(POOL) == set(REFERENCE)


@pytest.mark.parametrize("name", REFERENCE)
def test_an_operation_equals_pils_on_photographs(name, photographs):
    assert_equals_pil(name, photographs)


@pytest.mark.parametrize("name", REFERENCE)
def test_an_operation_equals_pils_on_grey_images(name, photographs):
    assert_equals_pil(name, photographs[:, 1:2].contiguous())


@pytest.mark.data
@pytest.mark.parametrize("name", REFERENCE)
def test_an_operation_equals_pils_on_cifar(name, cifar_images):
    assert_equals_pil(name, cifar_images)


@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.parametrize("shape", [(1, 3, 8, 8), (1, 1, 8, 8), (2, 3, 2, 2), (2, 1, 1, 3)])
def test_an_operation_equals_pils_on_tiny_images(name, shape):
    assert_equals_pil(name, torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0)))


def test_images_with_different_settings_are_not_mixed_up(photographs):
    generator = torch.Generator().manual_seed(0)
    images = photographs[torch.randint(len(photographs), (300,), generator=generator)]
    settings = torch.randint(len(POOL) * len(STRENGTHS), (300,), generator=generator)
    together = apply_each(images, settings)
    for i in range(300):
        assert torch.equal(together[i : i + 1], apply_each(images[i : i + 1], settings[i : i + 1]))


def test_half_of_the_turns_apply_an_operation_and_all_are_equally_likely():
    n = 20_000
    seen: Counter[int] = Counter()

    def count(images: Tensor, settings: Tensor) -> Tensor:
        seen.update(settings.tolist())
        return images

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leco.data.views.randaugment.apply_each", count)
        randaugment(torch.zeros(n, 1, 1, 1, dtype=torch.uint8), Draws(0, 0, torch.arange(n)))
    names = list(POOL)
    shares = Counter[str]()
    for found, times in seen.items():
        shares[names[found // len(STRENGTHS)]] += times / (2 * n)
    assert sum(seen.values()) == 2 * n
    assert shares.pop("Identity") == pytest.approx(0.5 + 1 / 28, abs=0.01)
    assert len(shares) == 13
    assert list(shares.values()) == pytest.approx([1 / 28] * 13, abs=0.005)
    rotations = [seen[setting("Rotate", level, sign)] for level, sign in STRENGTHS]
    assert min(rotations) > 0.5 * max(rotations)


def test_parameters_are_those_of_fixmatch():
    assert [POOL["Posterize"].parameter(v, 1) for v in range(1, 10)] == [4, 4, 5, 5, 6, 6, 6, 7, 7]
    assert [POOL["Solarize"].parameter(v, -1) for v in (1, 9)] == [25, 230]
    assert [POOL["Rotate"].parameter(v, -1) for v in (1, 9)] == [-3, -27]
    assert POOL["Brightness"].parameter(9, -1) == pytest.approx(0.86)


def test_the_strong_view_is_not_made_of_the_weak_one(photographs):
    images = photographs[:1].expand(200, -1, -1, -1).contiguous()
    draws = Draws(0, 0, torch.arange(200))
    weak_view, strong_view = weak(images, draws), strong(images, draws)
    # Where only cutout touched an image, its corners tell whether the shifts agree.
    assert (weak_view[:, :, 0, 0] == strong_view[:, :, 0, 0]).all(dim=1).float().mean() < 0.5

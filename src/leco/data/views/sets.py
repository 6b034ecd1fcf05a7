"""Sets of views, by name: weak, strong and evaluation view."""

from dataclasses import dataclass, fields, replace
from functools import partial

from torch import Tensor

from leco.data.rng import Draws
from leco.data.views import features
from leco.data.views.images import View, centre_crop_resize, cutout, flip, random_resized_crop
from leco.data.views.randaugment import randaugment, strong, weak
from leco.errors import LecoError, nearest
from leco.settings import ViewSettings


@dataclass(frozen=True)
class ViewSet:
    """Views of one kind of input, before normalisation."""

    weak: View
    strong: View
    evaluate: View
    uncut: View | None = None  # the strong view without cutout, if it has any
    whole: View | None = None  # the evaluation view of a whole image, if `evaluate` crops

    def changed(self, settings: ViewSettings) -> "ViewSet":
        """Return the views without cutout, or with whole images in evaluation, if `settings` ask for that."""
        strong = self.strong if settings.cutout else self.uncut or self.strong
        return replace(self, strong=strong, evaluate=self.whole or self.evaluate if settings.whole else self.evaluate)

    def resized(self, side: int) -> "ViewSet":
        """Return the same views, with images scaled to a side afterwards."""
        views = {field.name: getattr(self, field.name) for field in fields(self)}
        return ViewSet(**{name: view and partial(resized, view=view, side=side) for name, view in views.items()})


def resized(images: Tensor, draws: Draws, view: View, side: int) -> Tensor:
    """Scale the middle square of a view to a side."""
    return centre_crop_resize(view(images, draws), resize=side, size=side)


def image_views(side: int) -> ViewSet:
    """CIFAR's views for images of another size, with the same shifts of up to an eighth of the side."""
    padding = max(1, side // 8)
    strong_view = partial(strong, padding=padding)
    return ViewSet(partial(weak, padding=padding), strong_view, unchanged, partial(strong_view, cut=False))


def crop_views(least: float, size: int = 0, *, distorted: bool = False) -> ViewSet:
    """Random crops of at least a share of the area, resized to `size`, and flips: what pretrained networks expect.

    The strong view is another crop; if `distorted`, with RandAugment and cutout. A `size` of 0 is that of the images.
    """
    weak_view = partial(cropped, least=least, size=size)

    def strong_view(images: Tensor, draws: Draws) -> Tensor:
        own = draws.branch("strong")
        seen = weak_view(images, own)
        return cutout(randaugment(seen, own), own) if distorted else seen

    return ViewSet(weak_view, strong_view, unchanged)


def cropped(images: Tensor, draws: Draws, least: float, size: int = 0) -> Tensor:
    """Random crop of at least the share `least` of the area, resized to `size`, by default that of the image; flip."""
    return flip(random_resized_crop(images, draws, size=size or images.shape[-1], scale=(least, 1.0)), draws)


def segmentation_views() -> ViewSet:
    """Identity views: `JointCrop` is all the augmentation that HRNet's training has."""
    return ViewSet(unchanged, unchanged, unchanged)


def view_set(name: str) -> ViewSet:
    """Find a set of views by name."""
    if name not in VIEW_SETS:
        raise LecoError(f"{name!r} is not a set of views{nearest(name, VIEW_SETS)}")
    return VIEW_SETS[name]


def feature_views(std: Tensor | float) -> ViewSet:
    """Views of features with a given standard deviation, shared or per dimension."""
    return ViewSet(partial(features.weak, std=std), partial(features.strong, std=std), unchanged)


def unchanged(batch: Tensor, _: Draws) -> Tensor:
    """Return the samples unchanged."""
    return batch


def inat_weak(images: Tensor, draws: Draws) -> Tensor:
    """Random resized crop of 224x224, and flip."""
    return flip(random_resized_crop(images, draws, size=224), draws)


def inat_strong(images: Tensor, draws: Draws, *, cut: bool = True) -> Tensor:
    """Another random resized crop and flip, then RandAugment and cutout."""
    own = draws.branch("strong")
    seen = randaugment(inat_weak(images, own), own)
    return cutout(seen, own) if cut else seen


def inat_evaluate(images: Tensor, _: Draws, *, resize: int = 256) -> Tensor:
    """Centre crop of 224x224 from the image scaled to 256."""
    return centre_crop_resize(images, resize=resize, size=224)


VIEW_SETS = {
    "cifar": ViewSet(weak, strong, unchanged, partial(strong, cut=False)),
    # 8x8: RandAugment, or a shift by four pixels, would destroy the digit, and a mirrored digit is not a digit.
    "digits": ViewSet(unchanged, partial(weak, flip=False, padding=1), unchanged),
    "inat": ViewSet(
        inat_weak, inat_strong, inat_evaluate, partial(inat_strong, cut=False), partial(inat_evaluate, resize=224)
    ),
}

"""The views that a recipe names: what a student sees, what it sees of an unlabelled sample, what is evaluated."""

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from leco.data.rng import Draws
from leco.data.views import features
from leco.data.views.images import View, centre_crop_resize, cutout, flip, random_resized_crop
from leco.data.views.randaugment import randaugment, strong, weak
from leco.errors import LecoError, nearest


@dataclass(frozen=True)
class ViewSet:
    """Views of one kind of input; normalisation follows them."""

    weak: View
    strong: View
    evaluate: View


def image_views(side: int) -> ViewSet:
    """CIFAR's views for images of another size: shifts by up to an eighth of the side, as there."""
    padding = max(1, side // 8)
    return ViewSet(partial(weak, padding=padding), partial(strong, padding=padding), unchanged)


def segmentation_views() -> ViewSet:
    """Views of crops that were made before (`JointCrop`), which is all that HRNet's training does."""
    return ViewSet(unchanged, unchanged, unchanged)


def view_set(name: str) -> ViewSet:
    """Find a set of views by its name."""
    if name not in VIEW_SETS:
        raise LecoError(f"no views are called {name!r}{nearest(name, VIEW_SETS)}")
    return VIEW_SETS[name]


def feature_views(std: Tensor | float) -> ViewSet:
    """Views of features whose standard deviations (one, or one per dimension) are known."""
    return ViewSet(partial(features.weak, std=std), partial(features.strong, std=std), unchanged)


def unchanged(batch: Tensor, _: Draws) -> Tensor:
    """The sample itself."""
    return batch


def inat_weak(images: Tensor, draws: Draws) -> Tensor:
    """A flipped random part of the image, 224x224."""
    return flip(random_resized_crop(images, draws, size=224), draws)


def inat_strong(images: Tensor, draws: Draws) -> Tensor:
    """Another random part, with RandAugment and cutout."""
    own = draws.branch("strong")
    return cutout(randaugment(inat_weak(images, own), own), own)


def inat_evaluate(images: Tensor, _: Draws) -> Tensor:
    """The central 224x224 of the image scaled to 256."""
    return centre_crop_resize(images, resize=256, size=224)


VIEW_SETS = {
    "cifar": ViewSet(weak, strong, unchanged),
    # 8x8: RandAugment, or a shift by four pixels, would lose the digit, and a mirrored digit is none.
    "digits": ViewSet(unchanged, partial(weak, flip=False, padding=1), unchanged),
    "inat": ViewSet(inat_weak, inat_strong, inat_evaluate),
}

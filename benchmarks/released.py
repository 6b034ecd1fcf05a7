"""Our training step against one written in the manner of the paper's released code.

    .venv/bin/python benchmarks/released.py                      # WRN-28-2, 64 + 64 images a step
    .venv/bin/python benchmarks/released.py --model wrn-16-1 --repeats 10

The other side is a plain PyTorch loop, which does what that code does, and no more:

- A view is made by PIL, image by image, in the workers of DataLoaders, one worker a core. FixMatch has loaders of its
  own for the weak and the strong view of old images, besides the one whose images the coarse loss sees. Workers are
  kept, where that code starts them anew in every epoch.
- Each loss makes its own passes: the new images; the old ones for the coarse loss; the old ones again for the
  pseudo-labels, and once more, without gradient, by the teacher or in the weak view. Four passes, where three do.
- Weights and images are laid out as torch does unless told otherwise.
- Correct answers are counted class by class in Python, sample by sample; what is seen of pseudo-labels is kept by
  concatenating tensors, step after step.

Both train the same network by the same SGD with an average of its weights, on the same made-up images. They are timed
in turns of a few steps in one process, so that a busy machine slows both; images/s counts the 64 + 64 of a step.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor

from leco import Ontology
from leco.data.samples import Samples
from leco.methods.method import Method
from made_up import HALF, make_training, network, ontology, samples, split
from views import pil_cutout, pil_randaugment

CLASSES, SAMPLES, TURN = 100, 2_000, 2
THRESHOLD = 0.95
FINISH = [ToTensor(), Normalize((0.5,) * 3, (0.5,) * 3)]
MOVED = [RandomHorizontalFlip(), RandomCrop(32, padding=4, padding_mode="reflect")]
WEAK, STRONG = Compose([*MOVED, *FINISH]), Compose([*MOVED, pil_randaugment, pil_cutout, *FINISH])


class Pictures(Dataset[tuple[list[Tensor], int, int]]):
    """Arrays with a coarse and a fine label, and a view for each of some transforms."""

    def __init__(self, arrays: np.ndarray, coarse: list[int], fine: list[int], transforms: list[Compose]) -> None:
        self.arrays, self.coarse, self.fine, self.transforms = arrays, coarse, fine, transforms

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int, int]:
        image = Image.fromarray(self.arrays[index])
        return [transform(image) for transform in self.transforms], self.coarse[index], self.fine[index]


def endless(pictures: Pictures, workers: int) -> Iterator[tuple[list[Tensor], Tensor, Tensor]]:
    """Shuffled batches, epoch after epoch."""
    loader = DataLoader(pictures, HALF, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True)
    while True:
        yield from loader


class Plain:
    """A loop in the manner of the released code, for `lpl+st-hard/cond` and `lpl+fixmatch/cond`."""

    def __init__(self, method: Method, model: str, pool: Samples, tree: Ontology, workers: int) -> None:
        self.method = method
        self.student, self.average = network(model, tree), network(model, tree)
        self.average.load_state_dict(self.student.state_dict())
        self.teacher = copy.deepcopy(self.student).eval()
        self.sgd = torch.optim.SGD(self.student.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        self.coarse_of = tree.translate(torch.arange(len(tree.newest)), tree.newest.name, tree.versions[0].name)
        self.edges = F.one_hot(self.coarse_of).float()  # fine x coarse
        everything = torch.arange(len(pool))
        arrays = pool.inputs.read(everything).permute(0, 2, 3, 1).contiguous().numpy()
        fine = pool.labels[tree.newest.name].read(everything)
        coarse = self.coarse_of[fine]
        parts = split(tree, len(pool))

        def loader(indices: Tensor, transforms: list[Compose]) -> Iterator[tuple[list[Tensor], Tensor, Tensor]]:
            chosen = arrays[indices.numpy()]
            return endless(Pictures(chosen, coarse[indices].tolist(), fine[indices].tolist(), transforms), workers)

        old = parts.history[0].indices
        self.new, self.old = loader(parts.newest.indices, [STRONG]), loader(old, [STRONG])
        self.pairs = loader(old, [WEAK, STRONG]) if method.pseudo == "fixmatch" else None
        self.correct, self.count = dict.fromkeys(range(CLASSES), 0), dict.fromkeys(range(CLASSES), 0)
        self.seen = torch.empty(0)

    def step(self) -> None:
        """One step, every loss with passes of its own."""
        newest = self.student.versions[-1]
        (new,), _, fine = next(self.new)
        (old,), coarse, _ = next(self.old)
        logits = self.student(new)[newest]
        loss = F.nll_loss(F.log_softmax(logits, dim=1), fine)
        for outputs, labels in ((logits, self.coarse_of[fine]), (self.student(old)[newest], coarse)):
            loss = loss + F.nll_loss(torch.log(F.softmax(outputs, dim=1) @ self.edges), labels)
        if self.pairs is None:
            loss = loss + self.pseudo(self.student(old)[newest], self.teacher, old, coarse, 0.0)
        else:
            (weak, strong), coarse, _ = next(self.pairs)
            loss = loss + self.pseudo(self.student(strong)[newest], self.student, weak, coarse, THRESHOLD)
        self.sgd.zero_grad()
        loss.backward()
        self.sgd.step()
        with torch.no_grad():
            for mine, theirs in zip(self.average.parameters(), self.student.parameters(), strict=True):
                mine.mul_(0.999).add_(theirs, alpha=0.001)
        predicted = logits.argmax(dim=1)
        for label, guess in zip(fine, predicted, strict=True):
            self.count[int(label)] += 1
            self.correct[int(label)] += int(label == guess)

    def pseudo(self, outputs: Tensor, labeller: nn.Module, images: Tensor, coarse: Tensor, least: float) -> Tensor:
        """Cross-entropy with the likeliest class that the coarse label allows."""
        with torch.no_grad():
            guesses = labeller(images)[self.student.versions[-1]]
            possible = torch.exp(guesses - guesses.max(dim=1, keepdim=True).values) * self.edges.T[coarse]
            probs = possible / possible.sum(dim=1, keepdim=True)
        confidence, labels = probs.max(dim=1)
        self.seen = torch.cat([self.seen, confidence])
        agreed = torch.tensor([float(self.coarse_of[label]) for label in guesses.argmax(dim=1)])
        self.seen = torch.cat([self.seen, agreed])
        return (F.cross_entropy(outputs, labels, reduction="none") * (confidence >= least)).mean()


def main() -> None:
    """Time both sides in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wrn-28-2")
    parser.add_argument("--repeats", type=int, default=5, help=f"turns of {TURN} steps")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch, and workers")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tree = ontology(CLASSES)
    pool = samples(tree, SAMPLES)
    for name in ("lpl+fixmatch/cond", "lpl+st-hard/cond"):
        method = Method.parse(name)
        plain = Plain(method, options.model, pool, tree, options.threads)
        steps = make_training(method, options.model, pool, tree).run()
        ours, theirs = [], []
        for _ in range(options.repeats + 1):
            started = time.perf_counter()
            for _ in range(TURN):
                next(steps)
            middle = time.perf_counter()
            for _ in range(TURN):
                plain.step()
            ours.append((middle - started) / TURN)
            theirs.append((time.perf_counter() - middle) / TURN)
        mine, other = statistics.median(ours[1:]), statistics.median(theirs[1:])
        print(
            f"{name}, {options.model}, {options.threads} thread(s): ours {2 * HALF / mine:,.0f} images/s, "
            f"plain {2 * HALF / other:,.0f} images/s, ratio {other / mine:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

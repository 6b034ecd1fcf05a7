"""Our training step compared with a reimplementation of the paper's released code.

    .venv/bin/python benchmarks/released.py                      # WRN-28-2, 64 + 64 images per step
    .venv/bin/python benchmarks/released.py --model wrn-16-1
    .venv/bin/python benchmarks/released.py --keep-workers       # favours the other side

The other side is a plain PyTorch loop that does what that code (its latest version) does, and nothing else:

- Views are made by PIL, image by image, in the workers of DataLoaders, one worker per core (four in that code).
  FixMatch has a separate loader for the weak and the strong view of old images, besides that of the coarse loss.
  Loaders restart their workers in every epoch, the default of DataLoaders, except with `--keep-workers`.
- Each loss has its own forward passes: the new images; the old ones for the coarse loss; the old ones again for the
  pseudo-labels; and twice, without gradient, the same images through the teacher or in the weak view: first for the
  threshold and statistics, then for the pseudo-labels themselves. Five passes, where three suffice.
- Weights and images have torch's default memory format.
- Correct predictions are counted per class in Python, sample by sample; statistics of pseudo-labels are collected by
  concatenating tensors at every step.

Both train the same network with the same SGD and weight averaging, on the same synthetic images, 1,000 new and 1,000
old ones. Each runs in its own process, since `leco` tunes the memory allocator of its process, and they take turns of
an epoch, so that other load affects both; images/s counts the 64 + 64 images of a step.
"""

import argparse
import copy
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

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

CLASSES, SAMPLES = 100, 2_000
EPOCH = SAMPLES // 2 // HALF  # steps
WARM_UP = 2
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


def endless(pictures: Pictures, workers: int, keep: bool) -> Iterator[tuple[list[Tensor], Tensor, Tensor]]:
    """Shuffled batches, epoch after epoch; workers are forked, the default on Linux, although this process is not."""
    kept = {"persistent_workers": keep, "num_workers": workers, "multiprocessing_context": "fork"}
    loader = DataLoader(pictures, HALF, shuffle=True, drop_last=True, **kept)
    while True:
        yield from loader


class Plain:
    """A loop like that of the released code, for `lpl+st-hard/cond` and `lpl+fixmatch/cond`."""

    def __init__(self, method: Method, model: str, pool: Samples, tree: Ontology, workers: int, keep: bool) -> None:
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
            chosen = Pictures(arrays[indices.numpy()], coarse[indices].tolist(), fine[indices].tolist(), transforms)
            return endless(chosen, workers, keep)

        old = parts.history[0].indices
        self.new, self.old = loader(parts.newest.indices, [STRONG]), loader(old, [STRONG])
        self.pairs = loader(old, [WEAK, STRONG]) if method.pseudo == "fixmatch" else None
        self.correct, self.count = dict.fromkeys(range(CLASSES), 0), dict.fromkeys(range(CLASSES), 0)
        self.seen = torch.empty(0)

    def step(self) -> None:
        """Make one step, with separate passes for every loss."""
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
        guesses, probs = self.guess(labeller, images, coarse)
        confidence = probs.max(dim=1).values
        agreed = torch.tensor([float(self.coarse_of[label]) for label in guesses.argmax(dim=1)])
        self.seen = torch.cat([self.seen, confidence, agreed])
        labels = self.guess(labeller, images, coarse)[1].argmax(dim=1)
        return (F.cross_entropy(outputs, labels, reduction="none") * (confidence >= least)).mean()

    @torch.no_grad()
    def guess(self, labeller: nn.Module, images: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and probabilities given the coarse label."""
        guesses = labeller(images)[self.student.versions[-1]]
        possible = torch.exp(guesses - guesses.max(dim=1, keepdim=True).values) * self.edges.T[coarse]
        return guesses, possible / possible.sum(dim=1, keepdim=True)


class Side:
    """One of the two sides, in a process that waits for requests to make steps."""

    def __init__(self, plain: bool, name: str, options: argparse.Namespace) -> None:
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=answer, args=(theirs, plain, name, options))
        self.process.start()

    def seconds(self, steps: int) -> float:
        """Return the duration of some steps."""
        self.line.send(steps)
        taken: float = self.line.recv()
        return taken

    def end(self) -> None:
        """End the process."""
        self.line.send(0)
        self.process.join()


def answer(line: Connection, plain: bool, name: str, options: argparse.Namespace) -> None:
    """Make the requested number of steps, send their duration, and repeat until zero are requested."""
    torch.set_num_threads(options.threads)
    method, tree = Method.parse(name), ontology(CLASSES)
    pool = samples(tree, SAMPLES)
    if plain:
        step = Plain(method, options.model, pool, tree, options.threads, options.keep_workers).step
    else:
        step = make_training(method, options.model, pool, tree).run().__next__
    while count := line.recv():
        started = time.perf_counter()
        for _ in range(count):
            step()
        line.send(time.perf_counter() - started)


def main() -> None:
    """Time both sides in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="wrn-28-2")
    parser.add_argument("--repeats", type=int, default=3, help=f"turns of an epoch, {EPOCH} steps")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads, and workers")
    parser.add_argument("--keep-workers", action="store_true", help="loaders of the other side keep their workers")
    options = parser.parse_args()
    for name in ("lpl+fixmatch/cond", "lpl+st-hard/cond"):
        sides = [Side(plain, name, options) for plain in (False, True)]
        for side in sides:
            side.seconds(WARM_UP)
        turns = [[side.seconds(EPOCH) for side in sides] for _ in range(options.repeats)]
        for side in sides:
            side.end()
        mine, other = (statistics.median(times) / EPOCH for times in zip(*turns, strict=True))
        print(
            f"{name}, {options.model}, {options.threads} thread(s): ours {2 * HALF / mine:,.0f} images/s, "
            f"plain {2 * HALF / other:,.0f} images/s, ratio {other / mine:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

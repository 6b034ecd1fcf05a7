"""Nothing waits for a GPU in a step, and no tensor is on the wrong device; shown on a pretended one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.pretended import GPU, PretendedFabric, pretended_gpu
from torch import Tensor, nn

from leco import LecoError, Ontology
from leco.data.batches import Steps
from leco.data.periods import Annotated, Part
from leco.data.rng import Draws
from leco.data.samples import InMemory, Samples
from leco.data.views.images import Normalisation
from leco.data.views.segmentation import JointCrop, photometric
from leco.data.views.sets import ViewSet, crop_views, feature_views, segmentation_views, view_set
from leco.evaluation.evaluate import Candidate, Predictor, judge
from leco.experiments.embedding import Embedder
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.recording import recording
from leco.experiments.run import build_network
from leco.experiments.stages import plan
from leco.experiments.timing import _seconds_of_step
from leco.experiments.train import periods_of
from leco.methods.method import ALL_METHODS, Method
from leco.methods.terms import terms
from leco.modalities import MODALITIES
from leco.models import Network, build_backbone
from leco.models.dense.network import build_segmenter
from leco.placement import send, sent_ahead
from leco.settings import Settings
from leco.training import finish
from leco.training.loop import Job, Training

TREE = Ontology.from_taxonomy(
    "t", ["v0", "v1", "v2"], [("a", "aa", "aaa"), ("a", "aa", "aab"), ("a", "ab", "aba"), ("b", "ba", "baa")]
)
COUNT, SIDE = 24, 32
METHODS = [str(method) for method in ALL_METHODS]
NORMALISE = Normalisation(torch.full((3,), 0.5), torch.full((3,), 0.2))


def samples(shape: tuple[int, ...], *, masks: bool = False, tree: Ontology = TREE) -> Samples:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(256, (COUNT, *shape), generator=generator, dtype=torch.uint8)
    fine = torch.randint(len(tree.newest), (COUNT, *(shape[1:] if masks else ())), generator=generator)
    labels = {v.name: InMemory(tree.translate(fine, tree.newest.name, v.name).short()) for v in tree.versions}
    return Samples(InMemory(inputs.float() if len(shape) == 1 else inputs), labels)


def dealt(tree: Ontology) -> Annotated:
    parts = [Part(v.name, ids) for v, ids in zip(tree.versions, torch.arange(COUNT).chunk(3), strict=False)]
    return Annotated(parts[-1], tuple(parts[:-1]), Part(tree.newest.name, torch.empty(0, dtype=torch.int64)))


def make_training(
    method: str,
    pool: Samples,
    views: ViewSet,
    build: Callable[[Any], nn.Module],
    *,
    tree: Ontology = TREE,
    normalise: Callable[[Tensor], Tensor] = NORMALISE,
    crop: JointCrop | None = None,
    **parts: Any,
) -> Training:
    chosen = Method.parse(method)
    versions = tree.versions if chosen.coarse == "joint" else (tree.newest,)
    teacher = build((tree.newest,)) if chosen.needs_teacher else None
    settings = Settings().change(optimiser={"learning_rate": (0.05,)}).change(**parts)
    steps = Steps(pool, dealt(tree), tree.evidence(), 4, 0, steps=100, crop=crop)
    summands = terms(chosen, settings.pseudo_labels, settings.history, settings.loss)
    fabric: Any = PretendedFabric()
    job = Job(steps, summands, views, normalise, "finetune", settings, 0, teacher, fabric)
    return Training(job, build(versions), None)


def image_network(versions: Any) -> Network:
    return Network(build_backbone("wrn-10-1", (3, SIDE, SIDE)), versions)


def assert_no_waits(make: Callable[[], Training]) -> None:
    """The second step waits for nothing: the first fills caches, and later ones are read together."""
    with pretended_gpu() as gpu:
        training = make()
        with recording(training, None, Machine()) as record:
            steps = training.run()
            record(next(steps))
            gpu.waits.clear()
            record(next(steps))
        assert gpu.waits == gpu.races == []
        assert {parameter.device for parameter in training.network.parameters()} == {GPU}
        assert {parameter.device for parameter in training.average.model.parameters()} == {GPU}
        training.checkpoint()
        read = [wait for wait in gpu.waits if "readings.py" in wait]
        assert len(read) == 1  # the losses of both steps, at once


@pytest.mark.parametrize("method", METHODS)
def test_a_step_on_images_waits_for_nothing(method):
    assert_no_waits(lambda: make_training(method, samples((3, SIDE, SIDE)), view_set("cifar"), image_network))


@pytest.mark.parametrize("method", METHODS)
def test_a_step_on_masks_waits_for_nothing(method):
    def network(versions: Any) -> nn.Module:
        return build_segmenter("tiny", versions)

    views = segmentation_views()
    views = ViewSet(views.weak, photometric, views.evaluate) if "fixmatch" in method else views
    crop = JointCrop(SIDE, SIDE, (0.5, 2.1))
    pool = samples((3, SIDE, SIDE), masks=True)
    assert_no_waits(lambda: make_training(method, pool, views, network, crop=crop))


@pytest.mark.parametrize("method", ["lpl", "lpl+fixmatch/cond"])
def test_a_step_on_vectors_waits_for_nothing(method):
    def network(versions: Any) -> Network:
        return Network(build_backbone("mlp", (8,)), versions)

    views = feature_views(torch.full((8,), 2.0))
    assert_no_waits(lambda: make_training(method, samples((8,)), views, network, normalise=lambda x: x))


def test_a_step_of_several_processes_waits_for_nothing(monkeypatch):
    """Losses are summed over processes in every step; whether to stop is asked when they are read."""
    sums, views = [], feature_views(torch.full((8,), 2.0))
    monkeypatch.setattr("torch.distributed.all_reduce", sums.append)
    monkeypatch.setattr(PretendedFabric, "world_size", 2)

    def network(versions: Any) -> Network:
        return Network(build_backbone("mlp", (8,)), versions)

    assert_no_waits(lambda: make_training("lpl+fixmatch/cond", samples((8,)), views, network, normalise=lambda x: x))
    assert [each.device.type for each in sums] == ["cuda"] * 2


MANY = Ontology.from_taxonomy("many", ["v0", "v1"], [(f"a{k // 200}", f"b{k}") for k in range(20_000)])


@pytest.mark.parametrize("method", ["lpl+st-soft/cond", "lpl+st-hard/filter", "lpl+fixmatch/cond"])
def test_a_step_with_many_classes_waits_for_nothing(method):
    pool = samples((3, SIDE, SIDE), tree=MANY)
    assert_no_waits(lambda: make_training(method, pool, view_set("cifar"), image_network, tree=MANY))


@pytest.mark.parametrize(
    ("settings", "views"),
    [
        ({"optimiser": {"name": "adamw", "learning_rate": (1e-3,), "clip": 1.0}}, view_set("cifar")),
        ({"loss": {"adjust": 1.0, "label_smoothing": 0.1}}, crop_views(0.35, 24, distorted=True)),
        ({"network": {"frozen_norm": True, "frozen_layers": 0.3}, "average": {"norm": True}}, view_set("cifar")),
        ({"batches": {"parts": 2}}, view_set("cifar")),
        ({"network": {"recompute": True}}, view_set("cifar")),
    ],
    ids=["adamw", "loss", "frozen", "parts", "recompute"],
)
def test_a_step_with_other_settings_waits_for_nothing(settings, views):
    pool = samples((3, SIDE, SIDE))
    assert_no_waits(lambda: make_training("lpl+fixmatch/cond", pool, views, image_network, **settings))


def predictor(modality: str, network: nn.Module) -> Predictor:
    return Predictor(network.to(GPU).eval(), MODALITIES[modality], NORMALISE, TREE, GPU, SIDE)


@pytest.mark.parametrize(("modality", "masks"), [("classification", False), ("segmentation", True)])
def test_an_evaluation_reads_the_device_once(modality, masks):
    pool = samples((3, SIDE, SIDE), masks=masks)
    with pretended_gpu() as gpu:
        network = build_segmenter("tiny", (TREE.newest,)) if masks else image_network((TREE.newest,))
        ours = predictor(modality, network)
        gpu.waits.clear()
        candidate = Candidate(TREE, pool, lambda inputs, _: ours.on_device(inputs))
        *_, judged = judge([candidate], torch.arange(COUNT), TREE, batch_size=5)
        assert gpu.waits == []
        with pytest.raises(LecoError, match="NaN or infinite"):  # no values, so none are known to be finite
            judged.matrices(0)
        assert len(gpu.waits) == 1


def test_a_prediction_and_an_embedding_are_read_once():
    images = samples((3, SIDE, SIDE)).inputs.read(torch.arange(5))
    with pretended_gpu() as gpu:
        network = image_network((TREE.newest,))
        ours = predictor("classification", network)
        embedder = Embedder(network.backbone, "", view_set("inat").evaluate, NORMALISE, "")
        gpu.waits.clear()
        assert ours.probs(images).device.type == "cpu"
        assert len(gpu.waits) == 1
        features = embedder.features(send(images, GPU), torch.arange(5))
        assert features.device.type == "cpu"
        assert len(gpu.waits) == 2


def test_steps_are_timed_until_they_are_done(tmp_path):
    """Otherwise, estimates on a GPU would be of the time to queue them."""
    wanted = experiment("digits-leco", {"method": "lpl"}, {"training.network.backbone": "wrn-10-1"})
    periods = periods_of(wanted, tmp_path)
    stage = plan(wanted, periods).stages[-1]
    with pretended_gpu() as gpu:
        network, fabric = build_network(stage, periods), PretendedFabric()
        _seconds_of_step(stage, periods, fabric, (network, None), size=4)  # type: ignore[arg-type]
        assert len([wait for wait in gpu.waits if "readings.py" in wait]) == 2  # a warm-up, and a step


@pytest.mark.parametrize("method", ["joint+st-soft/filter", "lpl+fixmatch/cond"])
def test_a_step_an_evaluation_and_a_head_need_no_float64_on_the_device(method, monkeypatch):
    monkeypatch.setattr("leco.placement._WITHOUT_FLOAT64", {"cuda"})
    pool, views = samples((3, SIDE, SIDE)), view_set("cifar")
    with pretended_gpu() as gpu:
        gpu.has_float64 = False
        with pytest.raises(TypeError, match="float64"):
            torch.zeros(2, device=GPU).double()
        training = make_training(method, pool, views, image_network, loss={"adjust": 1.0})
        next(training.run())
        ours = predictor("classification", image_network((TREE.newest,)))
        candidate = Candidate(TREE, pool, lambda inputs, _: ours.on_device(inputs))
        list(judge([candidate], torch.arange(COUNT), TREE, batch_size=5))
        given: list[Tensor] = []
        finish.fit_head(training.network, training.job, lambda *parts: given.extend(parts))
        assert {part.device.type for part in given} == {"cpu"}


def test_the_next_batch_is_copied_while_a_step_computes():
    with pretended_gpu() as gpu:
        kernels = gpu.stream
        training = make_training("lpl+fixmatch/cond", samples((3, SIDE, SIDE)), view_set("cifar"), image_network)
        steps = training.run()
        for step in (1, 2):
            next(steps)
            streams = [stream for stream, shape in gpu.copies if shape[1:] == (3, SIDE, SIDE)]
            assert len(streams) == 2 * (step + 1)  # new samples and history, also those of the next step
        assert len({*streams}) == 1
        assert kernels not in streams[0].reached  # no copy waits for kernels
        assert streams[0] in kernels.reached
        assert gpu.races == []


def test_each_item_is_sent_once_and_in_order_also_if_there_is_one_or_none():
    with pretended_gpu() as gpu:
        for count in range(4):
            gpu.copies.clear()
            given = (torch.zeros(number) for number in range(1, count + 1))
            sent = list(sent_ahead(given, GPU, lambda tensor, send: send(tensor)))
            assert [tensor.shape for tensor in sent] == [shape for _, shape in gpu.copies]
            assert [len(tensor) for tensor in sent] == list(range(1, count + 1))
            assert [(2 * tensor).device for tensor in sent] == [GPU] * count
        assert gpu.races == []


def test_what_would_race_is_noticed():
    with pretended_gpu() as gpu:
        kernels, copies = gpu.stream, torch.cuda.Stream(GPU)
        with torch.cuda.stream(copies):
            values = torch.ones(3).to(GPU, non_blocking=True)
        values.record_stream(kernels)
        values + 1
        assert gpu.races == ["aten::add does not wait for a tensor of another stream"]
        kernels.wait_stream(copies)
        values + 1
        assert len(gpu.races) == 1
        with torch.cuda.stream(copies):
            values = torch.ones(3).to(GPU, non_blocking=True)
        kernels.wait_stream(copies)
        values + 1
        assert gpu.races[1:] == ["aten::add uses memory that another stream may reuse"]


def test_what_would_wait_is_noticed():
    with pretended_gpu() as gpu:
        values = torch.zeros(4, device=GPU)
        for wait in (
            values.sum().item,
            values.tolist,
            lambda: bool(values.any()),
            lambda: values[values > 0],
            lambda: torch.bincount(values.long()),
            values.unique,
        ):
            with pytest.raises((RuntimeError, NotImplementedError)):
                wait()
        values.cpu(), torch.ones(3).to(GPU), torch.tensor([1.0], device=GPU)
        assert len(gpu.waits) == 9
        torch.ones(3).to(GPU, non_blocking=True)
        assert len(gpu.waits) == 9
        with pytest.raises(RuntimeError):
            values + torch.ones(4)


@pytest.mark.parametrize(("view", "most"), [("cifar", 395 // 2), ("crops", 482 // 2)])
def test_a_strong_view_is_made_in_half_as_many_kernels_as_once(view, most):
    """It took 395 kernels for CIFAR's view, and 482 for crops, when random numbers were drawn on the device."""
    views = view_set("cifar") if view == "cifar" else crop_views(0.35, 24, distorted=True)
    with pretended_gpu() as gpu:
        images, counts = torch.zeros(64, 3, SIDE, SIDE, dtype=torch.uint8, device=GPU), []
        for step in range(7):
            gpu.kernels.clear()
            views.strong(images, Draws(0, step, torch.arange(64), GPU))
            counts.append(len(gpu.kernels))
        assert gpu.waits == []
    assert sorted(counts[1:])[3] <= most

"""Names of devices, on machines with accelerators that are pretended."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from leco import LecoError
from leco.devices import accelerator, check_precision, make_fabric, place, resolve_device
from leco.experiments.grid import Graph, memory_of_step
from leco.experiments.pools import gpus
from leco.experiments.ray import gpu_share, run_on_ray
from leco.methods.method import Method
from leco.placement import send
from leco.settings import Settings

Machine = Callable[[str, int], None]


@pytest.fixture
def machine(monkeypatch) -> Machine:
    """A function that pretends so many accelerators of a kind."""

    def pretend(kind: str, count: int) -> None:
        monkeypatch.setattr("torch.cuda.is_available", lambda: kind == "cuda")
        monkeypatch.setattr("torch.cuda.device_count", lambda: count)
        monkeypatch.setattr("torch.accelerator.is_available", lambda: kind != "cpu")
        monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device(kind))
        monkeypatch.setattr("torch.accelerator.device_count", lambda: count)
        make_fabric.cache_clear()

    yield pretend
    make_fabric.cache_clear()


@pytest.mark.parametrize(
    ("kind", "count", "names"),
    [
        ("cpu", 0, {"auto": "cpu", "cpu": "cpu", "cpu:0": "cpu"}),
        ("cuda", 2, {"auto": "cuda", "cuda": "cuda", "cuda:1": "cuda:1", "cpu": "cpu"}),
        ("mps", 1, {"auto": "mps", "mps": "mps", "mps:0": "mps:0"}),
        ("xpu", 3, {"auto": "xpu", "xpu:2": "xpu:2", "cpu": "cpu"}),
    ],
)
def test_a_name_means_a_device_of_this_machine(machine, kind, count, names):
    machine(kind, count)
    assert {name: str(resolve_device(name)) for name in names} == names
    assert (accelerator() is None) == (kind == "cpu")


@pytest.mark.parametrize(
    ("kind", "count", "name", "message"),
    [
        ("cpu", 0, "cuda", "device: this machine has no cuda device that torch can use; use cpu or auto"),
        ("mps", 1, "cuda:0", "device: this machine has no cuda device that torch can use; use mps or auto"),
        ("cuda", 2, "cuda:2", "'cuda:2' is not a device: this machine has 2, cuda:0 to cuda:1"),
        ("cuda", 1, "cuda:-1", "'cuda:-1' is not a device: this machine has one"),
        ("cuda", 1, "cuda:" + "9" * 5_000, "is not a device: this machine has one"),
        ("mps", 1, "mps:1", "'mps:1' is not a device: this machine has one"),
        ("cuda", 1, "cudo", "'cudo' is not a device; did you mean 'cuda'?"),
        ("cpu", 0, "", "'' is not a device; valid: 'auto', 'cpu', 'cuda', 'mps'"),
    ],
)
def test_a_device_that_is_not_there_is_refused(machine, kind, count, name, message):
    machine(kind, count)
    with pytest.raises(LecoError) as refused:
        resolve_device(name)
    assert message in str(refused.value)


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_auto_takes_the_accelerator_that_is_there_for_one_process(machine, kind, monkeypatch):
    machine(kind, 1)
    fabric = make_fabric("auto", "auto")
    assert (fabric.device.type, fabric.world_size) == (kind, 1)
    assert make_fabric("cpu").device.type == "cpu"
    monkeypatch.setenv("WORLD_SIZE", "2")
    make_fabric.cache_clear()
    with pytest.raises(LecoError, match=f"device: {kind} is one device, for one process, not 2"):
        make_fabric(kind)


@pytest.mark.parametrize(
    ("precision", "kind"), [("16-mixed", "cpu"), ("16-mixed", "mps"), ("bf16-mixed", "mps"), ("bf16-mixed", "xpu")]
)
def test_half_precision_is_refused_where_it_is_not_known_to_work(precision, kind):
    with pytest.raises(LecoError, match=f"training.network.precision: {precision} is for"):
        check_precision(kind, precision)


@pytest.mark.parametrize(("precision", "rounds"), [("32-true", False), ("32-tf32", True), ("bf16-mixed", True)])
def test_gpus_round_the_factors_of_products_and_convolutions_only_if_the_precision_says_so(
    machine, precision, rounds, monkeypatch
):
    machine("cuda", 1)
    monkeypatch.setattr("leco.devices.Fabric", lambda **_: SimpleNamespace(launch=lambda: None))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not rounds)
    before = torch.get_float32_matmul_precision()
    try:
        make_fabric("cuda", precision)
        assert torch.backends.cudnn.allow_tf32 == torch.backends.cuda.matmul.allow_tf32 == rounds
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_grid_uses_the_gpu_that_is_named_and_ray_chooses_its_own(machine, monkeypatch):
    machine("cuda", 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert (gpus("cuda:1"), gpus("auto"), gpus("cpu")) == (["5"], ["4", "5", "6"], [])
    with pytest.raises(LecoError, match="--device cuda:1: ray chooses the GPU of each training"):
        gpu_share("cuda:1", {"GPU": 3.0})
    with pytest.raises(LecoError, match="--device cuda: the cluster has no GPU; use auto"):
        gpu_share("cuda", {"CPU": 3.0})


@pytest.mark.parametrize(("jobs", "share"), [(None, 1), (3, 1), (4, 1 / 2), (6, 1 / 2), (7, 1 / 3)])
def test_more_trainings_than_gpus_share_them_on_ray(jobs, share):
    assert gpu_share("auto", {"GPU": 3.0}, jobs) == gpu_share("cuda", {"GPU": 3.0}, jobs) == share


class PretendedRay:
    """A cluster with one GPU that ends tasks in their order, and notes their shares, and the most that run at once."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self) -> None:
        self.shares: dict[str, float] = {}
        self.most = 0

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0, "GPU": 1.0}

    def remote(self, **_: object) -> Callable[[Callable[..., object]], SimpleNamespace]:
        return lambda call: SimpleNamespace(options=lambda num_gpus: self.options(call, num_gpus))

    def options(self, call: Callable[..., object], num_gpus: float) -> SimpleNamespace:
        def start(experiment: object, name: str, *more: object, **options: object) -> str | tuple[int, int]:
            if call is memory_of_step:
                return BYTES[name], 24 * 2**30
            self.shares[name] = num_gpus
            return name

        return SimpleNamespace(remote=start)

    def wait(self, tasks: list[str], num_returns: int) -> tuple[list[str], list[str]]:
        self.most = max(self.most, len(tasks))
        return tasks[:num_returns], tasks[num_returns:]

    def get(self, found: str | tuple[int, int]) -> str | tuple[int, int]:
        if found == (0, 24 * 2**30):
            raise RuntimeError("out of memory")
        return found

    def shutdown(self) -> None: ...


BYTES = {"small": 2**30, "middle": 6 * 2**30, "large": 20 * 2**30, "unknown": 0}  # of a step


@pytest.mark.parametrize(
    ("jobs", "most", "shares"),
    [
        (2, 2, {"heads": 0.25, "small": 0.5, "middle": 0.5, "large": 0.5, "unknown": 0.5}),
        (None, 5, {"heads": 0.25, "small": 0.25, "middle": 0.5, "large": 1, "unknown": 1}),
    ],
)
def test_trainings_on_ray_have_the_share_of_a_gpu_that_they_need(jobs, most, shares, tmp_path, monkeypatch):
    cluster = PretendedRay()
    monkeypatch.setattr("leco.experiments.ray._start", lambda _: cluster)
    stages = {name: stage(number, name == "heads") for number, name in enumerate(shares)}
    graph = Graph((), stages, dict.fromkeys(stages, SimpleNamespace(benchmark="digits-leco")), len(stages))
    *_, progress = run_on_ray(graph, tmp_path, tmp_path / "runs", jobs)
    assert sorted(progress.done) == sorted(stages)
    assert cluster.shares == shares
    assert cluster.most == most


def stage(number: int, on_features: bool) -> SimpleNamespace:
    """A stage like no other."""
    training = Settings().change(batches={"size": 4 + 2 * number})
    kind = {"method": Method(), "strategy": "finetune", "period": 0, "previous": (), "teacher": None}
    return SimpleNamespace(training=training, on_features=on_features, **kind)


class Recorder:
    """Stands for a tensor or a network, and notes how it is moved."""

    device, dtype = torch.device("cpu"), torch.float64

    def __init__(self) -> None:
        self.moves: list[tuple[object, ...]] = []

    def float(self) -> "Recorder":
        self.moves.append((torch.float32,))
        return self

    def to(self, *where: object, **how: object) -> "Recorder":
        self.moves.append((*where, *how.values()))
        return self


def test_apples_gpus_get_neither_64_bits_nor_another_memory_format_nor_copies_that_do_not_wait():
    tensor, network = Recorder(), Recorder()
    send(tensor, torch.device("mps"))  # type: ignore[arg-type]
    place(network, torch.device("mps"))  # type: ignore[arg-type]
    assert tensor.moves == [(torch.float32,), (torch.device("mps"), False)]
    assert network.moves == [(torch.device("mps"), torch.contiguous_format)]

"""Names of devices, on machines with accelerators that are pretended."""

from collections.abc import Callable

import pytest
import torch

from leco import LecoError
from leco.devices import accelerator, check_precision, make_fabric, place, resolve_device
from leco.experiments.grid import gpus
from leco.experiments.ray import gpu_share
from leco.placement import send

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

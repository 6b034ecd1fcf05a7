"""`leco grid`: distinct stages, in several processes, some of which fail or are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.commands import assert_refused, leco, leco_process

from leco.experiments import grid as grid_module
from leco.experiments import memory, pools
from leco.experiments.experiment import experiment
from leco.experiments.grid import Graph, Progress
from leco.experiments.memory import StepMemory
from leco.experiments.stages import Stage

grid = partial(leco, "grid", "digits-leco", "--size", 40, "--set", "training.batches.steps=8", "--jobs", 2)


def stages(runs: Path) -> set[str]:
    return {path.name for path in (runs / "stages").iterdir()}


def test_a_grid_trains_each_distinct_stage_once_and_can_be_extended(tmp_path):
    runs = tmp_path / "runs"
    first = grid("--methods", "ce,lpl+st-hard", "--seeds", "0-1", "--runs", runs)
    assert first.returncode == 0, first.stderr
    assert "4 experiments (2 cells): 10 stages needed, 6 distinct, 0 done, 6 to train" in first.stdout
    assert "6 trainings in" in first.stdout
    assert len(stages(runs)) == 6
    more = grid(
        "--methods", "ce,lpl+st-hard,lpl", "--annotations", "label-new,all-fine", "--seeds", "0", "--runs", runs
    )
    assert "3 done, 3 to train" in more.stdout  # lpl, and all-fine with ce and lpl
    assert len(stages(runs)) == 9
    again = grid("--methods", "ce,lpl+st-hard", "--seeds", "0-1", "--runs", runs)
    assert "0 to train" in again.stdout


def test_a_head_start_makes_other_stages_except_for_the_first_period(tmp_path):
    call = ["grid", "digits-leco", "--methods", "ce", "--seeds", "0", "--dry-run"]
    settings = ["--set", "training.batches.steps=2", "--set", "training.batches.size=8"]
    assert leco(*call[:-1], *settings, "--jobs", 1, cwd=tmp_path).returncode == 0
    assert "2 distinct, 2 done" in leco(*call, *settings, cwd=tmp_path).stdout
    assert "2 distinct, 1 done" in leco(*call, *settings, "--head-start", cwd=tmp_path).stdout


def test_the_backbone_is_an_option(tmp_path):
    call = ["grid", "digits-leco", "--methods", "ce", "--seeds", "0", "--dry-run"]
    assert leco(*call, "--backbone", "wrn-10-1", cwd=tmp_path).returncode == 0
    twice = leco(*call, "--backbone", "wrn-10-1", "--set", "training.network.backbone=mlp", cwd=tmp_path)
    assert "--set training.network.backbone: is given 2 times" in twice.stderr
    assert "'wrn-10' is not a backbone" in leco(*call, "--backbone", "wrn-10", cwd=tmp_path).stderr


def test_a_failure_stops_only_what_needs_it(tmp_path):
    result = grid(
        *(
            "--methods",
            "ce,lpl+st-hard",
            "--strategies",
            "finetune,scratch",
            "--seeds",
            "0",
            "--runs",
            tmp_path / "runs",
        ),
        *("--set", "training.optimiser.learning_rate=1e30"),
    )
    assert result.returncode == 2
    assert "the loss of the term 'ce' is" in result.stdout.replace("\n", " ")
    # TP0 and the teacher from scratch fail; what starts from them is not tried.
    assert "2 trainings failed; 3 that depend on them were skipped" in result.stderr


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_stage_continues(tmp_path):
    command = [sys.executable, "-m", "leco", "grid", "digits-leco", "--size", "40", "--methods", "ce", "--seeds", "0-1"]
    command += ["--jobs", "2", "--set", "training.batches.steps=400", "--runs", str(tmp_path / "runs")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LECO_SAVE_EVERY": "0.2"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(process, tmp_path, "runs/partial/*/checkpoint-*")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [c for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]
    os.kill(int(workers[0]), signal.SIGKILL)
    _, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    assert len(stages(tmp_path / "runs")) == 4
    assert list((tmp_path / "runs" / "partial").iterdir()) == []


@pytest.mark.slow
def test_a_grid_that_is_asked_to_end_saves_and_continues(tmp_path):
    """SIGTERM reaches the command alone, which passes it on to its workers."""
    command = [sys.executable, "-m", "leco", "grid", "digits-leco", "--size", "40", "--methods", "ce", "--seeds", "0-1"]
    command += ["--jobs", "2", "--set", "training.batches.steps=400", "--runs"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "runs"], env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_for(process, tmp_path, "runs/partial/*/metrics.jsonl")
    process.terminate()
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    assert list(tmp_path.glob("runs/partial/*/checkpoint-*")) + list(tmp_path.glob("runs/stages/*"))
    for runs in ("runs", "whole"):
        subprocess.run([*command, runs], env=environment, cwd=tmp_path, check=True, capture_output=True, timeout=280)
    for name in stages(tmp_path / "whole"):
        one, other = (tmp_path / runs / "stages" / name / "model.safetensors" for runs in ("runs", "whole"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_store_that_cannot_be_written_to_is_named(engine, tmp_path, monkeypatch):
    if engine == "ray":
        pytest.importorskip("ray", reason="ray is an extra")
        monkeypatch.setenv("RAY_TMPDIR", "/tmp")  # the paths of sockets must be short
    call = [*grid.args, "--methods", "ce", "--seeds", "0", "--runs", "/proc/none", "--engine", engine]
    result = (leco if engine == "local" else leco_process)(*call, cwd=tmp_path)  # ray leaves sockets in a process
    assert result.returncode == 2
    assert "/proc/none/partial/" in result.stdout.replace("\n", "")
    assert "LecoError" not in result.stdout + result.stderr
    assert "1 trainings failed; 1 that depend on them were skipped" in result.stderr


def weights(runs: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in (runs / "stages").glob("*/model.safetensors")}


def test_a_grid_on_a_full_disk_says_so_and_continues_when_there_is_room(tmp_path):
    runs, call = tmp_path / "runs", ["--methods", "ce,lpl", "--seeds", "0"]
    runs.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", runs]
    if shutil.which("mount") is None or subprocess.run(small, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        full = grid(*call, "--runs", runs)
        assert full.returncode == 2
        assert "No space left on device" in full.stdout.replace("\n", " ")
        assert "Traceback" not in full.stdout + full.stderr
        subprocess.run(["mount", "-o", "remount,size=50m", runs], check=True)
        again = grid(*call, "--runs", runs)
        assert again.returncode == 0, again.stderr
        assert grid(*call, "--runs", tmp_path / "undisturbed").returncode == 0
        assert weights(runs) == weights(tmp_path / "undisturbed")
    finally:
        subprocess.run(["umount", runs], check=True)


def test_two_grids_at_once_train_each_stage_once_or_say_who_is_at_it(tmp_path):
    command = [sys.executable, "-m", "leco", "grid", "digits-leco", "--size", "40", "--set", "training.batches.steps=8"]
    command += ["--jobs", "1", "--methods", "ce,lpl", "--seeds", "0", "--runs"]
    both = [
        subprocess.Popen([*command, tmp_path / "runs"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    for process in both:
        output, _ = process.communicate(timeout=500)
        assert process.returncode in (0, 2)
        assert process.returncode == 0 or "another process is working" in output.replace("\n", " ")
        assert "Traceback" not in output
    assert subprocess.run([*command, tmp_path / "runs"], capture_output=True, check=False).returncode == 0
    assert subprocess.run([*command, tmp_path / "alone"], capture_output=True, check=False).returncode == 0
    assert weights(tmp_path / "runs") == weights(tmp_path / "alone")


def test_stages_wait_for_what_they_need():
    wanted = [experiment("digits-leco", {"method": method, "size": 40}, {}) for method in ("lpl", "lpl+st-soft/cond")]
    graph = Graph.of(wanted, Path())
    progress = Progress(graph, dict.fromkeys(graph.stages))
    (first,) = progress.ready()
    assert graph.stages[first].period == 0
    progress.start(first)
    assert progress.ready() == []
    progress.finish(first)
    second = progress.ready()
    assert {str(graph.stages[name].method) for name in second} == {"lpl", "ce"}
    teacher = next(name for name in second if str(graph.stages[name].method) == "ce")
    for name in second:
        progress.start(name)
    progress.finish(teacher, "went wrong")
    assert progress.failed == {teacher: "went wrong"}
    assert [str(graph.stages[name].method) for name in progress.skipped] == ["lpl+st-soft/cond"]
    assert not progress.waiting


BAD = {
    "unknown engine": (["--engine", "rai"], "'rai' is not an engine; did you mean 'ray'?"),
    "unknown method": (["--methods", "ce,lbl"], "'lbl' is not a method"),
    "unknown annotation": (["--annotations", "label-old"], "annotation: Input should be"),
    "no seeds": (["--seeds", ","], "--seeds: is empty"),
    "a descending range of seeds": (["--seeds", "4-0"], "must be an ascending range"),
    "a seed that is not a number": (["--seeds", "a"], "'a' is not a seed"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_grid_is_refused(case, tmp_path):
    arguments, message = BAD[case]
    assert_refused(["grid", "digits-leco", *arguments], message, tmp_path)


@pytest.mark.slow
def test_the_ray_engine_gives_the_results_of_the_local_one_although_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray", reason="ray is an extra")
    arguments = ["--methods", "ce,lpl+st-hard", "--seeds", "0-1", "--set", "training.batches.steps=400"]
    command = [sys.executable, "-m", "leco", "grid", "digits-leco", "--size", "40", "--jobs", "2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LECO_SAVE_EVERY": "0.2", "TMPDIR": str(tmp_path / "disk")}
    environment["RAY_TMPDIR"] = "/tmp"  # the paths of sockets must be short
    (tmp_path / "disk").mkdir()
    on_ray = [*command, "--engine", "ray", "--runs", f"local://{tmp_path}/ray"]  # an address
    with subprocess.Popen(
        on_ray, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        working = wait_for(process, tmp_path, "disk/leco-*/*/partial/*/checkpoint-*")
        worker = holder(working.parent.with_suffix(".lock"))
        os.kill(worker, signal.SIGKILL)
        _, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    locally = subprocess.run([*command, "--runs", str(tmp_path / "local")], env=environment, capture_output=True)
    assert locally.returncode == 0, locally.stderr
    assert len(stages(tmp_path / "ray")) == 6
    assert stages(tmp_path / "local") == stages(tmp_path / "ray")
    for name in stages(tmp_path / "local"):
        found = [
            json.loads((tmp_path / e / "stages" / name / "result.json").read_text())["test"] for e in ("local", "ray")
        ]
        assert found[0] == found[1]


LISTENING = """
import ipaddress, os, sys

def note(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        address = arguments[1] if event != "socket.getaddrinfo" else arguments
        host = address[0] if isinstance(address, tuple) else "" if isinstance(address, (str, bytes)) else address
        host = host.decode() if isinstance(host, bytes) else host
        if host and host not in ("localhost", os.uname().nodename):
            try:
                inside = ipaddress.ip_address(host).is_loopback or ipaddress.ip_address(host).is_unspecified
            except ValueError:
                inside = False
            with open(os.environ["LISTENING"], "a") as file:
                file.write(f"{'inside' if inside else 'outside'} {event} {host} {sys.argv}\\n")

sys.addaudithook(note)
"""


@pytest.mark.slow
def test_ray_asks_nobody_outside_of_this_machine(tmp_path):
    """Python tells a hook what each of its processes connects to; in ray, it was Python that asked."""
    pytest.importorskip("ray", reason="ray is an extra")
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(LISTENING)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"LISTENING": str(tmp_path / "log"), "OMP_NUM_THREADS": "1", "RAY_TMPDIR": "/tmp"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "hook"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "leco", "grid", "digits-leco", "--size", "40", "--methods", "ce", "--seeds", "0"]
    options = ["--set", "training.batches.steps=8", "--engine", "ray", "--jobs", "1", "--runs", str(tmp_path / "runs")]
    ended = subprocess.run([*command, *options], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    lines = (tmp_path / "log").read_text().splitlines()
    assert any(line.startswith("inside") and "/ray/" in line for line in lines)  # ray's processes are listened to
    assert [line for line in lines if line.startswith("outside")] == []


def wait_for(process: "subprocess.Popen[str]", folder: Path, pattern: str) -> Path:
    while not (found := sorted(folder.glob(pattern))):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return found[0]


def holder(path: Path) -> int:
    """The process that has a file open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(link.readlink() == path for link in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"nobody has {path} open")


def card(_: int) -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def pretended_gpus(monkeypatch):
    """Three GPUs, of which two are visible, on a machine of many cores."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(grid_module, "cores", lambda: 64)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")


def test_the_processes_of_a_pool_see_its_gpu_alone(pretended_gpus):
    assert pools.gpus("auto") == pools.gpus("cuda") == ["0", "2"]
    assert pools.gpus("cpu") == []
    with pools.processes(1, 1, "2") as pool:
        assert list(pool.map(card, range(2))) == ["2", "2"]


def test_gpus_are_numbered_where_no_variable_says_which_are_visible(monkeypatch, pretended_gpus):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert pools.gpus() == ["0", "1"]


class Pretended:
    """Pools of threads in place of processes; note which stages ran with which others on a card."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, together: int = 1) -> None:
        self.sizes: dict[str, int] = {}
        self.running: dict[str, set[str]] = {}
        self.beside: dict[str, set[str]] = {}  # stages on the same card when a stage began, and itself
        self.place: dict[str, str] = {}
        self.lock, self.barrier = threading.Lock(), threading.Barrier(together, timeout=60)
        monkeypatch.setattr(pools, "processes", self.processes)
        monkeypatch.setattr(grid_module, "processes", lambda *_: ThreadPoolExecutor(1))
        monkeypatch.setattr(grid_module, "train_one", lambda *_, **__: None)

    def processes(self, count: int, _: int, card: str) -> ThreadPoolExecutor:
        executor, self.sizes[card] = ThreadPoolExecutor(count), count
        executor.submit = partial(self.submit, executor.submit, card)
        return executor

    def submit(self, submit, card, call, experiment, name, *more):
        def work() -> None:
            with self.lock:
                others = self.running.setdefault(card, set())
                others.add(name)
                self.place[name], self.beside[name] = card, set(others)
                for other in others:
                    self.beside[other].add(name)
            call(experiment, name, *more)
            self.barrier.wait()
            with self.lock:
                others.remove(name)

        return submit(work)


def step_of(stage: Stage, *_: object) -> StepMemory:
    """A batch of 8 takes 0.7 GB of 24, one of 64 takes 5.6, and one of 256 takes 22."""
    return StepMemory(weights=0, sample=2**26, size=stage.training.batches.size, available=24 * 2**30)


def batches(*sizes: int, seeds: int = 4) -> Graph:
    settings = {size: {"training.batches.size": str(size)} for size in sizes}
    wanted = [
        experiment("digits-leco", {"method": "ce", "size": 40, "seed": seed}, settings[size])
        for seed in range(seeds)
        for size in sizes
    ]
    return Graph.of(wanted, Path())


def test_four_small_stages_share_a_gpu(monkeypatch, pretended_gpus):
    monkeypatch.setattr(grid_module, "step_memory", step_of)
    pretended = Pretended(monkeypatch, together=8)  # each of eight waits until the others run, too
    *_, progress = grid_module.run_locally(batches(8, seeds=8), Path(), "nowhere")
    assert len(progress.done) == 16, progress.failed
    assert pretended.sizes == {"0": 4, "2": 4}


def test_a_large_stage_has_a_gpu_of_its_own_and_small_ones_fill_the_others(monkeypatch, pretended_gpus):
    monkeypatch.setattr(grid_module, "step_memory", step_of)
    graph, pretended = batches(8, 256), Pretended(monkeypatch)
    *_, progress = grid_module.run_locally(graph, Path(), "nowhere")
    assert len(progress.done) == len(graph.stages) == 16
    large = {name for name, stage in graph.stages.items() if stage.training.batches.size == 256}
    assert all(pretended.beside[name] == {name} for name in large)
    assert pretended.sizes == {"0": 4, "2": 4}
    assert set(pretended.place.values()) == {"0", "2"}


def no_memory(*_: object) -> StepMemory:
    raise torch.OutOfMemoryError("CUDA out of memory")


def no_file(*_: object) -> StepMemory:
    raise FileNotFoundError("a.png")


@pytest.mark.parametrize(
    ("device", "jobs", "step", "sizes"),
    [
        ("auto", None, step_of, {"0": 2, "2": 2}),  # of batches of 64
        ("cuda:1", None, step_of, {"2": 2}),
        ("auto", None, no_memory, {"0": 1, "2": 1}),
        ("auto", None, no_file, {"0": 1, "2": 1}),
        ("auto", 5, no_memory, {"0": 3, "2": 2}),
        ("auto", 1, no_memory, {"0": 1}),
        ("cpu", None, no_memory, {"": 64}),
        ("cpu", 3, no_memory, {"": 3}),
    ],
)
def test_the_number_of_stages_at_a_time_follows_from_devices_memory_and_jobs(
    device, jobs, step, sizes, monkeypatch, pretended_gpus
):
    monkeypatch.setattr(grid_module, "step_memory", step)
    pretended = Pretended(monkeypatch)
    *_, progress = grid_module.run_locally(batches(64), Path(), "nowhere", jobs, device)
    assert len(progress.done) == 8
    assert pretended.sizes == sizes


def test_features_are_computed_on_the_gpu_that_is_named(monkeypatch, pretended_gpus):
    devices = []
    monkeypatch.setattr(grid_module, "prepare", lambda *given: devices.append(given[-1].device))
    Pretended(monkeypatch)
    list(grid_module.run_locally(batches(64, seeds=1), Path(), "nowhere", 1, "cuda:1"))
    assert devices == ["cuda:1"]


def test_a_task_for_a_pool_that_has_just_broken_is_lost_with_the_others():
    with pools.pools([""], 1) as (pool,):
        pool.start("first", 1, os._exit, 1)
        pools.ended([pool])
        pool.start("second", 1, card, 0)
        assert pool.restart() == ["first", "second"]
        pool.start("third", 1, card, 0)
        ((_, task),) = pools.ended([pool])
        assert task.exception() is None


def test_a_batch_that_does_not_fit_is_refused_unless_a_cluster_trains_it(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "available_memory", lambda: 10**6)
    call = ["grid", "digits-leco", "--size", 40, "--methods", "ce", "--set", "training.network.backbone=wrn-10-1"]
    assert_refused([*call, "--device", "cpu"], "training.batches.size: a batch of ", tmp_path)
    assert leco(*call, "--device", "cpu", "--engine", "ray", "--dry-run", cwd=tmp_path).returncode == 0


def test_heads_share_a_gpu_as_far_as_there_are_cores(monkeypatch, pretended_gpus):
    monkeypatch.setattr(grid_module, "step_memory", no_memory)
    monkeypatch.setattr(grid_module, "prepare", lambda *_: None)
    monkeypatch.setattr(Stage, "on_features", True)
    for count, each in ((64, 4), (8, 2), (2, 1)):
        monkeypatch.setattr(grid_module, "cores", lambda count=count: count)
        pretended = Pretended(monkeypatch)
        list(grid_module.run_locally(batches(64), Path(), "nowhere"))
        assert pretended.sizes == {"0": each, "2": each}


def test_workers_that_read_ahead_reach_the_machine_of_a_stage(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(grid_module, "run_stage", lambda stage, periods, store, machine, **_: seen.append(machine))
    wanted = experiment("digits-leco", {"method": "ce", "size": 40}, {})
    name = next(iter(Graph.of([wanted], Path()).stages))
    grid_module.train_one(wanted, name, Path(), tmp_path, device="cpu", workers=3)
    assert [(machine.device, machine.workers) for machine in seen] == [("cpu", 3)]

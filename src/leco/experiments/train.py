"""The driver of all training: from a dataset to a trained model, stage by stage."""

import os
import reprlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from leco import settings
from leco.arguments import checks_arguments
from leco.data.periods import Annotation
from leco.dataset import Dataset, Periods
from leco.devices import check_shares
from leco.errors import LecoError
from leco.experiments.auto import decide, first_answer, refitted, trials
from leco.experiments.bundles import bundle_place, bundle_stage
from leco.experiments.clock import fit_into
from leco.experiments.experiment import AUTO, Experiment, Procedure, default_method, defaults_for, spell_out
from leco.experiments.machine import Machine
from leco.experiments.memory import check_batches
from leco.experiments.run import Watch, build_network, run_stage, starting_weights
from leco.experiments.stages import HEAD_WITH_OLD, REGRESSION, Plan, Stage, choose, plan
from leco.experiments.store import Store
from leco.io import as_path
from leco.methods.method import Method
from leco.model.bundle import Bundle, check_target, read_bundle
from leco.model.model import Model, load
from leco.models.lora import add_adapters
from leco.models.weights import describe_start
from leco.ontology.changes import require_same
from leco.ontology.ontology import Ontology
from leco.parts import Part
from leco.progress import visible
from leco.settings import DEFAULT_BUDGET, Budget, Strategy
from leco.training.loggers import LOGGERS
from leco.training.loop import Report

_MOST_WORKERS = 256


@checks_arguments
def train(
    data: Dataset,
    *,
    method: str | None = None,
    strategy: Strategy = "finetune",
    head_start: bool = False,
    annotation: Annotation = "label-new",
    seed: int = 0,
    time: str | None = None,
    budget: Budget | None = None,
    start: str | Path | Model | None = None,
    network: Mapping[str, Any] | settings.NetworkSettings | None = None,
    optimiser: Mapping[str, Any] | settings.OptimiserSettings | None = None,
    average: Mapping[str, Any] | settings.AverageSettings | None = None,
    batches: Mapping[str, Any] | settings.BatchSettings | None = None,
    views: Mapping[str, Any] | settings.ViewSettings | None = None,
    loss: Mapping[str, Any] | settings.LossSettings | None = None,
    pseudo_labels: Mapping[str, Any] | settings.PseudoLabelSettings | None = None,
    history: Mapping[str, Any] | settings.HistorySettings | None = None,
    transfer: Mapping[str, Any] | settings.TransferSettings | None = None,
    segmentation: Mapping[str, Any] | settings.SegmentationSettings | None = None,
    finish: Mapping[str, Any] | settings.FinishSettings | None = None,
    store: str | Path = "runs",
    device: str = "auto",
    workers: int = 0,
    log: str | Sequence[str] = (),
    progress: bool = True,
) -> Model:
    """Train over all periods of a dataset, and return the model for its newest version.

    With the method `auto`, several models are trained, with and without old labels, and validation chooses one. Other
    methods are the paper's 39, such as `ce` or `lpl`, and those with a registered term.

    Every stage is stored in the folder `store`: an interrupted call continues from its last checkpoint, and a repeated
    one only looks up its result. Ctrl-C saves a checkpoint first.

    Args:
        data: The samples and their ontology.
        method: `auto`, the default for your own data, or another; `lpl+st-hard/cond` is the default for benchmarks.
        strategy: How a period uses the previous network: `finetune`, `freeze`, `scratch`, `random` or `lp-ft`.
        head_start: Initialise each class with the weights of its parents.
        annotation: `label-new`, or, for benchmarks, another annotation strategy, such as `relabel-old` or `all-fine`.
        seed: Seed of all randomness.
        time: For `auto`: duration of the whole training, such as `30m`; it determines the number of steps.
        budget: `paper`, `small` for two CPU cores, or `features` on a frozen backbone; for benchmarks.
        start: A model of an older version, or its folder; the first newer period starts from it.
        network: Settings of the network; like all other parts, a mapping of the settings that differ from the default.
        optimiser: Settings of the optimiser.
        average: Settings of weight averaging.
        batches: Settings of steps and batch size.
        views: Settings of random views of images.
        loss: Settings of the loss of the newest labels.
        pseudo_labels: Settings of pseudo-labels.
        history: Settings of the history's coarse labels.
        transfer: Settings of the transfer between periods.
        segmentation: Settings of crops and windows.
        finish: Settings of changes to the trained network.
        store: Folder for all trained stages.
        device: `auto`, the accelerator if there is one, or `cpu`, `cuda`, `cuda:1`, `mps` and others that torch knows.
        workers: Processes that read files ahead; 0 for threads.
        log: Registered loggers, such as `csv` and `tensorboard`, in addition to the store's own metrics.
        progress: Show progress on the terminal or in the notebook.

    >>> import leco, tempfile
    >>> data = leco.benchmark("digits-leco", size=100)
    >>> model = leco.train(data, method="lpl", batches={"steps": 20}, store=tempfile.mkdtemp(), progress=False)
    >>> model.scores["test"]["v2"].macc > 0.2
    True

    """
    parts: dict[str, Mapping[str, Any] | Part | None] = {
        **{"network": network, "optimiser": optimiser, "average": average, "batches": batches},
        **{"views": views, "loss": loss, "pseudo_labels": pseudo_labels, "history": history, "transfer": transfer},
        **{"segmentation": segmentation, "finish": finish},
    }
    given = {name: _as_mapping(part) for name, part in parts.items() if part is not None}
    start = None if start is None else as_path("start", start.place if isinstance(start, Model) else start)
    log = (log,) if isinstance(log, str) else log
    if not all(isinstance(name, str) for name in log):
        raise LecoError(f"log: must be one or several names of loggers, not {reprlib.repr(log)}")
    if not 0 <= workers <= _MOST_WORKERS:
        raise LecoError(f"workers: must be a whole number from 0 to {_MOST_WORKERS}, not {reprlib.repr(workers)}")
    if budget is not None and not data.is_benchmark:
        raise LecoError(f"budget: {budget!r} is for benchmarks; set `batches` and `network` for your own data")
    if annotation != "label-new" and not data.is_benchmark:
        raise LecoError(f"annotation: {annotation!r} is for benchmarks; your own data keep their labels")
    values = {
        **{
            "method": method or default_method(data.is_benchmark),
            "strategy": strategy,
            "head_start": head_start,
            "annotation": annotation,
            "seed": seed,
            "time": time,
        },
        "training": defaults_for(data, given, budget=budget or DEFAULT_BUDGET, start=start),
    }
    try:
        procedure = Procedure.model_validate(values)
    except ValidationError as error:
        raise LecoError(spell_out(error.errors()[0]).removeprefix("training.")) from None
    for name in log:
        LOGGERS[name]  # an unknown one is refused before anything is trained
    run = Run.prepare(procedure, data, Store(as_path("store", store)), start=start, device=device)
    note = _say if progress else _ignore
    if leads() and run.periods.modality.embeds and not data.is_benchmark and start is None:
        note(describe_start(procedure.training.network.backbone, procedure.training.network.weights))
    for warning in data.unlabelled(procedure.method != str(Method())) if leads() else ():
        note(f"warning: {warning}")
    with stoppable() as stop, watching(shown=progress) as watch:
        machine = Machine(device, workers, tuple(log), stop, say=_say, note=note, shown=progress)
        return run.train(machine, watch)


def _as_mapping(part: Mapping[str, Any] | Part) -> dict[str, Any]:
    """A part of the settings, which may be typed, as a mapping of those that were set."""
    if isinstance(part, Part):
        return part.model_dump(exclude_unset=True)
    return {str(key): value for key, value in part.items()}


def _say(problem: str) -> None:
    sys.stderr.write(f"{problem}\n")


def _ignore(_: str) -> None:
    pass


def _once(say: Callable[[str], object]) -> Callable[[str], None]:
    """Report each problem once, though every stage may meet it again."""
    said: set[str] = set()

    def say_once(problem: str) -> None:
        if problem not in said:
            said.add(problem)
            say(problem)

    return say_once


@dataclass(frozen=True, eq=False)
class Run:
    """An experiment that is ready to be trained: everything has been read and checked."""

    periods: Periods
    plan: Plan
    store: Store
    target: Path  # of the bundle

    @classmethod
    def prepare(
        cls,
        procedure: Procedure,
        data: Dataset,
        store: Store,
        *,
        start: Path | None = None,
        target: Path | None = None,
        device: str = "auto",
        dry_run: bool = False,
    ) -> "Run":
        """Read the data, plan the stages, and raise every error found before training; a dry run needs no memory."""
        periods = periods_for(procedure, data, start, memory=store.files)
        store.check()
        stages = plan(procedure, periods) if procedure.time is None else fit_into(procedure, periods, store, device)
        check_network(stages, periods)
        check_shares(procedure.training.batches.size)
        if not dry_run:
            check_batches(stages, periods, device)
        target = target or bundle_place(store.stages.parent, stages.periods[-1][-1], AUTO if stages.trials else "")
        check_target(target, periods.modality.name, start)
        return cls(periods, stages, store, target)

    @property
    def to_do(self) -> list[Stage]:
        """Stages that are not complete."""
        return [stage for stage in self.plan.stages if self.store.result(stage.fingerprint) is None]

    def train(self, machine: Machine, watch: Watch = lambda *_: None) -> Model:
        """Train the missing stages, write the bundle of the last period's model, and load it."""
        machine = replace(machine, say=_once(machine.say))
        if leads():
            self.store.keep_ontology(self.periods.ontology)
        answered = False
        for stage in self.plan.stages:  # also complete ones: all processes must ask for the same
            run_stage(stage, self.periods, self.store, machine, watch, may_diverge=self.plan.may_diverge(stage))
            if leads() and not answered and (label := first_answer(self.plan, self.store)):
                answered = True
                self._keep_first_answer(label, machine)
        last, periods = self._last
        run_stage(last, periods, self.store, machine, watch, may_diverge=bool(self.plan.trials))
        final, _ = self.final
        if final != last:
            machine.say(f"training on all labels failed ({self._diverged(last)}); the model is the trial")
        if leads() and self.plan.trials:
            trial = self.plan.trials[decide(self.plan, self.store)].fingerprint
            tried = trials(self.plan, self.store)
            bundle_stage(self.store, final.fingerprint, self.target, trial=trial, trials=tried)
        elif leads():
            bundle_stage(self.store, final.fingerprint, self.target)
        machine.fabric(self.plan.stages[-1].training.network.precision).barrier()  # until the bundle is complete
        return load(self.target, device=machine.device)

    @property
    def final(self) -> tuple[Stage, Periods]:
        """The stage that becomes the model, and its periods; all stages of the plan must be complete.

        For `auto`, it is the chosen trial, trained again on all labels unless that diverged.
        """
        last, periods = self._last
        if self.plan.trials and self._diverged(last):
            return self.plan.trials[decide(self.plan, self.store)], self.periods
        return last, periods

    @property
    def _last(self) -> tuple[Stage, Periods]:
        """The stage that is trained last, and its periods."""
        if not self.plan.trials:
            return choose(self.plan.periods[-1], self.store), self.periods
        return refitted(self.plan.trials[decide(self.plan, self.store)], self.periods)

    def _diverged(self, stage: Stage) -> str | None:
        """The reason why a stage diverged; None if it did not, or is not complete."""
        found = self.store.result(stage.fingerprint)
        return None if found is None else found.diverged

    def _keep_first_answer(self, label: str, machine: Machine) -> None:
        stage = self.plan.trials[label]
        only_heads = self.plan.trials.keys() <= {REGRESSION, HEAD_WITH_OLD}
        if only_heads and refitted(stage, self.periods)[0] is stage:  # it is the model itself
            return
        folder = bundle_place(self.store.stages.parent, stage, "first-answer")
        if folder.exists():  # from an earlier run
            return
        bundle_stage(self.store, stage.fingerprint, folder)
        score = self.store.require(stage.fingerprint).validation_score
        known = "" if score is None else f": {100 * score:.1f} % on validation"
        machine.note(f"first answer, {label}{known}; kept in {folder}")


def periods_for(
    procedure: Procedure, data: Dataset, start: Path | None = None, *, tested: bool = True, memory: Path | None = None
) -> Periods:
    """Return the periods that a procedure trains on; the test split is read only if `tested`."""
    bundle = None if start is None else read_bundle(start)  # first, since the rest takes long
    periods = data.periods(procedure.seed, procedure.training.network, tested=tested, memory=memory)
    if not tested:
        periods = periods.without_test()
    if side := procedure.training.views.resize:
        periods = periods.resized(side)
    if bundle is None:
        return periods
    for problem in misfits(bundle, periods.ontology, inputs_of(procedure, periods)):
        raise LecoError(problem)
    return periods.started(bundle, bundle.description.normaliser())


def periods_of(experiment: Experiment, root: Path, *, tested: bool = True, memory: Path | None = None) -> Periods:
    """Return the periods of an experiment; benchmarks are in the folder `root`."""
    return periods_for(experiment, experiment.dataset(root), experiment.start, tested=tested, memory=memory)


def inputs_of(procedure: Procedure, periods: Periods) -> dict[str, object]:
    """Return the properties of an experiment's first network that a model to start from must share."""
    found: dict[str, object] = {"task": periods.modality.name, "backbone": procedure.training.network.backbone}
    return found | ({"input shape": tuple(periods.shape)} if periods.modality.fixed_shape else {})


def misfits(start: Bundle, ontology: Ontology | None, mine: Mapping[str, object]) -> list[str]:
    """Return the reasons why training cannot start from a model: other inputs, backbone or ontology."""
    known = start.description
    theirs: dict[str, object] = {"task": known.task, "input shape": known.shape, "backbone": known.model}
    problems = [
        f"{start.folder}: the {what} of this model is {theirs[what]}, but that of the experiment is {value}"
        for what, value in mine.items()
        if theirs[what] != value
    ]
    try:
        if ontology is not None:
            require_same(start.ontology, ontology, "the experiment", str(start.folder))
    except LecoError as error:
        problems.append(str(error))
    return problems


def check_network(plan: Plan, periods: Periods) -> None:
    """Raise an error if the network of a plan cannot take its inputs, crops, weights or adapters."""
    first = plan.stages[0]
    network = build_network(first, periods, starting_weights(first))
    for size in {stage.training.views.size for stage in plan.stages if stage.training.views.crop} - {0}:
        periods.modality.check_crops(network, periods.shape, size)
    add_adapters(network.backbone, max(stage.training.network.lora for stage in plan.stages), periods.shape)


def leads() -> bool:
    """Whether this is the process of `torchrun` that prints and writes."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def watching(shown: bool = True) -> Iterator[Watch]:
    """Show progress bars on a terminal or in a notebook; otherwise print a line at every evaluation."""
    if not shown or not leads():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    looked_at = visible(console)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) if looked_at else nullcontext() as bars:
        tasks: dict[str, Any] = {}

        def watch(stage: Stage, report: Report) -> None:
            total = stage.training.batches.steps
            losses = " ".join(f"{name} {loss:.2f}" for name, loss in report.losses.items())
            if bars is not None:
                if stage.fingerprint not in tasks:
                    tasks[stage.fingerprint] = bars.add_task(str(stage), total=total)
                speed = f"lr {report.learning_rate:.2g}, {report.images_per_second:,.0f} images/s"
                text = f"{stage}: {losses}, {speed}"
                bars.update(tasks[stage.fingerprint], completed=report.step, description=text)
            elif report.means:
                score = "" if report.score is None else f", val {100 * report.score:.1f} %"
                _say(f"{stage}: step {report.step:,} of {total:,}: {losses}{score}")

        yield watch


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C, SIGTERM or SIGHUP was received; a second one stops immediately."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield lambda: False
        return
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    heeded = (n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN)
    before = {number: signal.signal(number, ask) for number in heeded}  # nohup has SIGHUP ignored
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""An experiment as a graph of stages: one training per period, learning rate and weight decay, and its teachers.

A stage is identified by its fingerprint, so that equal ones are trained once.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

from leco.data.periods import Annotated, Annotation
from leco.dataset import Periods
from leco.errors import LecoError
from leco.experiments.experiment import AUTO, AUTO_METHOD, DEFAULT_METHOD, Procedure
from leco.experiments.store import AnyStore
from leco.methods.method import Method
from leco.models.names import trunk_of
from leco.models.weights import find_weights
from leco.settings import NetworkSettings, Settings, Strategy

# Trials of `auto`, as they are printed.
REGRESSION = "logistic regression on the new labels"
HEAD_WITH_OLD = "a head on the same features, with old labels"
NEW_ALONE = "the network, new labels alone"
WITH_OLD = "the network, with old labels"
RATE = ", learning rate "  # before a learning rate, if there are several
DECAY = ", weight decay "  # the same
_FORMAT = 2  # of results; incremented when a change of the code changes them


@dataclass(frozen=True, eq=False)
class Stage:
    """One training. Its fingerprint covers everything that its result depends on."""

    material: str  # name and fingerprint of the data
    learned: str  # the same without the test set
    version: str
    period: int
    method: Method
    strategy: Strategy
    annotation: Annotation
    head_start: bool
    seed: int
    training: Settings
    previous: "tuple[Stage, ...]" = ()  # it starts from the one that is best on validation
    teacher: "Stage | None" = None
    start: str = ""  # digest of the bundle that it starts from, if it does not start from a stage
    weights: str = ""  # digest of the file with the weights that it starts from, if they are not random

    @property
    def on_features(self) -> bool:
        """Whether only heads are trained, on stored features of the pretrained backbone."""
        return self.training.network.embed

    @cached_property
    def fingerprint(self) -> str:
        """Digest in sixteen hexadecimal digits, the name of the stage's folder."""
        # Defaults are left out, so that new settings do not change the fingerprints of existing stages; a new default
        # needs a new format.
        # Of weights, only the content counts. Recomputing changes no result, and sharding changes only its rounding.
        others = {"network": {"weights", "recompute", "shard"}}
        changed = self.training.model_dump(mode="json", exclude_defaults=True, exclude=others)
        content = json.dumps(self.config() | {"training": changed}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stage) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def config(self) -> dict[str, Any]:
        """Everything, as JSON-compatible data; other stages by their fingerprints."""
        optional = {"start": self.start, "weights": self.weights}
        return {name: digest for name, digest in optional.items() if digest} | {  # other stages keep their fingerprints
            "format": _FORMAT,
            "material": self.material,
            "version": self.version,
            "period": self.period,
            "method": str(self.method),
            "strategy": self.strategy,
            "annotation": self.annotation,
            "head_start": self.head_start,
            "seed": self.seed,
            "training": self.training.model_dump(mode="json"),
            "previous": [stage.fingerprint for stage in self.previous],
            "teacher": self.teacher and self.teacher.fingerprint,
        }

    @cached_property
    def untested(self) -> "Stage":
        """Return the same training, identified without its test set."""
        previous = tuple(stage.untested for stage in self.previous)
        teacher = self.teacher and self.teacher.untested
        return replace(self, material=self.learned, previous=previous, teacher=teacher)

    def __str__(self) -> str:
        fitted = self.training.batches.steps == 1 and self.training.finish.head != "trained"
        how = f"{self.training.finish.head} head" if fitted else f"lr {self.training.learning_rate:g}"
        return f"TP{self.period} {self.method}, {how}"


@dataclass(frozen=True)
class Plan:
    """Stages of an experiment: for each period, one per learning rate and weight decay, of which the best is chosen."""

    periods: tuple[tuple[Stage, ...], ...]
    trials: Mapping[str, Stage] = field(default_factory=dict)  # of `auto`: the last period's, by what they are

    def may_diverge(self, stage: Stage) -> bool:
        """Whether the stage may fail, since there are others to choose from."""
        return any(stage.period == candidates[0].period and len(candidates) > 1 for candidates in self.periods)

    @property
    def stages(self) -> list[Stage]:
        """All stages, including teachers, in topological order."""
        found: dict[Stage, None] = {}

        def add(stage: Stage) -> None:
            for other in needed(stage):
                add(other)
            found[stage] = None

        for stage in (stage for candidates in self.periods for stage in candidates):
            add(stage)
        return list(found)


def plan(procedure: Procedure, periods: Periods) -> Plan:
    """Plan the stages of an experiment.

    The first period starts from scratch, so all experiments share it; a teacher is the `ce` model of the same period
    and learning rate, which is a row of the paper's tables itself.
    """
    periods.modality.check(procedure.training, periods.shape, len(periods.ontology.newest))
    if procedure.training.network.embed and (periods.start or not periods.modality.embeds):
        problem = (
            "a model to start from has its own backbone" if periods.start else "there is no backbone to embed with"
        )
        raise LecoError(f"training.network.embed: {problem}; set it to false")
    if procedure.method == AUTO:
        return _plan_auto(procedure, periods)
    planned: list[tuple[Stage, ...]] = []
    for period in range(periods.first, len(periods.versions)):
        planned.append(_plan_period(procedure, periods, period, planned[-1] if planned else ()))
    return Plan(tuple(planned))


def _plan_period(
    procedure: Procedure, periods: Periods, period: int, previous: tuple[Stage, ...] = ()
) -> tuple[Stage, ...]:
    """Plan the candidates of a period, one for each learning rate and weight decay."""
    method, settings = Method.parse(procedure.method), procedure.training
    start = periods.start.digest if periods.start and not previous else ""
    strategy: Strategy = procedure.strategy if previous or start else "scratch"
    if strategy == "random" and settings.network.weights == "random":
        strategy = "scratch"  # the same, so that it is trained once
    from_nothing = strategy in ("scratch", "random")
    common = _common(procedure, periods, period) | {
        "strategy": strategy,
        "annotation": procedure.annotation if period else "label-new",
        "head_start": bool(start) or (procedure.head_start and not from_nothing),
        "previous": () if from_nothing or start else previous,
        "start": start,
        "weights": _digest_of_weights(settings.network, periods)
        if strategy == "scratch" or settings.network.embed
        else "",
    }
    mine = applicable(method, periods, period, common["annotation"])
    later = None if from_nothing else settings.optimiser.finetune_learning_rate
    candidates = []
    for rate, decay in product(later or settings.optimiser.learning_rate, settings.optimiser.weight_decays):
        one = {"learning_rate": (rate,), "finetune_learning_rate": None, "weight_decay": decay}
        own = settings.change(optimiser=one)
        if strategy == "freeze":  # nothing below the heads is trained
            own = own.change(network={"lora": 0})
        if strategy == "lp-ft" and not own.transfer.head_steps:
            own = own.change(transfer={"head_steps": max(1, own.batches.steps // 10)})
        plain = Stage(method=Method(), training=own.used_by(Method(), strategy), **common)
        candidates.append(
            plain
            if mine == Method()
            else Stage(
                method=mine,
                training=own.used_by(mine, strategy),
                teacher=plain if mine.needs_teacher else None,
                **common,
            )
        )
    return tuple(candidates)


def _common(procedure: Procedure, periods: Periods, period: int) -> dict[str, Any]:
    name, learned = (f"{periods.name} {digest}" for digest in (periods.fingerprint, periods.learned))
    version = periods.versions[period]
    return {"material": name, "learned": learned, "version": version, "period": period, "seed": procedure.seed}


def _plan_auto(procedure: Procedure, periods: Periods) -> Plan:
    """Plan the trials of `auto`, the least preferred first: heads on features, then networks, without and with history.

    Networks that start from pretrained weights need no earlier period. Others go through all periods, and their
    teacher is the trial without history.
    """
    last = len(periods.versions) - 1
    _ = periods.first  # raises if the model to start from is not older
    annotated = periods.annotated(last, procedure.annotation if last else "label-new")
    network, modality = procedure.training.network, periods.modality
    digest = "" if periods.start else _digest_of_weights(network, periods)
    trials: dict[str, Stage] = {}
    earlier: tuple[tuple[Stage, ...], ...] = ()
    if modality.fits_heads and (digest or not modality.embeds):
        trials |= _plan_heads(procedure, periods, last, digest)
    if modality.trains_backbone(network.backbone) and not network.embed:
        plain = procedure.model_copy(update={"method": "ce"})
        with_old = procedure.model_copy(update={"method": AUTO_METHOD if digest else DEFAULT_METHOD})
        if digest:
            trials |= _by_rate(NEW_ALONE, _plan_period(plain, periods, last))
            trials |= _by_rate(WITH_OLD, _plan_period(with_old, periods, last)) if _has_old_labels(annotated) else {}
        else:
            history = bool(annotated.history)  # pseudo-labels also use samples without any label
            *before, final = plan(with_old if history else plain, periods).periods
            earlier = tuple(before)
            trials |= _by_rate(NEW_ALONE, [stage.teacher or stage for stage in final])
            trials |= _by_rate(WITH_OLD, final) if history else {}
    return Plan((*earlier, tuple(trials.values())), trials)


def _has_old_labels(annotated: Annotated) -> bool:
    """Whether some of the history is labelled in an earlier version; samples without a label belong to the newest."""
    return any(part.version != annotated.newest.version for part in annotated.history)


def _by_rate(label: str, stages: Sequence[Stage]) -> dict[str, Stage]:
    """Name stages after what they are and, if there are several, their learning rates and weight decays."""
    rates, decays = ({value(stage) for stage in stages} for value in (_rate, _decay))
    return {
        label
        + (f"{RATE}{_rate(stage):g}" if len(rates) > 1 else "")
        + (f"{DECAY}{_decay(stage):g}" if len(decays) > 1 else ""): stage
        for stage in stages
    }


def stage_names(stages: Iterable[Stage]) -> dict[Stage, str]:
    """Return the names of stages, with their weight decays if these differ."""
    stages = tuple(stages)
    several = len({_decay(stage) for stage in stages}) > 1
    return {stage: f"{stage}{DECAY}{_decay(stage):g}" if several else str(stage) for stage in stages}


def _rate(stage: Stage) -> float:
    return stage.training.learning_rate


def _decay(stage: Stage) -> float:
    return stage.training.optimiser.weight_decays[0]


def _plan_heads(procedure: Procedure, periods: Periods, period: int, digest: str) -> dict[str, Stage]:
    """Plan linear heads on features, of the new labels alone and with old ones; all other settings do not matter."""
    network = procedure.training.network
    place = {
        **{"backbone": trunk_of(network.backbone), "weights": network.weights, "precision": network.precision},
        "embed": bool(digest),
    }
    settings = Settings().change(network=place, batches={"steps": 1, "evaluate_every": 1}, average={"decay": 0.0})
    common = _common(procedure, periods, period) | {
        "strategy": "scratch",
        "annotation": procedure.annotation if period else "label-new",
        "head_start": False,
        "weights": digest,
    }
    plain = Stage(method=Method(), training=settings.change(finish={"head": "linear"}), **common)
    method = applicable(Method("lpl"), periods, period, common["annotation"])
    if method == Method() or not _has_old_labels(periods.annotated(period, common["annotation"])):
        return {REGRESSION: plain}
    best = Stage(method=method, training=settings.change(finish={"head": "best"}), **common)
    return {REGRESSION: plain, HEAD_WITH_OLD: best}


def _digest_of_weights(network: NetworkSettings, periods: Periods) -> str:
    """Digest of the weights that networks start from, which are downloaded if need be; empty if they are random."""
    if network.weights != "random":
        periods.modality.check_backbone(network.backbone)
    found = find_weights(network.backbone, network.weights)
    return "" if found is None else found.digest


def applicable(method: Method, periods: Periods, period: int, annotation: Annotation) -> Method:
    """Part of a method that a period can use: no pseudo-labels without history, only `ce` without earlier versions."""
    history = periods.annotated(period, annotation).history
    coarse = method.coarse if len(periods.until(period).versions) > 1 else "ce"
    return Method(coarse, method.pseudo, method.refine) if history else Method(coarse)


def needed(stage: Stage) -> list[Stage]:
    """Direct dependencies of a stage: those it starts from, and its teacher."""
    return [*stage.previous, *([stage.teacher] if stage.teacher else [])]


def choose(candidates: Sequence[Stage], store: AnyStore) -> Stage:
    """Choose the stage that is best on validation; all must be complete, and at least one must not have diverged."""
    results = {stage: store.require(stage.fingerprint) for stage in candidates}
    usable = [stage for stage, result in results.items() if result.diverged is None]
    if not usable:
        raise LecoError(f"{candidates[0]}: {next(iter(results.values())).diverged} (all learning rates diverged)")
    return max(usable, key=lambda stage: results[stage].validation_score or 0.0)

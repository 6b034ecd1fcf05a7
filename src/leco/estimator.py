"""`LecoClassifier`: a scikit-learn estimator for labels of any version of an ontology."""

import math
import reprlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from torch import Tensor

from leco.data.views.features import unit_length
from leco.dataset.arrays import ArrayDataset
from leco.dataset.labels import Labels, as_column, as_ontology, plain_labels, read_labels
from leco.dataset.periods import Periods
from leco.errors import LecoError
from leco.evaluation import predict_at
from leco.experiments.experiment import AUTO, Procedure, spell_out
from leco.experiments.machine import Machine
from leco.experiments.run import run_stage
from leco.experiments.stages import needed, plan
from leco.experiments.store import Memory
from leco.methods.method import Method
from leco.models.backbones import HEAD_ALONE
from leco.models.network import AnyNetwork
from leco.ontology.transition import Transition
from leco.ontology.version import NO_LABEL

_FLOATS = (np.float64, np.float32)
_AT_ONCE = 8_192  # samples that are predicted together
_ONE_AT_A_TIME = threading.Lock()  # torch's generator is shared by all threads
PARAMETERS = {
    **{"model": "network.backbone", "learning_rate": "optimiser.learning_rate", "steps": "batches.steps"},
    **{"weight_decay": "optimiser.weight_decay", "batch_size": "batches.size"},
    **{"threshold": "pseudo_labels.threshold", "balance": "pseudo_labels.balance"},
    **{"head": "finish.head", "adjust": "finish.adjust"},
}


class LecoClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for the newest version of an ontology, learned from labels of every version.

    `ontology` is an `Ontology`, a file or a dictionary that describes one, or None: then the labels themselves are the
    classes, as for any other classifier. The other parameters are described in docs/how-to/estimator.md. Training runs
    in memory, on the CPU, and is determined by the data and `random_state`.

    Fitted attributes are `classes_` (of the newest version, sorted), `ontology_`, `network_`, `scaler_` (None unless
    features are standardised), `n_features_in_` and, if the features have names, `feature_names_in_`.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LecoClassifier(steps=100).fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        ontology: Any = None,
        *,
        method: str = "lpl",
        model: str = "linear",
        strategy: str = "finetune",
        head_start: bool = False,
        steps: int = 500,
        learning_rate: float | None = None,
        weight_decay: float = 1e-3,
        batch_size: int = 128,
        threshold: float = 0.95,
        balance: bool = False,
        head: str = "trained",
        adjust: float = 0.0,
        standardise: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.ontology = ontology
        self.method = method
        self.model = model
        self.strategy = strategy
        self.head_start = head_start
        self.steps = steps
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.threshold = threshold
        self.balance = balance
        self.head = head
        self.adjust = adjust
        self.standardise = standardise
        self.random_state = random_state

    def fit(self, X: Any, y: Any, versions: Any = None) -> Self:
        """Fit to samples (n, d) with labels of `versions`: one per label, one for all, or by default the newest.

        Labels are names, ids or indices of classes of their version; None, NaN or "" where one is missing.
        """
        procedure = self._procedure()
        features, labels = self._read(X, y, versions)
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            scaler = StandardScaler().fit(features) if self.standardise else None
            scaled, normalise = _scaled(features, scaler)
        if not scaled.float().isfinite().all():
            raise LecoError(
                f"features of up to {np.abs(features).max():g} are too large to be standardised; scale them down"
            )
        split = np.full(len(features), "train")
        data = ArrayDataset(scaled.float(), labels, split, normalise=normalise)
        network = fit_network(procedure, data.unvalidated())
        self.scaler_, self.ontology_ = scaler, labels.ontology
        # In double precision, predictions do not depend on the other samples of the call.
        self.network_ = network.double().requires_grad_(False)
        self._spelled = labels.spelled
        self.classes_ = self.classes_at()
        return self

    def predict(self, X: Any, version: str | None = None) -> NDArray[Any]:
        """Predict the class of a version (by default the newest), in the format of the labels in `fit`.

        Probabilities of the newest classes are summed through the ontology. If classes that did not exist yet are
        together likelier than any that did, the prediction is "" (or -1).
        """
        probs, transition = self._probs(X), self._transition(version)
        predicted: NDArray[Any] = self._spelled[transition.old.name][predict_at(probs, transition).numpy()]
        return predicted

    def predict_proba(self, X: Any, version: str | None = None) -> NDArray[np.float64]:
        """Probabilities of the classes of a version, with a column for each of `classes_at(version)`.

        They sum to less than one if some newer classes did not exist in that version.
        """
        probs, transition = self._probs(X), self._transition(version)
        projected: NDArray[np.float64] = transition.project(probs).numpy()
        return projected[:, np.argsort(self._names(transition))]

    def classes_at(self, version: str | None = None) -> NDArray[Any]:
        """Sorted classes of a version, like scikit-learn's `classes_`."""
        return np.sort(self._names(self._transition(version)))

    def score(self, X: Any, y: Any, version: str | None = None, sample_weight: Any = None) -> float:
        """Accuracy at a version; samples without a label are ignored."""
        check_is_fitted(self)
        check_consistent_length(X, y, sample_weight)
        predicted = self.predict(X, version)
        if self.ontology is None:
            return float(accuracy_score(y, predicted, sample_weight=sample_weight))
        name = self._transition(version).old.name
        indices = self.ontology_[name].encode(as_column(y))
        labelled = indices != NO_LABEL
        if not labelled.any():
            raise LecoError(f"no sample has a label of {name}, so nothing can be scored; pass labels of that version")
        weight = None if sample_weight is None else np.asarray(sample_weight)[labelled]
        true = self._spelled[name][indices]
        return float(accuracy_score(true[labelled], predicted[labelled], sample_weight=weight))

    def _procedure(self) -> Procedure:
        """Validate the parameters."""
        for name in ("head_start", "balance", "standardise"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise LecoError(f"{name}: must be True or False, not {reprlib.repr(getattr(self, name))}")
        usual = 0.5 if self.model in HEAD_ALONE else 0.05  # docs/lab-book/log.md
        rate = usual if self.learning_rate is None else self.learning_rate
        training = {
            "network": {"backbone": self.model},
            "optimiser": {"learning_rate": rate, "weight_decay": self.weight_decay},
            "batches": {"steps": self.steps, "size": self.batch_size, "evaluate_every": self.steps},
            "pseudo_labels": {"threshold": self.threshold, "balance": self.balance},
            "finish": {"head": self.head, "adjust": self.adjust},
        }
        values = {name: getattr(self, name) for name in ("method", "strategy", "head_start")}
        if self.method == AUTO:
            raise LecoError(
                "method: auto needs files and a validation set; use leco.train, or name a method such as lpl"
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        try:
            procedure = Procedure.model_validate(values | {"seed": seed, "training": training})
        except ValidationError as error:
            raise LecoError(_in_parameters(spell_out(error.errors()[0]))) from None
        if len(procedure.training.optimiser.learning_rate) > 1:
            raise LecoError(f"learning_rate: must be one number, not {rate!r}; use GridSearchCV to try several")
        heads = procedure.head_start or Method.parse(procedure.method).needs_old_heads
        if self.model in HEAD_ALONE and not heads:  # nothing to transfer, so no earlier period is trained
            return procedure.model_copy(update={"strategy": "scratch"})
        return procedure

    def _read(self, X: Any, y: Any, versions: Any) -> tuple[NDArray[Any], Labels]:
        if self.ontology is None:
            if versions is not None:
                raise LecoError("`versions` need an ontology; pass one to LecoClassifier")
            features, plain = validate_data(self, X, y, dtype=_FLOATS)
            return features, plain_labels(plain)
        ontology = as_ontology(self.ontology)
        features = validate_data(self, X, None if y is None else "no_validation", dtype=_FLOATS)
        labels = as_column(y)
        check_consistent_length(features, labels)
        return features, read_labels(labels, versions, ontology)

    @torch.no_grad()
    def _probs(self, X: Any) -> Tensor:
        """Probabilities (n, c) of the newest classes."""
        check_is_fitted(self)
        features, normalise = _scaled(validate_data(self, X, reset=False, dtype=_FLOATS), self.scaler_)
        newest = self.ontology_.newest.name
        logits = [self.network_(normalise(part.double()))[newest] for part in torch.split(features, _AT_ONCE)]
        return torch.cat(logits).softmax(dim=1)

    def _transition(self, version: str | None) -> Transition:
        check_is_fitted(self, "ontology_")
        newest = self.ontology_.newest.name
        if not isinstance(version, str | None):
            raise LecoError(f"version: must be the name of a version, not {version!r}")
        return self.ontology_.transition(newest, newest if version is None else version)

    def _names(self, transition: Transition) -> NDArray[Any]:
        return self._spelled[transition.old.name][: len(transition.old)]


def _scaled(features: NDArray[Any], scaler: StandardScaler | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return features for the views, and the normalisation of the views."""
    if scaler is None:
        return torch.from_numpy(np.array(features)), unit_length  # a copy, since torch warns of read-only arrays
    return torch.from_numpy(scaler.transform(features)), scale_to_ten


def scale_to_ten(features: Tensor) -> Tensor:
    """Scale standardised features to an expected length of at most ten.

    So one learning rate suits both few and many dimensions (docs/lab-book/log.md).
    """
    return features * min(1.0, 10 / math.sqrt(features.shape[1]))


def fit_network(procedure: Procedure, periods: Periods) -> AnyNetwork:
    """Train the network of the newest period in memory; earlier periods only if it starts from them."""
    planned = plan(procedure, periods)
    (last,) = planned.periods[-1]
    wanted = {last}
    for stage in reversed(planned.stages):
        if stage in wanted:
            wanted.update(needed(stage))
    store = Memory()
    with own_randomness():
        machine = Machine(own_fabric=this_process())
        for stage in planned.stages:
            if stage in wanted:
                run_stage(stage, periods, store, machine)
    network = store.recall(last.fingerprint)
    assert network is not None
    return network


@contextmanager
def own_randomness() -> Iterator[None]:
    """Restore torch's generators afterwards, and enable gradients even if the caller has turned them off."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices), torch.inference_mode(False):
        yield


@lru_cache(maxsize=1)
def this_process() -> Fabric:
    """Return a Fabric for this process alone, even under `torchrun`, where other processes may fit other models."""
    fabric = Fabric(accelerator="cpu", devices=1, plugins=LightningEnvironment())
    fabric.launch()
    return fabric


def _in_parameters(problem: str) -> str:
    """Replace the names of settings in a message by those of the estimator's parameters."""
    for parameter, place in PARAMETERS.items():
        problem = problem.replace(f"training.{place}", parameter)
    return problem.removeprefix("training.")

"""Own data as a user would have them: digits as feature vectors, old ones labelled by stroke, some not at all."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.unit.planning.prepared import prepared

from leco.data.benchmarks import digits
from leco.planning import measure as subsamples
from leco.planning.prepare import Prepared

NEWEST, HISTORY, UNLABELLED, TEST = 120, 120, 12, 60


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_own(tmp_path)


@pytest.fixture
def few_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four levels instead of twelve, for tests that measure again and again."""
    monkeypatch.setattr(subsamples, "NEW_LEVELS", (1.0, 0.5))
    monkeypatch.setattr(subsamples, "OLD_LEVELS", (1.0, 0.0))


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """What is measured of them, for tests that only look at it."""
    return prepared(write_own(tmp_path_factory.mktemp("planned")))


def write_own(tmp_path: Path) -> Path:
    bunch = load_digits()
    ontology = digits.ontology()
    ontology.save(tmp_path / "ontology.yaml")
    np.save(tmp_path / "digits.npy", bunch.data[: NEWEST + HISTORY + UNLABELLED + TEST].astype(np.float32))
    rows = ["features,label,version,split"]
    for index in range(NEWEST + HISTORY + UNLABELLED + TEST):
        fine = str(bunch.target[index])
        coarse = ontology.translate([fine], "v2", "v1")[0]
        if index < NEWEST:
            rows.append(f"digits.npy#{index},{fine},v2,train")
        elif index < NEWEST + HISTORY:
            rows.append(f"digits.npy#{index},{coarse},v1,train")
        elif index < NEWEST + HISTORY + UNLABELLED:
            rows.append(f"digits.npy#{index},,,train")
        else:
            rows.append(f"digits.npy#{index},{fine},v2,test")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.yaml}\nmethod: lpl\n"
        "training: {model: linear, steps: 30, evaluate_every: 10}\n"
    )
    return tmp_path

from dataclasses import replace

import pytest
import torch

from leco.data.samples import InMemory
from leco.devices import make_fabric
from leco.errors import LecoError
from leco.experiments import run as running
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.run import finishing, make_job, run_stage, stored_network
from leco.experiments.stages import plan
from leco.experiments.store import Store
from leco.experiments.train import periods_of
from leco.models import Network, build_backbone, build_segmenter
from leco.models.dense.network import SegmentationNetwork
from leco.models.dense.ocr import OcrHead
from leco.ontology.ontology import Ontology
from leco.training.finish import adjusted
from leco.training.priors import class_counts

PETS = Ontology.from_taxonomy(
    "pets", ["v1", "v2"], [("dog", "pug"), ("dog", "husky"), ("cat", "manx"), ("cat", "sphynx")]
)
COUNTS = torch.tensor([800, 100, 100, 0])


def test_classes_are_counted_in_labels_and_in_maps_of_them():
    labels = InMemory(torch.tensor([0, 1, 1, -2, 3]))
    assert class_counts(labels, torch.tensor([0, 2, 3, 4]), 4).tolist() == [1, 1, 0, 1]
    maps = InMemory(torch.tensor([[[0, 0], [2, -1]], [[3, 3], [3, 3]]], dtype=torch.int16))
    assert class_counts(maps, torch.tensor([0]), 4).tolist() == [2, 0, 1, 0]


def test_adjusting_subtracts_log_frequencies_and_does_not_modify_the_network():
    network = Network(build_backbone("linear", (5,)), PETS.versions)  # two heads: the older one is not adjusted
    x = torch.randn(7, 5)
    before = network(x)
    after = adjusted(network, COUNTS, 1.0)(x)
    assert all(torch.equal(network(x)[name], before[name]) for name in before)
    assert torch.equal(after["v1"], before["v1"])
    frequency = torch.tensor([0.8, 0.1, 0.1, 0.1])  # what never occurs counts as the rarest that does
    expected = (before["v2"].softmax(1) / frequency).log().softmax(1)
    torch.testing.assert_close(after["v2"].softmax(1), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: build_segmenter("tiny", PETS.versions[1:]),
        lambda: SegmentationNetwork(build_segmenter("tiny", PETS.versions[1:]).backbone, PETS.versions[1:], OcrHead),
    ],
)
def test_pixels_are_adjusted_too(make):
    network = make().eval()
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        shift = network(images)["v2"] - adjusted(network, COUNTS, 0.5)(images)["v2"]
    expected = 0.5 * torch.tensor([8.0, 1.0, 1.0, 1.0]).log()
    torch.testing.assert_close(shift - shift[:, 1:2], expected[None, :, None, None].expand_as(shift), atol=1e-4, rtol=0)


def first_stage(tmp_path, adjust):
    torch.set_num_threads(1)
    wanted = experiment(
        "digits-leco", {"method": "ce"}, {"training.batches.steps": "20", "training.finish.adjust": adjust}
    )
    periods, store = periods_of(wanted, tmp_path), Store(tmp_path / "runs")
    (stage,) = plan(wanted, periods).periods[0]
    run_stage(stage, periods, store, Machine("cpu"))
    return stage, periods, store


def test_an_adjustment_changes_the_stored_network_but_not_its_training(tmp_path):
    plain, changed = (stored_network(*first_stage(tmp_path, adjust)) for adjust in ("0", "1"))
    stage, periods, _ = first_stage(tmp_path, "1")
    labels = periods.pool.labels[stage.version]
    counts = class_counts(labels, periods.annotated(0, "label-new").newest.indices, len(periods.until(0).newest))
    assert len(counts.unique()) > 1
    for name, value in adjusted(plain, counts, 1.0).state_dict().items():
        torch.testing.assert_close(changed.state_dict()[name], value)


def test_steps_are_chosen_by_what_the_adjusted_network_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "class_counts", lambda *_: torch.tensor([1, 10**9, 10**9]))
    stage, _, store = first_stage(tmp_path, "2")
    result = store.require(stage.fingerprint).model_dump(mode="json", by_alias=True)
    assert result["validation_score"] == result["validation"][stage.version]["macc"] == pytest.approx(1 / 3)


def test_without_any_label_no_class_is_frequent(tmp_path):
    wanted = experiment("digits-leco", {"method": "ce"}, {"training.finish.adjust": "1"})
    periods = periods_of(wanted, tmp_path)
    (stage,) = plan(wanted, periods).periods[0]
    nothing = InMemory(torch.full((len(periods.pool),), -1))
    void = replace(periods, pool=replace(periods.pool, labels=periods.pool.labels | {stage.version: nothing}))
    with pytest.raises(LecoError, match=r"no sample is labelled in v1"):
        finishing(stage, void, make_job(stage, void, 0, make_fabric("cpu"), None))

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.trainings import some_checkpoint
from torch import Tensor

from leco import LecoError
from leco.data.batches import Steps
from leco.data.benchmarks import load
from leco.data.periods import annotate
from leco.data.views.sets import view_set
from leco.evaluation.evaluate import Candidate, judge
from leco.methods.method import Method
from leco.methods.terms import terms
from leco.models import Network, build_backbone
from leco.settings import Settings
from leco.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from leco.training.loop import Job, Training

STEPS = 12


def scaled(images: Tensor) -> Tensor:
    return images.float() / 255 - 0.5


def make_training(
    method: str = "lpl+fixmatch/cond", strategy: str = "finetune", steps: int = STEPS, **parts: Any
) -> Training:
    """Digits, second period, a tiny network; two threads would add in another order."""
    torch.set_num_threads(1)
    benchmark = load("digits-leco", Path())
    annotated = annotate(benchmark.split(0), 1, "label-new")
    chosen = Method.parse(method)
    ontology = benchmark.ontology
    torch.manual_seed(0)
    versions = ontology.versions if chosen.coarse == "joint" else (ontology.newest,)
    network = Network(build_backbone("wrn-10-1", (1, 8, 8)), versions)
    teacher = Network(build_backbone("wrn-10-1", (1, 8, 8)), [ontology.newest]) if chosen.needs_teacher else None
    settings = Settings().change(optimiser={"learning_rate": (0.05,)}, batches={"evaluate_every": 5}).change(**parts)
    batches = Steps(benchmark.pool, annotated, ontology.evidence(), 8, 0, steps=steps)
    job = Job(batches, terms(chosen), view_set("digits"), scaled, strategy, settings, 0, teacher)

    def validate(model: torch.nn.Module) -> float:
        was_training = model.training
        model.eval()
        indices = annotated.validation.indices
        candidate = Candidate(ontology, benchmark.pool, lambda x, _: model(scaled(x))["v2"].softmax(dim=1))
        *_, judged = judge([candidate], indices, ontology, batch_size=64)
        model.train(was_training)
        return judged.scores(0, ontology)["v2"].macc

    return Training(job, network, validate)


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return (
        one.step == other.step
        and one.notes.model_dump(exclude={"time"}) == other.notes.model_dump(exclude={"time"})
        and one.tensors.keys() == other.tensors.keys()
        and all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)
    )


@pytest.mark.parametrize("method", ["ce", "lpl+fixmatch/cond", "joint+st-soft/filter"])
@pytest.mark.parametrize("killed_after", [1, 4, 5, 11])
def test_a_run_that_was_killed_ends_in_the_same_bits(method, killed_after, tmp_path):
    whole = make_training(method)
    reports = list(whole.run())
    first = make_training(method)
    for report in first.run():
        if report.step == killed_after:
            write_checkpoint(tmp_path, first.checkpoint())
            break
    second = make_training(method)
    found, problems = read_checkpoint(tmp_path)
    assert problems == []
    second.resume(found)
    rest = list(second.run())
    assert same(whole.checkpoint(), second.checkpoint())
    assert [report.losses for report in reports[killed_after:]] == [report.losses for report in rest]


def test_means_continue_over_a_restart():
    whole, first = make_training("lpl"), make_training("lpl")
    expected = [report.means for report in whole.run() if report.means]
    steps = first.run()
    for _ in range(3):  # evaluation comes after the fifth
        next(steps)
    second = make_training("lpl")
    second.resume(first.checkpoint())
    assert [report.means for report in second.run() if report.means] == expected


def test_training_lowers_the_loss_and_keeps_the_best_average():
    training = make_training("ce", steps=122, batches={"evaluate_every": 40})
    reports = list(training.run())
    losses = [report.losses["ce"] for report in reports]
    assert sum(losses[-20:]) < 0.9 * sum(losses[:20])
    measured = {report.step: report.score for report in reports if report.score is not None}
    assert list(measured) == [40, 80, 120, 122]
    assert training.best_score == max(measured.values())
    assert measured[training.best_step] == training.best_score
    training.average.model.load_state_dict(training.best)
    assert training.validate(training.average.model) == training.best_score


def test_frozen_features_do_not_move_at_all():
    training = make_training("lpl", strategy="freeze", optimiser={"weight_decay": 0.1, "learning_rate": (0.05,)})
    before = {name: tensor.clone() for name, tensor in training.network.backbone.state_dict().items()}
    list(training.run())
    after = training.network.backbone.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)  # BatchNorm's statistics included


def test_heads_come_first_and_then_everything():
    training = make_training("ce", strategy="lp-ft", transfer={"head_steps": 3})
    before = training.network.backbone.stem.weight.detach().clone()
    moved = [not torch.equal(before, training.network.backbone.stem.weight) for _ in training.run()]
    assert moved[:3] == [False] * 3
    assert all(moved[3:])


def test_a_loss_that_is_nan_stops_the_run_with_its_name():
    training = make_training("lpl", optimiser={"learning_rate": (1e30,)})
    with pytest.raises(
        LecoError, match=r"step \d+: the loss of the term '(ce|lpl)' is (nan|inf) at a learning rate of"
    ):
        list(training.run())


def test_the_last_good_checkpoint_is_used_where_a_newer_one_is_broken(tmp_path):
    assert read_checkpoint(tmp_path) == (None, [])
    for step in (10, 20, 30):
        write_checkpoint(tmp_path, some_checkpoint(step))
    found, _ = read_checkpoint(tmp_path)
    assert found.step == 30
    newest = max(tmp_path.iterdir(), key=lambda path: torch.equal(_x(path), torch.full((3,), 30.0)))
    for content in (newest.read_bytes()[:-4], newest.read_bytes()[:20], b"", b"\xff" * 100):
        newest.write_bytes(content)
        found, problems = read_checkpoint(tmp_path)
        assert found.step == 20
        assert len(problems) == 1
        assert str(newest) in problems[0]
    write_checkpoint(tmp_path, some_checkpoint(40))  # over the broken one
    assert read_checkpoint(tmp_path)[0].step == 40
    assert len(list(tmp_path.iterdir())) == 2


def _x(path: Path) -> Tensor:
    from safetensors.torch import load_file

    return load_file(path)["network/x"]


def test_a_full_disk_leaves_the_existing_checkpoints(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, some_checkpoint(10))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(LecoError, match="cannot be written: No space left on device"):
        write_checkpoint(tmp_path, some_checkpoint(20))
    assert read_checkpoint(tmp_path)[0].step == 10
    assert len(list(tmp_path.iterdir())) == 1

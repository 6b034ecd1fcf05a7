import torch

from leco.devices import make_fabric
from leco.experiments.experiment import experiment
from leco.experiments.run import build_network, make_job
from leco.experiments.stages import plan
from leco.experiments.train import periods_of
from leco.training.finish import balance_teacher


def job_with_teacher(tmp_path):
    wanted = experiment("digits-leco", {"method": "lpl+st-soft/cond"}, {"training.pseudo_labels.balance": "true"})
    periods = periods_of(wanted, tmp_path)
    stage = plan(wanted, periods).periods[-1][0]
    teacher = build_network(stage, periods)
    with torch.no_grad():
        teacher.heads[-1].bias[0] += 5.0  # it guesses nothing but the first class, where that is possible
    return make_job(stage, periods, 0, make_fabric("cpu"), teacher)


def guesses(job):
    """Expected number of predictions of each class, given the labels of history."""
    steps = job.steps
    ids, newest = steps.history.indices, steps.evidence.ontology.newest.name
    (version,) = steps.history.versions
    evidence = steps.evidence.gather(steps.evidence.ids(steps.samples.labels[version].read(ids), version))
    with torch.no_grad():
        logits = job.teacher(job.normalise(steps.samples.inputs.read(ids)))[newest]
    return (logits + evidence).softmax(dim=1).sum(dim=0)


def test_a_teacher_that_prefers_a_class_is_balanced(tmp_path):
    job = job_with_teacher(tmp_path)
    before = guesses(job)
    balance_teacher(job)
    after = guesses(job)
    assert before[0] > 1.5 * before[1:].max()
    assert after.max() < 2.5 * after.min()

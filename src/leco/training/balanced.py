"""A teacher whose guesses are as frequent as they should be."""

import torch
from torch import nn

from leco.data.draws import Draws
from leco.data.streams import read_batch
from leco.methods.balance import balancing_bias
from leco.training.adjusted import class_counts
from leco.training.loop import Job

_AT_ONCE = 512


@torch.no_grad()
def balance_teacher(job: Job) -> None:
    """Change the bias of the teacher's head so that it guesses every class on history as often as that should occur.

    What a teacher has seen little of, it guesses rarely; within the classes that an old label allows, that need not be.
    """
    steps, teacher = job.steps, job.teacher
    if teacher is None or not len(steps.history.indices):
        return
    head = teacher.heads[-1]  # type: ignore[index]
    assert isinstance(head, nn.Linear)  # pixels are refused before anything is trained
    newest, pool = steps.evidence.ontology.newest, steps.history
    logits, evidence = [], []
    teacher.eval()
    for places in torch.arange(len(pool.indices)).split(_AT_ONCE):  # type: ignore[no-untyped-call]
        batch = read_batch(steps.samples, steps.evidence, pool.indices[places], pool.versions, pool.version[places])
        inputs = job.normalise(job.views.evaluate(batch.inputs, Draws(job.seed, 0, batch.ids)))
        logits.append(teacher(inputs)[newest.name])
        evidence.append(steps.evidence.gather(batch.rows))
    frequencies = class_counts(steps.samples.labels[newest.name], steps.new.indices, len(newest))
    head.bias.add_(balancing_bias(torch.cat(logits), torch.cat(evidence), frequencies))

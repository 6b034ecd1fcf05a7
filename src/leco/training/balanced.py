"""A teacher whose guesses are as frequent as they should be."""

import torch
from torch import nn

from leco.methods.balance import balancing_bias
from leco.training.adjusted import class_counts
from leco.training.devices import place
from leco.training.loop import Job, as_evaluated


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
    newest = steps.evidence.ontology.newest
    place(teacher, job.fabric.device).eval()
    seen = [(teacher(inputs)[newest.name], evidence) for inputs, evidence in as_evaluated(job, steps.history)]
    logits, evidence = (torch.cat(parts) for parts in zip(*seen, strict=True))
    frequencies = class_counts(steps.samples.labels[newest.name], steps.new.indices, len(newest))
    head.bias.add_(balancing_bias(logits, evidence, frequencies))

"""The model card: the README of a bundle, for people who did not train the model."""

from collections.abc import Iterator
from typing import Any

from leco.model.description import Description, Metrics
from leco.ontology.ontology import Ontology
from leco.renamed import MOVED
from leco.text import escape_markdown as plain
from leco.text import markdown_table as table

_MOST_CLASSES = 100  # that are listed
_WEAKEST = 5
_METRICS = {"macc": "mean per-class accuracy", "miou": "mean intersection over union"}


def card(description: Description, ontology: Ontology, metrics: Metrics) -> str:
    """Return the contents of `bundle.json` and `metrics.json` as Markdown."""
    lines = [
        f"# {plain(description.name)}: {plain(description.newest)}",
        "",
        f"A model that {description.modality.purpose}, made with leco {plain(description.leco)}.",
        "",
        *_answers(description, ontology),
        *_data(description),
        *_training(description),
        *_scores(description, metrics),
        *_trials(description),
        *_limits(description, metrics),
        *_use(description),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _answers(description: Description, ontology: Ontology) -> Iterator[str]:
    name, newest = plain(ontology.name), plain(description.newest)
    yield "## Classes"
    yield ""
    yield f"It predicts the classes of {newest}, the newest version of the ontology *{name}* that it knows, and"
    yield "those of older versions, each with the summed probabilities of the newest classes that came from it."
    yield ""
    rows = []
    for version in ontology.versions:
        listed = ", ".join(plain(handle) for handle in version.handles[:_MOST_CLASSES])
        rows.append([plain(version.name), f"{listed}{', …' * (len(version) > _MOST_CLASSES)}", f"{len(version):,}"])
    yield from table(["version", "classes", "number"], 2, rows)
    yield ""
    if description.trained != description.newest:
        yield f"**It was trained for {plain(description.trained)} and upgraded since**: it only distinguishes"
        yield f"the classes of {plain(description.trained)}. Classes that came from one class are equally likely until"
        yield f"it is trained on labels of {newest} (`leco run experiment.yaml --start` this folder)."
        yield ""


def _data(description: Description) -> Iterator[str]:
    yield "## Data"
    yield ""
    rows = [[f"trained on, {_labelled(name)}", f"{count:,}"] for name, count in description.samples.items()]
    rows += [[plain(name), f"{count:,}"] for name, count in description.held_out.items()]
    yield from table(["samples", "number"], 1, rows)
    yield ""


def _labelled(name: str) -> str:
    return "unlabelled" if name == "unlabelled" else f"labelled in {plain(name)}"


def _training(description: Description) -> Iterator[str]:
    config = description.training

    old = {place: name for name, place in MOVED.items()}  # bundles of leco 0.1 have one flat table

    def setting(part: str, name: str) -> Any:
        settings = config.get("training")
        settings = settings if isinstance(settings, dict) else {}
        inner = settings.get(part)
        return inner.get(name) if isinstance(inner, dict) else settings.get(old.get(f"{part}.{name}", ""))

    rates = setting("optimiser", "learning_rate")
    yield "## Training"
    yield ""
    known = {
        "method": config.get("method"),
        "strategy": config.get("strategy"),
        "model": description.model,
        "steps": setting("batches", "steps"),
        "batch size": setting("batches", "size"),
        "learning rate": ", ".join(map(str, rates)) if isinstance(rates, list | tuple) else rates,
        "seed": config.get("seed"),
        "head": None if setting("finish", "head") == "trained" else setting("finish", "head"),
        "logit adjustment": setting("finish", "adjust") or None,
    }
    yield from (f"- {name}: {plain(str(value))}" for name, value in known.items() if value is not None)
    yield ""
    yield "All settings are in `bundle.json`."
    yield ""


def _scores(description: Description, metrics: Metrics) -> Iterator[str]:
    yield "## Scores"
    yield ""
    rows = []
    for part, scores in (("validation", metrics.validation), ("test", metrics.test)):
        for version, found in (scores or {}).items():
            values = ["-" if value is None else f"{100 * value:.1f}" for value in (found.macc, found.miou)]
            rows.append([part, plain(version), *values, f"{found.count:,}"])
    if not rows:
        yield "It has not been evaluated."
        yield ""
        return
    unit = description.modality.unit
    yield from table(["split", "version", "mAcc, %", "mIoU, %", f"n, {unit}"], 2, rows)
    yield ""
    if metrics.validation:
        yield f"The step was chosen by {_METRICS[description.metric]} on validation; every class counts the same."
    if description.trained != description.newest:
        yield "Measured before the upgrade."
    yield ""


def _trials(description: Description) -> Iterator[str]:
    if not description.trials:
        return
    yield "## Compared with"
    yield ""
    rows = []
    for trial in description.trials:
        values = ["-" if value is None else f"{100 * value:.1f}" for value in (trial.validation, trial.test)]
        rows.append([f"{plain(trial.name)}{' (chosen)' * trial.chosen}", plain(trial.method), *values])
    name = {"macc": "mAcc", "miou": "mIoU"}[description.metric]
    yield from table(["trained", "method", f"{name} on validation, %", f"{name} on test, %"], 2, rows)
    yield ""
    if not description.held_out.get("validation"):
        yield "This model is the chosen one, trained again on all labels, those of validation included."
        yield ""


def _limits(description: Description, metrics: Metrics) -> Iterator[str]:
    yield "## Limits"
    yield ""
    yield "- It predicts one of its classes for every input, even one that belongs to none of them."
    yield "- Its scores hold for samples like those of the test set."
    found = (metrics.test or metrics.validation or {}).get(description.newest)
    if found:
        kind = "iou" if description.metric == "miou" else "accuracy"
        seen = [(getattr(row, kind) or 0.0, row) for row in found.per_class if row.support]
        weakest = ", ".join(
            f"{plain(row.name)} ({100 * value:.0f} %, n {row.support:,})"
            for value, row in sorted(seen, key=lambda pair: pair[0])[:_WEAKEST]
        )
        if weakest:
            yield f"- Weakest classes of {plain(description.newest)}: {weakest}."
        if found.absent:
            absent = ", ".join(plain(name) for name in found.absent[:_MOST_CLASSES])
            yield f"- Never tested: {absent}."
    if not metrics.test:
        yield "- There was no test set."
    yield ""


def _use(description: Description) -> Iterator[str]:
    oldest = description.versions[0]
    shown = oldest if oldest.isalnum() else "VERSION"
    yield "## Use"
    yield ""
    inputs = description.modality.example
    if description.modality.has_masks:
        yield f"    leco predict . {inputs} -o masks/"
    else:
        yield f"    leco predict . {inputs} --top 3 -o answers.csv"
        yield f"    leco predict . {inputs} --version {shown}       # in the classes of that version"
    yield "    leco evaluate . labels.csv"
    yield "    leco upgrade . --ontology new.yaml -o ../upgraded"
    yield "    leco export . --onnx -o model.onnx"
    yield ""
    yield "Nothing in this folder is executed when it is loaded."

"""Tasks, labelling configuration and answers of Label Studio.

Every task brings its own choices (a `Choices` tag with a `value`), so an old sample offers only what its old label
leaves possible; "none of these" says that the old label was wrong.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from leco.errors import LecoError
from leco.ontology.files import read_json

if TYPE_CHECKING:
    from leco.planning.batches import Question

LOCAL_FILES = "/data/local-files/?d="  # where Label Studio serves files of its own disk
DOUBT = "none of these"
_LARGEST_FILE = 500_000_000


def tasks(questions: Sequence["Question"], kind: str, prefix: str, model: str) -> list[dict[str, Any]]:
    """A task for each question, with the model's conditioned suggestion as its prediction."""
    found = []
    for question in questions:
        asked = f"It was {question.old_label} ({question.old_version})." if question.old_label else "What is it?"
        data: dict[str, Any] = {
            "sample": question.sample,
            "question": asked,
            "old_version": question.old_version,
            "old_label": question.old_label,
            "choices": [{"value": name} for name in question.choices],
        }
        if kind != "features":
            data["image"] = prefix + quote(question.sample)
        task: dict[str, Any] = {"data": data}
        if kind != "mask":  # a suggestion for a whole image is none for its pixels
            value = {"choices": [question.suggestion]}
            result = [{"from_name": "label", "to_name": "object", "type": "choices", "value": value}]
            task["predictions"] = [{"model_version": model, "score": question.probability, "result": result}]
        found.append(task)
    return found


def labelling_config(kind: str) -> str:
    """What annotators see: `kind` is image, features or mask."""
    shown = '<Text name="object" value="$sample"/>' if kind == "features" else '<Image name="object" value="$image"/>'
    answer = (
        '<BrushLabels name="label" toName="object" value="$choices"/>'
        if kind == "mask"
        else '<Choices name="label" toName="object" value="$choices" choice="single" showInline="true"/>'
    )
    lines = [
        "<View>",
        f"  {shown}",
        '  <Header value="$question"/>',
        f"  {answer}",
        '  <Choices name="doubt" toName="object" choice="multiple">',
        f'    <Choice value="{DOUBT}"/>',
        "  </Choices>",
        "</View>",
    ]
    return "\n".join(lines) + "\n"


def read_export(path: Path) -> list[dict[str, str]]:
    """Answers of a JSON export: sample, label, annotator, time, whether the old label was doubted, or all skipped.

    One record for every annotation; `place` says which task it is from.
    """
    content = read_json(path, _LARGEST_FILE)
    if not isinstance(content, list):
        raise LecoError(f"{path}: is no JSON export of Label Studio: it must be a list of tasks")
    found = []
    for number, task in enumerate(content, start=1):
        try:
            found += _answers_of(task, f"task {number}")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise LecoError(f"{path}: task {number} is not as Label Studio writes it ({error!r})") from None
    return found


def _answers_of(task: dict[str, Any], place: str) -> list[dict[str, str]]:
    sample = str(task["data"]["sample"])
    found = []
    for annotation in task.get("annotations", ()):
        said: dict[str, list[str]] = {"label": [], "doubt": []}
        for result in annotation["result"]:
            if result.get("type") == "brushlabels":
                raise ValueError("masks come back as files: give a CSV with a column `mask`")
            if result.get("type") == "choices" and result.get("from_name") in said:
                said[result["from_name"]] += [str(choice) for choice in result["value"]["choices"]]
        if len(said["label"]) > 1:
            raise ValueError(f"{len(said['label'])} classes are chosen where one is asked for")
        found.append(
            {
                "place": place,
                "sample": sample,
                "label": next(iter(said["label"]), ""),
                "annotator": _who(annotation.get("completed_by")),
                "time": str(annotation.get("updated_at") or annotation.get("created_at") or ""),
                "doubted": "yes" if said["doubt"] else "",
                "skipped": "yes" if annotation.get("was_cancelled") else "",
            }
        )
    return found


def _who(completed_by: Any) -> str:
    """A number, or, in other exports, a table with an address."""
    if isinstance(completed_by, dict):
        return str(completed_by.get("email") or completed_by.get("id") or "")
    return "" if completed_by is None else str(completed_by)

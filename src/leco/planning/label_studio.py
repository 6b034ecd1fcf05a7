"""Tasks, labelling configuration and answers of Label Studio.

Every task brings its own choices (a `Choices` tag with a `value`), so an old sample offers only what its old label
leaves possible; the last one, "none of these", says that the old label was wrong. It is not a `Choices` tag of its own:
Label Studio refuses one that has a single choice.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from leco.data.importers.label_studio import annotations, is_whole, minimal, read_tasks
from leco.errors import LecoError

if TYPE_CHECKING:
    from leco.planning.batches import Question

LOCAL_FILES = "/data/local-files/?d="  # where Label Studio serves files of its own disk
DOUBT = "none of these"
CONTROL = "label"  # what the answers are called


def tasks(questions: Sequence["Question"], kind: str, prefix: str, model: str) -> list[dict[str, Any]]:
    """A task for each question, with the model's conditioned suggestion as its prediction."""
    found = []
    for question in questions:
        asked = f"It was {question.old_label} ({question.old_version})." if question.old_label else "What is it?"
        asked = "What is where?" if kind == "mask" else asked
        data: dict[str, Any] = {
            "sample": question.sample,
            "question": asked,
            "old_version": question.old_version,
            "old_label": question.old_label,
            "choices": [{"value": name} for name in (*question.choices, *([] if kind == "mask" else [DOUBT]))],
        }
        if kind != "features":
            data["image"] = prefix + quote(question.sample)
        task: dict[str, Any] = {"data": data}
        if kind != "mask":  # a suggestion for a whole image is none for its pixels
            value = {"choices": [question.suggestion]}
            result = [{"from_name": CONTROL, "to_name": "object", "type": "choices", "value": value}]
            task["predictions"] = [{"model_version": model, "score": question.probability, "result": result}]
        found.append(task)
    return found


def labelling_config(kind: str) -> str:
    """What annotators see: `kind` is image, features or mask."""
    shown = '<Text name="object" value="$sample"/>' if kind == "features" else '<Image name="object" value="$image"/>'
    answer = (
        f'<BrushLabels name="{CONTROL}" toName="object" value="$choices"/>'
        if kind == "mask"
        else f'<Choices name="{CONTROL}" toName="object" value="$choices" choice="single" showInline="true"/>'
    )
    lines = ["<View>", f"  {shown}", '  <Header value="$question"/>', f"  {answer}", "</View>"]
    return "\n".join(lines) + "\n"


def read_export(path: Path) -> list[dict[str, Any]]:
    """Answers of an export, JSON or JSON-MIN: one record for every annotation; `place` says which task it is from.

    What was drawn is in `regions`, as it stands.
    """
    found = []
    for number, task in enumerate(read_tasks(path), start=1):
        place = f"task {number}"
        whole = is_whole(task)
        data = task.get("data") if whole else task
        if not isinstance(data, Mapping) or not isinstance(data.get("sample"), str):
            raise LecoError(
                f"{path}: {place} is of no batch of `leco batch export`: its data have no `sample`; `leco init` reads "
                "what was labelled otherwise"
            )
        made = list(annotations(path, place, task)) if whole else [(task, minimal(task))]
        for about, choices in made or [(task, {})]:
            regions = () if about.get("was_cancelled") else _drawn(about.get("result" if whole else CONTROL))
            chosen = choices.get(CONTROL, set()) or {name for region in regions for name in _brushes(region)}
            found.append(_record(place, data["sample"], about, chosen) | {"regions": regions})
    return found


def _record(place: str, sample: str, about: Mapping[str, Any], chosen: set[str]) -> dict[str, Any]:
    return {
        "place": place,
        "sample": sample,
        "label": " + ".join(sorted(chosen)),
        "annotator": _who(about.get("completed_by", about.get("annotator"))),
        "time": str(about.get("updated_at") or about.get("created_at") or ""),
    }


def _drawn(results: object) -> tuple[Mapping[str, Any], ...]:
    """The regions among results, whatever they were drawn with; JSON has a `value` in each, JSON-MIN has not."""
    found = []
    for result in results if isinstance(results, list) else ():
        if isinstance(result, Mapping):
            value = result.get("value")
            region = {**result, **value} if isinstance(value, Mapping) else result
            if "rle" in region or any(key.endswith("labels") for key in region):
                found.append(region)
    return tuple(found)


def _brushes(region: Mapping[str, Any]) -> list[str]:
    names = region.get("brushlabels")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _who(completed_by: Any) -> str:
    """A number, or, in other exports, a table with an address."""
    if isinstance(completed_by, Mapping):
        return str(completed_by.get("email") or completed_by.get("id") or "")
    return "" if completed_by is None else str(completed_by)

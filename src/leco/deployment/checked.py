"""JSON files whose content must be of a known form."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from leco.errors import LecoError

_Model = TypeVar("_Model", bound=BaseModel)


def checked(kind: type[_Model], content: Any, path: Path, what: str) -> _Model:
    """Take the content of a file as what it is meant to be; one message says what is wrong."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part)[:40] for part in first["loc"][:6])
        problem = str(first["msg"]).removeprefix("Value error, ")
        raise LecoError(f"{path}: {what}: {f'{place}: ' if place else ''}{problem}") from None

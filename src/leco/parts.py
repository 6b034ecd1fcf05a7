"""A part of the settings, and the types of settings that are written in several ways. Nothing here imports torch."""

import os
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

if TYPE_CHECKING:
    from leco.methods.method import Method


def _as_list(value: Any) -> Any:
    """Convert one learning rate, several, or a comma-separated text to a sequence."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    value = value.tolist() if hasattr(value, "tolist") else value  # arrays
    return value if isinstance(value, list | tuple) else [value]


def _one_or_several(value: Any) -> Any:
    """Convert a comma-separated text to a list, and a list of one number to that number."""
    value = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


_Decay = Annotated[float, Field(ge=0, le=1e6)]
WeightDecays = Annotated[_Decay | Annotated[tuple[_Decay, ...], Field(min_length=1)], BeforeValidator(_one_or_several)]
LearningRates = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1e30)], ...], BeforeValidator(_as_list), Field(min_length=1)
]


def as_text(value: Any) -> Any:
    """Convert a path to text."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class Part(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    def used_by(self, method: "Method", strategy: str) -> Self:
        """Return the part with every setting that this method and strategy ignore at its default.

        So stages that differ only in unused settings are the same stage.
        """
        return self.reset(*self.ignored(method, strategy))

    def ignored(self, method: "Method", strategy: str) -> tuple[str, ...]:
        """Names of the settings that this method and strategy ignore."""
        return ()

    def reset(self, *names: str) -> Self:
        """Return the part with some settings at their defaults."""
        return self.model_copy(update={name: type(self).model_fields[name].default for name in names})

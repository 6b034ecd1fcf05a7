"""A command that was typed wrongly, explained in one line."""

from collections.abc import Sequence
from typing import Any

import typer

from leco.errors import nearest

UsageError: Any = typer.BadParameter.__base__  # typer brings its own click, or uses the one that is installed


def explain(error: Any, root: Any, words: Sequence[str]) -> str:
    """Say which command, option or value is wrong, and what would be right; `root` is the command of all words."""
    path, command = ["leco"], root
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        path, command = [*path, word], command.commands[word]
    place = " ".join(path)
    return f"{place}: {_problem(error, command, words[len(path) - 1 :])} ({place} --help)"


def _problem(error: Any, command: Any, words: Sequence[str]) -> str:
    kind, param = type(error).__name__, getattr(error, "param", None)
    if kind == "NoSuchOption":
        known = [name for each in command.params for name in (*each.opts, *each.secondary_opts) if name[:2] == "--"]
        return f"there is no option {error.option_name}{nearest(error.option_name, known)}"
    if kind == "BadOptionUsage":
        return f"{error.option_name} needs a value"
    if commands := getattr(command, "commands", {}):
        wrong = next((word for word in words if not word.startswith("-")), "")
        return f"there is no command {wrong!r}{nearest(wrong, commands)}"
    if param is None:
        return _sentence(error.format_message())
    name = param.opts[0] if param.param_type_name == "option" else param.metavar or param.name
    return f"{name} is missing" if kind == "MissingParameter" else f"{_given(param, name, words)}: {_sentence(error)}"


def _given(param: Any, name: str, words: Sequence[str]) -> str:
    """An option as it was typed, with its value."""
    for place, word in enumerate(words):
        option, equals, _ = word.partition("=")
        if option in param.opts:
            return word if equals else " ".join(words[place : place + 2])
    return name


def _sentence(message: object) -> str:
    """What typer says, as a part of a line."""
    text = str(message).rstrip(".")
    return text[:1].lower() + text[1:]

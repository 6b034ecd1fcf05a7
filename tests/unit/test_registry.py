"""Registries, and modules that a user names."""

import sys

import pytest

from leco import LecoError
from leco.registry import IMPORTED, Registry, import_modules


def thing() -> str:
    return "mine"


def test_a_name_belongs_to_the_module_that_registered_it():
    things: Registry = Registry("thing")
    things.register("one", "leco.somewhere")(thing)
    with pytest.raises(LecoError, match=r"the thing 'one' is already registered by leco\.somewhere"):
        things.register("one")(thing)
    things.register("two")(thing)
    things.register("two")(thing)  # a notebook runs its cell again
    assert (things.module("one"), things.module("two")) == ("", __name__)
    assert list(things) == ["one", "two"]
    assert "three" not in things


def test_a_name_that_is_not_registered_is_refused_with_the_closest():
    things: Registry = Registry("thing")
    things.register("cosine")(thing)
    with pytest.raises(LecoError, match="'cosin' is not a registered thing; did you mean 'cosine'"):
        things["cosin"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [("import nowhere_at_all", "No module named"), ("raise ValueError('broken')", "broken"), ("exit(0)", "0")],
)
def test_a_module_that_cannot_be_imported_is_one_message(content, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_alone.py").write_text(content)
    path = list(sys.path)
    with pytest.raises(LecoError, match=f"--import mine_alone: cannot be imported: .*{problem}"):
        import_modules(["mine_alone"])
    assert sys.path == path
    assert "mine_alone" not in IMPORTED

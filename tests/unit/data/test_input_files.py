"""Files, folders and patterns on the command line."""

from pathlib import Path

import pytest

from leco import LecoError
from leco.data.input_files import Given, given_files


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    for name in ("b.png", "a.PNG", "sub/c.png", "sub/notes.txt", ".hidden/d.png", "sub/.e.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        (".", ["a.PNG", "b.png", "sub/c.png"]),
        ("sub", ["c.png"]),
        ("*.png", ["b.png"]),
        ("**/*.png", ["b.png", "sub/c.png"]),
        ("sub/*", ["c.png"]),
        ("sub/notes.txt", ["notes.txt"]),  # named, so whatever its suffix
    ],
)
def test_files_are_found_in_a_fixed_order_under_their_relative_names(folder, argument, names):
    found = list(given_files([argument], (".png",)))
    assert [file.name for file in found] == names
    assert all(isinstance(file, Given) and file.path.is_file() for file in found)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("", "an input is empty; is a shell variable unset?"),
        ("gone.png", "gone.png: no such file"),
        ("*.jpg", r"*.jpg: matches no files with the suffix .jpg"),
        ("sub", "sub: has no files with the suffix .jpg"),
    ],
)
def test_an_argument_that_matches_nothing_is_an_error_among_the_others(folder, argument, message):
    found = list(given_files([argument, "b.png"], (".jpg",)))
    assert isinstance(found[0], LecoError)
    assert str(found[0]) == message
    assert found[1] == Given(Path("b.png"), "b.png")

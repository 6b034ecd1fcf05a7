"""Files, folders and patterns on the command line."""

import os
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


def test_what_is_named_like_a_file_but_is_none_is_an_error_each(folder):
    (folder / "sub" / "gone.png").symlink_to(folder / "nowhere.png")
    (folder / "sub" / "empty.png").mkdir()
    (folder / "sub" / "full.png").mkdir()
    (folder / "sub" / "full.png" / "f.png").touch()
    os.mkfifo(folder / "sub" / "pipe.png")
    for argument, beside in (("sub", ["c.png", "full.png/f.png"]), ("sub/*", ["c.png"])):
        found = list(given_files([argument], (".png",)))
        assert [file.name for file in found if isinstance(file, Given)] == beside
        problems = "\n".join(str(file) for file in found if isinstance(file, LecoError))
        assert "sub/gone.png: is a broken link" in problems
        assert "sub/empty.png: is a folder; rename it" in problems
        assert "sub/pipe.png: is not a regular file" in problems
        assert ("full.png" in problems) == (argument == "sub/*")


def test_a_link_to_a_folder_elsewhere_is_an_error_and_is_followed_where_it_is_named(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "g.png").touch()
    (folder / "sub" / "inside").symlink_to(folder / "sub")
    (folder / "sub" / "outside").symlink_to(elsewhere)
    file, problem = sorted(given_files(["sub"], (".png",)), key=lambda found: isinstance(found, LecoError))
    assert file == Given(Path("sub/c.png"), "c.png")
    assert str(problem) == "sub/outside: is a link to a folder, and is not followed; pass it as an input"
    assert [file.name for file in given_files(["sub/outside"], (".png",))] == ["g.png"]


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

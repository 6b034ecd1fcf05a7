"""Files are written whole or not at all, and read only if they are what they should be."""

import fcntl
import os
from pathlib import Path

import pytest

from leco import LecoError, io
from leco.io import as_path, from_json, read_json, read_text, replacing, write_bytes, write_text


def test_a_home_that_does_not_exist_is_an_ordinary_name():
    assert as_path("store", "~nobody-of-this-name/runs") == Path("~nobody-of-this-name/runs")


def test_text_is_read_without_its_byte_order_mark(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffcafé".encode())
    assert read_text(tmp_path / "a.txt", 100) == "café"


def test_files_that_cannot_be_read_say_why(tmp_path):
    with pytest.raises(LecoError, match=r"missing\.txt: no such file"):
        read_text(tmp_path / "missing.txt", 10)
    with pytest.raises(LecoError, match="is a folder"):
        read_text(tmp_path, 10)
    (tmp_path / "latin.txt").write_bytes(b"name: x\nversions: [caf\xe9]\n")
    with pytest.raises(LecoError, match=r"latin\.txt:2: byte 0xe9 is not UTF-8"):
        read_text(tmp_path / "latin.txt", 100)
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(1_000_000_000)  # sparse: no disk is used
    with pytest.raises(LecoError, match="too large: 1000 MB; the limit is 32 MB"):
        read_text(tmp_path / "huge.txt", 32_000_000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_neither_read_nor_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LecoError, match="not a regular file"):
        read_text(tmp_path / "pipe", 10)
    with pytest.raises(LecoError, match="not a regular file; name a file"):
        write_text(tmp_path / "pipe", "x")


def test_writing_through_a_link_keeps_the_link(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    with pytest.raises(LecoError, match="does not exist"):
        write_bytes(tmp_path / "missing" / "a.txt", b"x")
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(LecoError, match="cannot be written: it is a folder"):
        write_bytes(tmp_path / "a.txt", b"x")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    with pytest.raises(LecoError, match="cannot be written"):
        write_bytes(tmp_path / "loop.txt", b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "loop.txt"]


def write_half(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_what_is_interrupted_leaves_the_old_content(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "a.txt")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"a\.json:1: not valid JSON: "),
        ('{"a": 1,\n "b": {"c": 1,\n "c": 2}}', r"a\.json:3: duplicate key 'c'"),
        ("[" * 100_000, r"a\.json:1: not valid JSON: nested too deeply"),
        ("1" * 5_000, r"a\.json:1: not valid JSON: .* a number with too many digits"),
    ],
)
def test_json_that_is_wrong_is_named_with_its_line(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(LecoError, match=message):
        read_json(tmp_path / "a.json", 1_000_000)


def test_json_that_is_right_is_read():
    assert from_json('{"a": [1, 2.5, null, true, "x"]}') == {"a": [1, 2.5, None, True, "x"]}


def test_only_files_with_the_pattern_and_empty_ones_are_replaceable(tmp_path):
    path = tmp_path / "report.md"
    io.check_replaceable(path, rb"\A# Report", overwrite=False)
    for content in (b"", b"# Report\n"):
        path.write_bytes(content)
        io.check_replaceable(path, rb"\A# Report", overwrite=False)
    path.write_bytes(b"# Thesis\n## Report\n")
    with pytest.raises(
        LecoError, match=r"report\.md: was not written by leco; choose another file, or replace it with"
    ):
        io.check_replaceable(path, rb"\A# Report", overwrite=False)
    io.check_replaceable(path, rb"\A# Report", overwrite=True)


@pytest.fixture
def leftovers(tmp_path) -> tuple[Path, Path]:
    """A temporary file and a temporary folder of processes that were killed an hour ago."""
    file, folder = tmp_path / ".leco-1-0123abcd.tmp", tmp_path / ".leco-1-4567cdef"
    file.write_text("half")
    folder.mkdir()
    (folder / "model.safetensors").write_text("half")
    for path in (file, folder):
        os.utime(path, (0, 0))
    io.remove_leftovers.cache_clear()
    return file, folder


def test_what_killed_processes_left_is_removed_by_the_next_one(leftovers, tmp_path):
    kept = [tmp_path / name for name in (".leco-mine.tmp", ".leco-1-0123abcd.txt", "leco-1-0123abcd.tmp")]
    for path in kept:
        path.write_text("mine")
        os.utime(path, (0, 0))
    io.write_text(tmp_path / "new.txt", "new")
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / "new.txt"])


def test_what_a_process_still_writes_is_kept(leftovers, tmp_path):
    handles = [os.open(path, os.O_RDONLY) for path in leftovers]
    for handle in handles:
        fcntl.flock(handle, fcntl.LOCK_EX)
    io.write_text(tmp_path / "new.txt", "new")
    assert all(path.exists() for path in leftovers)
    for handle in handles:
        os.close(handle)


def test_a_link_with_the_name_of_a_leftover_is_not_followed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    (tmp_path / "there").mkdir()
    for name in (".leco-1-0123abcd", ".leco-1-0123abcd.tmp"):
        (tmp_path / "there" / name).symlink_to(tmp_path / "mine")
        os.utime(tmp_path / "there" / name, (0, 0), follow_symlinks=False)
    io.write_text(tmp_path / "there" / "new.txt", "new")
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_digests_name_the_first_file_that_changed(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    assert io.changed(tmp_path) is None  # of an earlier version
    io.write_sums(tmp_path, "ab")
    assert io.changed(tmp_path) is None
    (tmp_path / "b").write_text("c")
    assert (io.changed(tmp_path), io.changed(tmp_path, "a"), io.changed(tmp_path, "other")) == ("b", None, "other")
    (tmp_path / io.SUMS).write_text("0  ../../etc/passwd\n")
    assert io.changed(tmp_path) == "../../etc/passwd"

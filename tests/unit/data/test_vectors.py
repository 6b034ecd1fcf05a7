import numpy as np
import pytest
from tests.manifests import csv

from leco import LecoError
from leco.data.manifest.manifest import read_manifest
from leco.data.vectors import SUFFIXES, load_features, vector_blocks


def test_features_may_be_vectors_or_rows_of_a_table(tmp_path, street):

    table = np.random.default_rng(0).normal(size=(5, 3))
    np.save(tmp_path / "table.npy", table)
    np.save(tmp_path / "one.npy", np.arange(3))
    path = csv(tmp_path, "features,label,version\ntable.npy#04,road,v1\none.npy,bus,v1\n./table.npy#0,,")
    manifest, _ = read_manifest(path, street)
    assert (manifest.kind, manifest.inputs) == ("features", ("table.npy#4", "one.npy", "table.npy#0"))
    expected = np.stack([table[4], np.arange(3), table[0]]).astype(np.float32)
    np.testing.assert_array_equal(load_features(manifest.root, manifest.inputs), expected)


def test_bad_features_are_named(tmp_path, street):
    table = np.ones((6, 4))
    table[1, 2], table[2, 0], table[3, 3] = np.nan, -np.inf, 1e300
    np.save(tmp_path / "t.npy", table)
    np.save(tmp_path / "short.npy", np.ones(3))
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    np.save(tmp_path / "text.npy", np.array(["a"]))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "z.npz", a=np.ones(4))
    (tmp_path / "zip.npy").write_bytes((tmp_path / "z.npz").read_bytes())
    (tmp_path / "cut.npy").write_bytes((tmp_path / "t.npy").read_bytes()[:150])
    (tmp_path / "junk.npy").write_text("hello")
    expected = {
        "t.npy#0": "",
        "t.npy#5": "",
        "t.npy#1": "value 2 is nan",
        "t.npy#2": "value 0 is -inf",
        "t.npy#3": "value 3 is 1e+300, too large for 32 bits",
        "t.npy#6": "row 6 is out of range; the last row is 5",
        "t.npy": "has 6 vectors; append a row, `#0` to `#5`",
        "short.npy": "has 3 values, but most vectors have 4",
        "short.npy#0": "is a single vector; remove `#0`",
        "cube.npy": "has the shape (2, 2, 2)",
        "text.npy": "contains <U1, not numbers",
        "objects.npy": "contains Python objects",
        "zip.npy": "is an archive of arrays (.npz)",
        "cut.npy#0": "is not a .npy array",
        "junk.npy": "contains Python objects",
        "t.txt": "is neither `file.npy` nor `file.npy#ROW`",
        "t.npy#-1": "is neither `file.npy`",
        "gone.npy#3": "no such file",
    }
    path = csv(tmp_path, "features,label,version\n" + "\n".join(f"{name},road,v1" for name in expected))
    manifest, problems = read_manifest(path, street, skip_bad=True)
    found = {problem.file: str(problem) for problem in problems.found}
    for row, (name, message) in enumerate(expected.items(), start=2):
        assert (name in found) == bool(message), name
        assert not message or f"row {row}: {name}: {message}" in found[name], name
    assert manifest.inputs == ("t.npy#0", "t.npy#5")


def write_numbers(folder, suffix: str, vectors: np.ndarray):
    path = folder / f"x{suffix}"
    if suffix == ".npz":
        np.savez(path, a=vectors[:3], b=vectors[3])
    elif suffix == ".npy":
        np.save(path, vectors)
    else:
        lines = [",".join(map(str, row)) for row in vectors.tolist()]
        path.write_text("\n".join(["first,second", *lines[:2], "", *lines[2:]]) + "\n")
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_of_vectors_are_read_in_blocks(tmp_path, suffix):
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    names, blocks = zip(*vector_blocks(write_numbers(tmp_path, suffix, vectors), "x", 2), strict=True)
    np.testing.assert_array_equal(np.concatenate(blocks), vectors)
    archive = ["x/a#0", "x/a#1", "x/a#2", "x/b"]
    assert [n for some in names for n in some] == (archive if suffix == ".npz" else [f"x#{n}" for n in range(4)])


def test_rows_of_csv_that_are_not_vectors_are_errors_between_those_that_are(tmp_path):
    (tmp_path / "x.csv").write_bytes(b'1,2\n3\n"4"5,6\n\xff,7\nx,8\n9,10\n')
    found = list(vector_blocks(tmp_path / "x.csv", "x", 2))
    errors = [str(error).removeprefix(f"{tmp_path / 'x.csv'}:") for error in found if isinstance(error, LecoError)]
    assert errors[0] == " row 2 has 1 values, but the model takes 2"
    assert errors[1].startswith("3: not valid CSV")
    assert errors[2] == " row 4 is not valid UTF-8; save the file as UTF-8"
    ((names, block),) = (some for some in found if not isinstance(some, LecoError))
    assert names == ["x#0", "x#4", "x#5"]
    np.testing.assert_array_equal(block, [[1, 2], [np.nan, 8], [9, 10]])


def test_vectors_of_another_length_or_format_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    (error,) = vector_blocks(tmp_path / "x.npy", "x.npy", 2)
    assert str(error) == "x.npy: vectors have 3 values, but the model takes 2"
    with pytest.raises(LecoError, match=r"valid: \.npy, \.npz, \.csv"):
        list(vector_blocks(tmp_path / "x.txt", "x.txt", 2))

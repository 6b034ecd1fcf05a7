"""`leco data`, as a user would run it."""

import json
from functools import partial

import numpy as np
import pytest
from PIL import Image
from tests import commands
from tests.manifests import csv, write_image, write_mask

from leco import LecoError
from leco.cli.data import check

leco = partial(commands.leco, "data")


def test_list_names_every_benchmark_and_what_it_needs():
    result = leco("list")
    assert result.returncode == 0, result.stderr
    for name in ("digits-leco", "cifar-leco-10k", "inat-4tp-leco", "mapillary-leco-2.5k", "camvid-leco", "cub-leco"):
        assert name in result.stdout


def test_show_writes_a_contact_sheet_and_the_long_tail(tmp_path):
    result = leco("show", "digits-leco", "-o", tmp_path)
    assert result.returncode == 0, result.stderr
    assert "200 + 50" in result.stdout
    for kind in ("samples", "classes"):
        with Image.open(tmp_path / f"digits-leco-{kind}.png") as picture:
            assert picture.width > 300


@pytest.mark.data
@pytest.mark.parametrize("name", ["cub-leco", "camvid-leco"])
def test_show_takes_features_and_masks(name, data_root, tmp_path):
    result = leco("show", name, "--data", data_root, "-o", tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / f"{name}-samples.png").exists() == (name == "camvid-leco")
    assert (tmp_path / f"{name}-classes.png").exists()


def test_split_writes_an_index_file_that_is_the_same_for_the_same_seed(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert leco("split", "digits-leco", "--seed", seed, "-o", tmp_path / f"{name}.json").returncode == 0
    prints = [json.loads((tmp_path / f"{name}.json").read_text())["fingerprint"] for name in "abc"]
    assert prints[0] == prints[1] != prints[2]


BAD = {
    "unknown": (["show", "digit-leco"], "'digit-leco' is not a benchmark; did you mean 'digits-leco'?"),
    "missing": (
        ["show", "cifar-leco"],
        "cifar-leco-10k needs CIFAR-100, but data/cifar-100-python/train does not exist",
    ),
    "no folder": (["show", "digits-leco", "-o", "nowhere"], "nowhere: no such folder"),
    "too large": (["split", "digits-leco", "--size", "9999", "-o", "s.json"], "there are 1,200; use a size of at most"),
    "not to be fetched": (["fetch", "inat-leco"], "inat-leco cannot be fetched: it needs Semi-iNat 2021"),
    "nothing to fetch": (["fetch", "digits-leco"], "digits-leco needs no data, so there is nothing to fetch"),
    "no split": (["show", "digits-leco", "--split", "s.json"], "s.json: no such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_gives_one_message_and_writes_nothing(case, tmp_path):
    arguments, message = BAD[case]
    commands.assert_refused(["data", *arguments], message, tmp_path)


def test_check_lists_all_problems_at_once_and_can_skip_them(tmp_path):
    (tmp_path / "o.yaml").write_text("versions:\n  - {name: v1, classes: [dog]}\n  - {name: v2, classes: [dog, cat]}\n")
    for name in "abc":
        Image.fromarray(np.full((4, 4, 3), ord(name), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "c.png").write_bytes((tmp_path / "c.png").read_bytes()[:40])
    rows = ["image,label,version", "a.png,dog,v1", "b.png,dgo,v2", "c.png,cat,v2", "d.png,cat,v3", "../e.png,cat,v2"]
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    result = leco("check", "labels.csv", "--ontology", "o.yaml", cwd=tmp_path)
    assert result.returncode == 2
    for row in ("row 3", "row 4", "row 5", "row 6"):
        assert row in result.stderr
    assert "did you mean 'dog'?" in result.stderr
    skipped = leco("check", "labels.csv", "--ontology", "o.yaml", "--skip-bad", cwd=tmp_path)
    assert skipped.returncode == 0, skipped.stderr
    assert "dropped 4 of 5 rows" in skipped.stdout


@pytest.fixture
def street_file(tmp_path, street):
    """The ontology, beside four images."""
    for number, name in enumerate("abcd"):
        write_image(tmp_path / f"{name}.png", number)
    street.save(tmp_path / "street.yaml")
    return tmp_path / "street.yaml"


def test_check_counts_samples_labels_and_periods(tmp_path, street_file, capsys):
    rows = "a.png,road,v1,,0\nb.png,bus,v1,test,\nc.png,,,,\nd.png,buss,v1,,"
    path = csv(tmp_path, f"image,label,version,split,period\n{rows}")
    with pytest.raises(LecoError) as error:
        check(path, street_file)
    assert "\n" not in str(error.value)
    assert "row 5: d.png: label 'buss' is not a class of v1; did you mean 'bus'?" in capsys.readouterr().err
    check(path, street_file, skip_bad=True, decode=False)
    output = capsys.readouterr().out
    assert "dropped 1 of 4 rows" in output
    assert "3 samples (images): 2 train, 1 test" in output
    assert "1 without a label; periods: 2 none, 1 TP0" in output
    assert "1 of 8" in output
    assert "note: 1 test samples have no label of v3" in output
    assert output.endswith("ok, but no file was decoded\n")


def test_check_takes_masks_and_folders_too(tmp_path, street_file, capsys):
    write_mask(tmp_path / "m.png", np.zeros((4, 6)))
    check(csv(tmp_path, "image,mask,version\na.png,m.png,v1\nb.png,,"), street_file)
    assert "1 masks" in capsys.readouterr().out
    write_image(tmp_path / "tree" / "v2" / "road" / "a.png")
    check(tmp_path / "tree", street_file)
    assert "1 samples (images)" in capsys.readouterr().out

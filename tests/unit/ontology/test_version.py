import unicodedata

import numpy as np
import pandas as pd
import pytest

from leco import LecoError, Ontology, Version
from leco.ontology.changes import differences

COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")


@pytest.mark.parametrize(("old", "new"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_names_are_the_same_class_however_their_accents_are_spelled_and_stay_as_written(old, new):
    classes = {new: None, "bar": {"from": new}, "tea": {"from": "b"}}
    content = {"versions": [{"name": "v1", "classes": [old, "b"]}, {"name": "v2", "classes": classes}]}
    ontology = Ontology.from_dict(content)
    v1, v2 = ontology.versions
    assert (v1.classes[0], v2.classes[0], v2.ids[0]) == (old, new, old)
    assert v2.encode([old, new, "tea"]).tolist() == [0, 0, 2]
    assert [change.kind for change in ontology.changes("v1", "v2")] == ["carved", "replaced"]
    assert Ontology.from_dict(ontology.to_dict()).fingerprint == ontology.fingerprint
    other = {"versions": [{"name": "v1", "classes": [new, "b"]}, {"name": "v2", "classes": classes}]}
    assert differences(ontology, Ontology.from_dict(other)) == []


@pytest.mark.parametrize("classes", [[COMPOSED, DECOMPOSED], {COMPOSED: None, DECOMPOSED: None}])
def test_a_class_that_is_given_in_two_spellings_is_refused(classes):
    with pytest.raises(LecoError, match="duplicate class"):
        Ontology.from_dict({"versions": [{"name": "v1", "classes": classes}, {"name": "v2", "classes": ["x"]}]})


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["bus", "", None, float("nan"), "road"], [1, -1, -1, -1, 0]),
        (pd.Series(["bus", None, "void"]), [1, -1, -1]),
        (np.array([1, -1], dtype=np.int8), [1, -1]),
        (np.array(["road", "bus"]), [0, 1]),
        ([], []),
        (["bus", float("nan")], [1, -1]),
        (pd.Series([1, None]), [1, -1]),
        (pd.Series([1, None], dtype="Int64"), [1, -1]),
        (pd.Series(["bus", None], dtype="string"), [1, -1]),
        (np.ma.array([0, 1], mask=[False, True]), [0, -1]),
        ([np.float32(1), np.float32("nan")], [1, -1]),
        ([[0, 1], [1, -1]], [[0, 1], [1, -1]]),
    ],
)
def test_labels_are_encoded_whatever_holds_them(labels, expected):
    version = Version("v1", ("road", "bus"), ignored=("void",))
    assert version.encode(labels).tolist() == expected


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["road", "buss"], r"position 1: 'buss' is not a class of v1; did you mean 'bus'\?"),
        ([0, 2], "label 2 at position 1 is not a class index of v1: valid are 0 to 1"),
        ([-2], "label -2 at position 0"),
        ([0.5], r"label 0.5 at position 0 is neither"),
        ([True, False], "neither a class name"),
        ([0, None, 7], "label 7 at position 2"),
        ([["road", "bus"], ["road", "x"]], r"label at position \(1, 1\): 'x' is not a class"),
        ([10**30], "at position 0 is not a class index"),
        (np.array([2**64 - 1], dtype=np.uint64), "label 18446744073709551615 at position 0"),
        ([np.zeros(2), np.zeros(3)], "neither a class name"),
        ("road", "labels of v1 must be a sequence, not 'road'"),
    ],
)
def test_a_label_that_is_no_class_is_named_with_its_place(labels, message):
    with pytest.raises(LecoError, match=message):
        Version("v1", ("road", "bus")).encode(labels)

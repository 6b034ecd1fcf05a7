"""Against PyYAML, which knows no lines and is slower."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from leco import strict_yaml
from leco.errors import TextError
from leco.strict_yaml import Plain

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)
CONTENTS = st.recursive(
    TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=12
)


@given(CONTENTS)
def test_text_survives_being_written_and_read(content):
    text = yaml.safe_dump(content, default_style='"', allow_unicode=True)
    assert strict_yaml.read(text) == yaml.load(text, yaml.BaseLoader) == content


@pytest.mark.parametrize(
    ("text", "kind"),
    [("no", "a boolean"), ("1.0", "a number"), ("0x1F", "a number"), ("2020-01-01", "a date"), ("<<", "a merge key")],
)
def test_words_that_yaml_takes_for_something_else_keep_their_text(text, kind):
    assert strict_yaml.read(f"a: {text}") == {"a": Plain(text, kind)}
    assert strict_yaml.read(f"a: '{text}'") == {"a": text}
    assert str(strict_yaml.read(text)) == text


def test_nothing_is_none_and_a_list_may_be_empty():
    assert strict_yaml.read("") is None
    assert strict_yaml.read("a: \nb: ~\nc: []\n") == {"a": None, "b": None, "c": []}


def test_every_place_has_its_line():
    lines: dict = {}
    strict_yaml.read("a:\n  - b\n  - c: d\ne: f\n", lines=lines)
    assert lines == {(): 1, ("a",): 1, ("a", 0): 2, ("a", 1): 3, ("a", 1, "c"): 3, ("e",): 4}
    until: dict = {}
    strict_yaml.read("a: 1\nb: 2\nc: 3\n", ("b",), until)
    assert until == {(): 1, ("a",): 1, ("b",): 2}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\na: 2\n", 2, "duplicate key 'a'"),
        ("a: &x 1\nb: *x\n", 2, "anchors and aliases (& and *) are not supported; write the value out"),
        ("a: !!set {}\n", 1, "tags are not supported: tag:yaml.org,2002:set"),
        ("a\n---\nb\n", 2, "several YAML documents in one file; keep one"),
        ("? [a]\n: b\n", 1, "a key must be text, not a mapping or a list"),
        ("a: b\n~: c\n", 2, 'empty key; if the text null is meant, quote it: "null"'),
        ("[" * 20, 1, "nested more than 12 levels deep"),
        ("a: \x07\n", 1, "the character U+0007 is not allowed in YAML"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_line(text, line, problem):
    with pytest.raises(TextError) as error:
        strict_yaml.read(text)
    assert (error.value.line, error.value.problem) == (line, problem)

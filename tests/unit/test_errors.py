from leco.errors import LecoError, TextError, and_more, closest, nearest


def test_the_closest_value_is_suggested_or_the_first_few_are_listed():
    names = [f"class-{n}" for n in range(10)]
    assert nearest("clas-3", names) == "; did you mean 'class-3'?"
    listed = ", ".join(repr(name) for name in names[:8])
    assert nearest("zebra", names) == f"; valid: {listed}, … and 2 more"
    assert nearest("zebra", []) == ""


def test_very_many_candidates_are_searched_by_length():
    names = [f"{'x' * (n % 50)}{n}" for n in range(100_000)]
    assert closest("quick-brown-fox", [*names, "quick-brown-fx"], 0.9) in ("quick-brown-fx", None)
    assert closest("abc", ["abd"] * 5 + ["zzz"] * 5_000, 0.6) == "abd"


def test_items_beyond_the_limit_are_counted_and_not_even_written():
    class Slow:
        def __str__(self) -> str:
            raise AssertionError("beyond the limit")

    assert and_more([1, 2, *[Slow()] * 1_998], 2) == ["1", "2", "… and 1,998 more"]
    assert and_more(["a", "b"], 2) == ["a", "b"]
    assert and_more([], 2) == []


def test_an_error_in_a_text_is_an_error_of_input():
    error = TextError(3, "not valid")
    assert isinstance(error, LecoError)
    assert (str(error), error.line, error.problem) == ("line 3: not valid", 3, "not valid")

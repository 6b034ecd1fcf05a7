"""The paper's numbers: complete, and as they are in the paper where its source is at hand."""

import csv
import re
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from importlib.resources import files
from itertools import combinations
from typing import get_args

import pytest

from leco.data.benchmarks import BENCHMARKS
from leco.data.periods import Annotation
from leco.errors import LecoError
from leco.methods.method import ALL_METHODS, Method
from leco.paper import TABLES, Key, cells, disagreements, table, value_of
from leco.settings import Strategy

PRINTED = [name for name in TABLES if name != "text"]


def one(benchmark, method="ce", strategy="finetune", annotation="label-new", period=1):
    (cell,) = value_of(benchmark, Key(period, method, strategy, annotation))
    return str(cell)


@pytest.mark.parametrize("name", TABLES)
def test_cells_speak_the_words_of_the_package(name):
    for cell in cells(name):
        assert str(Method.parse(cell.method)) == cell.method
        assert BENCHMARKS[cell.benchmark].size == cell.size
        assert 0 <= cell.period < len(BENCHMARKS[cell.benchmark].classes)
        assert cell.metric == ("miou" if BENCHMARKS[cell.benchmark].modality == "segmentation" else "macc")
        if cell.period == 0:
            assert (cell.annotation, cell.strategy, cell.method) == (None, None, "ce")
        else:
            assert cell.annotation in get_args(Annotation)
            assert cell.strategy in (*get_args(Strategy), "random")
            assert cell.annotation == "label-new" or cell.method == "ce"
        assert 0 < cell.value < 100
        assert cell.std is None or 0 < cell.std < 2
        assert (cell.std is None) == (cell.metric == "miou" or name == "text")


@pytest.mark.parametrize("name", PRINTED)
def test_no_table_has_a_cell_twice(name):
    assert max(Counter((cell.benchmark, cell.key) for cell in cells(name)).values()) == 1


def test_every_combination_is_there_for_every_benchmark():
    every = {str(method) for method in ALL_METHODS}
    hard = {str(method) for method in ALL_METHODS if method.pseudo in ("none", "st-hard")}
    assert (len(every), len(hard)) == (39, 12)
    for name, expected in (("combinations", every), ("combinations-mapillary", hard)):
        for benchmark in {cell.benchmark for cell in cells(name)}:
            there = [cell for cell in cells(name) if cell.benchmark == benchmark]
            assert {cell.method for cell in there if cell.annotation == "label-new"} == expected
            assert len(there) == len(expected) + 2  # TP0 and all-fine


def test_the_main_tables_are_parts_of_the_complete_ones():
    for name in ("baseline", "ssl-joint", "hierarchy"):
        part, whole = (
            {(cell.benchmark, cell.key, str(cell)) for cell in cells(table)} for table in (name, f"{name}-complete")
        )
        assert part <= whole


def test_numbers_typed_from_the_paper_are_found():
    assert one("cifar-leco-1k", period=0) == "50.92 ± 0.89"
    assert one("cifar-leco-2k", strategy="freeze", annotation="relabel-old") == "33.69 ± 1.44"
    assert one("cifar-leco-2k", strategy="scratch", annotation="all-fine") == "52.78 ± 0.35"
    assert one("cifar-leco-10k", strategy="scratch") == "65.40 ± 0.53"
    assert one("inat-leco", strategy="freeze", annotation="relabel-old") == "54.60 ± 0.49"
    assert one("inat-leco", annotation="all-fine") == "84.51 ± 0.66"
    assert one("mapillary-leco-9k", period=0) == "44.14"
    assert one("mapillary-leco-9k", annotation="relabel-old") == "35.01"
    assert one("mapillary-leco-2.5k", strategy="random") == "27.24"
    assert one("cifar-leco-10k", "ce+st-soft") == "69.86 ± 0.30"
    assert one("cifar-leco-1k", "joint+st-hard") == "35.27 ± 0.64"
    assert one("inat-leco", "joint") == "82.98 ± 0.33"
    assert one("cifar-leco-2k", "lpl+fixmatch/filter") == "49.44 ± 0.22"
    assert one("cifar-leco-10k", "lpl+st-hard/cond") == "70.42 ± 0.23"
    assert one("inat-leco", "lpl+pl/cond") == "84.16 ± 0.19"
    assert one("mapillary-leco-9k", "lpl+st-hard/filter") == "36.12"
    assert one("cifar-leco-1k", "ce+pl/cond") == "37.40 ± 1.19"
    assert one("cifar-leco-2k", "joint+fixmatch/filter") == "48.23 ± 1.21"
    assert one("cifar-leco-10k", "lpl+st-soft") == "68.96 ± 0.27"
    assert one("inat-leco", "joint+st-hard/cond") == "84.37 ± 0.39"
    assert one("inat-leco", "lpl+st-hard") == "79.07 ± 0.48"
    assert one("mapillary-leco-2.5k", "lpl+st-hard") == "31.65"
    assert one("mapillary-leco-9k", "joint+st-hard/cond") == "35.70"
    assert one("inat-4tp-leco", period=0) == "46.6 ± 1.2"
    assert one("inat-4tp-leco", strategy="scratch", annotation="all-fine", period=2) == "63.8 ± 0.3"
    assert one("inat-4tp-leco", annotation="relabel-old", period=3) == "63.1 ± 0.4"
    assert one("inat-4tp-leco", "lpl+fixmatch/cond", period=2) == "71.0 ± 0.8"
    assert one("inat-4tp-leco", "joint+fixmatch", period=1) == "64.6 ± 0.8"


def test_what_the_paper_does_not_have_is_not_found():
    assert value_of("cifar-leco-10k", Key(1, "lpl", "scratch")) == []
    assert value_of("digits-leco", Key(0)) == []


def test_a_table_is_found_by_name_or_number_and_an_unknown_one_is_refused():
    assert table("12") is table("Table-12") is table("combinations")
    with pytest.raises(LecoError, match="'hierachy' is not a table of results in the paper; did you mean 'hierarchy'"):
        cells("hierachy")
    with pytest.raises(
        LecoError, match=r"'table-1' is not a table of results in the paper; valid: table-2, .*, table-13$"
    ):
        table("table-1")


def test_the_disagreements_are_those_that_comparing_all_pairs_finds():
    rows = []
    for name in TABLES:
        text = (files("leco.paper") / "numbers" / f"{name}.csv").read_text(encoding="utf-8")
        rows += csv.DictReader(text.splitlines())
    what = ("benchmark", "period", "method", "strategy", "annotation")
    found = set()
    for a, b in combinations(rows, 2):
        if all(a[key] == b[key] for key in what) and (differ(a["value"], b["value"]) or differ(a["std"], b["std"])):
            found.add(tuple(a[key] for key in what))
    assert found == {tuple(map(str, (d.benchmark, *d.key))) for d in disagreements()}
    assert len(found) == 7


def differ(a: str, b: str) -> bool:
    if not a or not b:
        return False
    digits = min(Decimal(a), Decimal(b), key=lambda number: -number.as_tuple().exponent)
    return Decimal(a).quantize(digits, ROUND_HALF_UP) != Decimal(b).quantize(digits, ROUND_HALF_UP)


def test_both_sides_of_a_disagreement_are_kept_and_named():
    assert [[(str(figure[0]), figure[0].place) for figure in d.figures] for d in disagreements()] == [
        [("65.83 ± 0.53", "Table 2"), ("65.83 ± 0.27", "Table 3")],
        [("65.69 ± 0.46", "Table 2"), ("65.40", "introduction")],
        [("27.24", "Table 2"), ("28.22", "Table 8")],
        [("27.21", "Table 2"), ("29.28", "Table 8")],
        [("27.73", "Table 2"), ("30.71", "Table 8")],
        [("82.4 ± 0.9", "Table 6"), ("83.0", "caption of Table 6")],
        [("85.1 ± 1.2", "Table 6"), ("85.3", "caption of Table 6")],
    ]
    assert [d.benchmark for d in disagreements("combinations")] == ["cifar-leco-10k"]


def test_the_gaps_that_captions_name_follow_from_the_cells():
    for benchmark, method, before, after in (
        ("mapillary-leco-2.5k", "lpl+st-hard", "1.34", "0.08"),
        ("mapillary-leco-9k", "lpl+st-hard/filter", "2.12", "0.08"),
    ):
        bound = Decimal(one(benchmark, annotation="all-fine"))
        assert (str(bound - Decimal(one(benchmark))), str(bound - Decimal(one(benchmark, method)))) == (before, after)
        label_new = [
            c for c in cells("combinations-mapillary") if (c.benchmark, c.annotation) == (benchmark, "label-new")
        ]
        assert max(label_new, key=lambda cell: cell.value).method == method
    gap = value_of("inat-leco", Key(1, annotation="all-fine"))[0].value - 84.34
    assert round(gap, 1) == 0.2


def test_every_result_that_the_text_quotes_is_there(paper_source):
    text = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", paper_source, flags=re.DOTALL)
    quoted = re.findall(r"(?<![\d.])\d\d\.\d+(?![\d.])", text.split(r"\begin{document}")[1])
    assert [str(cell) for cell in cells("text")] == quoted

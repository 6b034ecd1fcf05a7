"""Costs of annotation, the gap by size, and classes, across parts of a report."""

import pytest
from tests.stores import CLASSES, make_stages, write_store

from leco.paper import Key
from leco.reports.analyses import analyses, classes, cost_of, costs, families, gaps, models
from leco.reports.comparison import Scores, gap_closed, gap_error
from leco.reports.sections import sections
from leco.reports.stored import read_store

METHODS = {"ce": 0.5, "lpl": 0.55}
CELLS = (("finetune", "relabel-50", 0.48), ("finetune", "relabel-old", 0.46), ("finetune", "all-fine", 0.6))
SIZES = {"cifar-leco-1k": 1_000, "cifar-leco-2k": 2_000, "cifar-leco-10k": 10_000}


def store_of(runs, names=tuple(SIZES), **training):
    for step, name in enumerate(names):
        shifted = {method: score + step / 50 for method, score in METHODS.items()}
        stages = make_stages(range(3), shifted, benchmark=name, cells=CELLS, **training)
        write_store(runs, stages, data=name, samples=SIZES[name])
    return sections(read_store(runs).records)


def test_a_family_differs_in_size_alone(tmp_path):
    (family,) = families(store_of(tmp_path))
    assert [section.benchmark for section in family] == ["cifar-leco-1k", "cifar-leco-2k", "cifar-leco-10k"]


def test_other_settings_and_other_test_sets_make_other_families(tmp_path):
    store_of(tmp_path, ["cifar-leco-1k"])
    store_of(tmp_path, ["cifar-leco-2k"], batches={"size": 64})
    more = {"v1": CLASSES["v1"], "v2": [*CLASSES["v2"], "e"]}
    write_store(tmp_path, make_stages([0], benchmark="cifar-leco-10k"), classes=more, data="other", samples=10_000)
    found = families(sections(read_store(tmp_path).records))
    assert sorted(len(family) for family in found) == [1, 1, 1]


def test_sizes_may_have_other_numbers_of_steps_which_are_then_named(tmp_path):
    store_of(tmp_path, ["cifar-leco-1k"])
    (family,) = families(store_of(tmp_path, ["cifar-leco-10k"], batches={"steps": 80}))
    assert costs(family).columns == ("1,000 (40 steps)", "10,000 (80 steps)")


def test_costs_compare_strategies_with_the_same_method_by_seed(tmp_path):
    (family,) = families(store_of(tmp_path))
    made = costs(family, relabel=0.5)
    assert made is not None
    assert made.columns == ("1,000", "2,000", "10,000")
    rows = {row[1]: row for row in made.rows}
    assert list(rows) == ["label-new", "relabel-50", "relabel-old", "all-fine"]
    assert [row[2] for row in rows.values()] == ["1", "0.75", "0.5", "1.5"]
    scores = family[0].scores(Key(1, annotation="relabel-50")), family[0].scores(Key(1))
    difference = sum(scores[0].by_seed[seed] - scores[1].by_seed[seed] for seed in range(3)) / 3
    assert rows["relabel-50"][3] == f"{scores[0]} ({difference:+.1f} ± 0.0)"
    assert [x for x, _ in made.lines["ce, relabel-50"]] == [750, 1_500, 7_500]
    assert not any(row[0] == "lpl" for row in made.rows)  # trained with label-new alone


def test_without_a_second_strategy_there_are_no_costs(tmp_path):
    write_store(tmp_path, make_stages([0], METHODS, cells=()))
    (family,) = families(sections(read_store(tmp_path).records))
    assert costs(family) is None
    assert gaps(family) is None


@pytest.mark.parametrize(
    ("period", "annotation", "relabel", "cost"),
    [
        (1, "label-new", 3.0, 1.0),
        (1, "relabel-old", 0.25, 0.25),
        (1, "relabel-75", 0.2, 0.4),
        (3, "all-fine", 1.0, 4.0),
        (3, "all-fine", 0.0, 1.0),
        (1, "with-unlabelled", 0.1, 1.0),
    ],
)
def test_the_cost_is_that_of_the_newest_labels(period, annotation, relabel, cost):
    assert cost_of(Key(period, annotation=annotation), relabel) == pytest.approx(cost)


def test_gaps_are_shown_by_size_with_the_papers(tmp_path):
    (family,) = families(store_of(tmp_path))
    made = gaps(family)
    assert made is not None
    lpl = next(row for row in made.rows if row[0] == "lpl")
    for section, text in zip(family, lpl[1:], strict=True):
        ours = [section.scores(key) for key in (Key(1, "lpl"), Key(1), Key(1, annotation="all-fine"))]
        assert text.startswith(f"{100 * gap_closed(*ours):.0f} ± ")
    assert "paper 57 %" in lpl[1]  # (38.47 - 33.53) / (42.27 - 33.53)


def test_all_fine_with_partial_labels_is_a_row_of_its_own(tmp_path):
    stages = make_stages(range(2), METHODS, cells=CELLS)
    lpl = make_stages(range(2), {"lpl": 0.7}, cells=(), annotation="all-fine")
    write_store(tmp_path, list({stage.fingerprint: (stage, score) for stage, score in [*lpl, *stages]}.values()))
    (family,) = families(sections(read_store(tmp_path).records))
    first = gaps(family).rows[1]
    assert first[0] == "lpl, all-fine"
    assert first[1].startswith("200 ")
    assert [row[:2] for row in costs(family).rows][-2:] == [("lpl", "label-new"), ("lpl", "all-fine")]


def test_the_error_of_a_share_is_the_jackknifes():
    ours, low, high = (
        Scores({0: 55.0, 1: 57.0, 2: 52.0}),
        Scores({0: 50.0, 1: 51.0, 2: 50.0}),
        Scores({0: 60.0, 1: 61.0, 2: 58.0}),
    )
    left = []
    for out in range(3):
        kept = [{seed: cell.by_seed[seed] for seed in range(3) if seed != out} for cell in (ours, low, high)]
        left.append(gap_closed(*map(Scores, kept)))
    mean = sum(left) / 3
    assert gap_error(ours, low, high) == pytest.approx((2 / 3 * sum((share - mean) ** 2 for share in left)) ** 0.5)
    assert gap_error(Scores({0: 1.0}), Scores({0: 0.0}), Scores({0: 2.0})) is None


def test_classes_are_listed_with_the_rare_ones_apart(tmp_path):
    (section,) = store_of(tmp_path, ["cifar-leco-1k"])
    rare, single = classes(section)
    assert rare.title.startswith("Rare and frequent classes")
    assert [row[0] for row in single.rows] == CLASSES["v2"]
    assert single.columns == ("labels", "test samples", "ce", "lpl", "all-fine")
    assert single.rows[0][1:3] == ("–", "10")  # made-up stages do not store how many labels a class has
    assert float(single.rows[0][3]) == pytest.approx(section.scores(Key(1)).mean, abs=0.1)


def test_a_report_has_costs_gaps_and_rare_classes(tmp_path):
    titles = [made.title.partition(":")[0] for made in analyses(store_of(tmp_path))]
    assert titles == ["Accuracy against annotation cost", "How the gap closes", *["Rare and frequent classes"] * 3]


def test_models_of_own_data_are_in_one_table_whatever_their_settings(tmp_path):
    heads = {"finish": {"head": "linear"}, "network": {"embed": True, "backbone": "resnet18", "weights": "pretrained"}}
    write_store(tmp_path, make_stages(range(2), {"lpl": 0.6}, "pets", cells=()), budget="", samples=80)
    write_store(tmp_path, make_stages(range(2), {"ce": 0.5}, "pets", cells=(), **heads), budget="", samples=60)
    found = sections(read_store(tmp_path).records)
    assert len(found) > 1
    (made,) = models(found)
    assert made.columns == ("validation", "test, v2", "test, v1", "time", "seeds")
    linear, network = made.rows
    assert linear[:3] == ("linear head on features of resnet18", "ce", "60")
    assert network[:3] == ("wrn-16-1", "lpl", "80")
    assert linear[-1] == network[-1] == "2"
    expected = {r.seed: 100 * r.test["v2"] for s in found for r in s.records if r.key == Key(1)}
    assert linear[4] == str(Scores(expected))


def test_models_that_predict_masks_have_a_table_of_their_own(tmp_path):
    write_store(tmp_path, make_stages([0], {"lpl": 0.6}, "pets", cells=()), budget="")
    masks = make_stages([0], {"lpl": 0.6}, "pets", cells=(), segmentation={"crop": 64})
    write_store(tmp_path, masks, budget="", metric="miou")
    made = models(sections(read_store(tmp_path).records))
    assert sorted(table.caption[:4] for table in made) == ["mAcc", "mIoU"]
    assert [len(table.rows) for table in made] == [1, 1]


def test_stages_without_those_that_they_started_from_are_in_no_family(tmp_path):
    classes = CLASSES | {"v3": CLASSES["v2"]}
    for name in ("cifar-leco-1k", "cifar-leco-2k"):
        stages = make_stages([0], {"lpl": 0.6}, name, periods=3, cells=())
        newest = [(stage, score) for stage, score in stages if stage.period == 2]
        write_store(tmp_path, newest, classes=classes, data=name, samples=SIZES[name])
    found = sections(read_store(tmp_path).records)
    assert len(found) == 2
    assert analyses(found) == []


def test_benchmarks_have_no_table_of_models(tmp_path):
    assert models(store_of(tmp_path, ["cifar-leco-1k"])) == []

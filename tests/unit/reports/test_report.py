"""Reports as data: facts, the paper's tables with our results, and its conclusions tested."""

import csv
import io

import pytest
from tests.stores import METHODS, make_stages, write_store

from leco.methods.method import ALL_METHODS
from leco.paper import FIRST, Key
from leco.reports.formats import to_csv
from leco.reports.report import entry, findings, make_report, tables
from leco.reports.sections import sections
from leco.reports.stored import read_store


def report_of(runs, *stages):
    for some in stages:
        write_store(runs, some)
    return make_report(read_store(runs))


def test_mixed_budgets_make_parts_of_their_own(tmp_path):
    made = report_of(tmp_path, make_stages([0]), make_stages([0], batches={"steps": 80}))
    assert [part.title for part in made.parts] == ["cifar-leco-1k (1 of 2)", "cifar-leco-1k (2 of 2)"]
    assert [part.section.setting("batches.steps") for part in made.parts] == [40, 80]


def test_parts_say_what_sets_them_apart(tmp_path):
    methods = {"ce": 0.5, "lpl+st-hard/cond": 0.6}
    stages = [*make_stages([0], methods), *make_stages([0], methods, pseudo_labels={"balance": True})]
    made = report_of(tmp_path, list({stage.fingerprint: (stage, score) for stage, score in stages}.values()))
    assert [dict(part.facts)["further settings"] for part in made.parts] == [
        "pseudo_labels.balance False",
        "pseudo_labels.balance True",
    ]
    assert {row["further_settings"] for row in csv.DictReader(io.StringIO(to_csv(made)))} == {
        "pseudo_labels.balance False",
        "pseudo_labels.balance True",
    }
    for part in made.parts:  # stages without guesses to balance belong to both
        assert {key.method for key in part.section.cells} == methods.keys()


def test_settings_that_are_not_at_their_defaults_are_named(tmp_path):
    (part,) = report_of(tmp_path, make_stages([0], finish={"adjust": 0.5})).parts
    assert dict(part.facts)["further settings"] == "finish.adjust 0.5"


def test_stages_that_were_trained_for_a_plan_are_not_reported(tmp_path):
    stages = make_stages([0])
    report = report_of(tmp_path, [*stages, *((stage.untested, score) for stage, score in stages)])
    assert report.stages == len(stages)
    assert len(report.parts) == 1


def section_of(runs, stages, **options):
    (found,) = sections(read_store(write_store(runs, stages, **options)).records)
    return found


def table_of(section, name):
    return next(table for table in tables(section) if table.name == name)


def test_our_results_are_beside_the_papers(tmp_path):
    section = section_of(tmp_path, make_stages(range(5)))
    table = table_of(section, "baseline")
    assert table.grid.columns == ("TP0", "label-new", "relabel-old", "all-fine")
    assert [row.labels for row in table.grid.rows] == [("finetune",), ("freeze",), ("scratch",)]
    finetune = table.grid.rows[0].entries[1]
    assert finetune.scores.mean == pytest.approx(50, abs=1.5)
    assert str(finetune.paper[0]) == "33.53 ± 0.57"  # cifar-leco-1k is in the paper
    assert table.grid.rows[0].entries[2].scores is None  # a gap, where the paper has a number
    assert (table.counts, table.trained, table.cells) == ([5], 4, 10)


def test_all_39_methods_fill_the_table_of_combinations(tmp_path):
    scores = {str(method): 0.4 + number / 200 for number, method in enumerate(ALL_METHODS)}
    section = section_of(tmp_path, make_stages([0], scores))
    table = table_of(section, "combinations")
    assert len(table.grid.rows) == 13  # without pseudo-labels, and 4 kinds of them refined in 3 ways
    assert table.trained == table.cells == 41  # with TP0 and all-fine
    assert {found.key.method for found in table.entries if found.scores is not None} == set(scores)
    assert all(found.paper for found in table.entries)


@pytest.mark.parametrize("name", ["ssl-joint", "hierarchy", "combinations"])
def test_every_score_is_in_the_row_and_column_of_its_method(tmp_path, name):
    scores = {str(method): 0.4 + number / 200 for number, method in enumerate(ALL_METHODS)}
    grid = table_of(section_of(tmp_path, make_stages([0], scores)), name).grid
    for row in grid.rows:
        *refine, pseudo = row.labels
        for column, found in zip(grid.columns, row.entries, strict=True):
            if found is None or column in ("TP0", "all-fine"):
                continue
            method = column.replace("SSL", pseudo)
            if name == "combinations" and pseudo != "none":
                method += f"+{pseudo}" + "".join(f"/{kind}" for kind in refine if kind != "plain")
            assert found.key == Key(1, method)


def test_strategies_that_the_paper_does_not_have_are_added_to_its_table(tmp_path):
    section = section_of(tmp_path, make_stages([0], {"ce": 0.5}, cells=[("lp-ft", "label-new", 0.6)]))
    assert table_of(section, "baseline").grid.rows[-1].labels == ("lp-ft",)


def test_an_incomplete_grid_has_gaps_and_no_errors(tmp_path):
    section = section_of(tmp_path, make_stages([0], {"lpl": 0.5}, benchmark="own", cells=()))
    made = tables(section)
    assert [table.name for table in made] == ["hierarchy", "combinations"]
    assert [(table.grid.columns, len(table.grid.rows)) for table in made] == [(("lpl",), 1), (("TP0", "lpl"), 1)]
    assert all(found.share is None for table in made for found in table.entries)
    assert findings(section) == []


def test_a_store_with_the_first_period_alone_has_one_number(tmp_path):
    stages = [(stage, score) for stage, score in make_stages([0]) if stage.period == 0]
    ((found,),) = [row.entries for row in tables(section_of(tmp_path, stages))[0].grid.rows]
    assert found.key == FIRST
    assert found.scores is not None


def test_several_periods_are_columns(tmp_path):
    classes = {"v1": ["a|b"], "v2": ["x&y"], "v3": ["d_e"]}
    section = section_of(tmp_path, make_stages([0, 1], benchmark="own", periods=3), classes=classes)
    assert [table.name for table in tables(section)] == ["baseline-4tp", "losses-4tp", "combinations"]
    losses = table_of(section, "losses-4tp").grid
    assert losses.columns == ("TP1", "TP2")
    assert {row.labels[0] for row in losses.rows} == {*METHODS, "all-fine"}
    assert {found.key.period for found in table_of(section, "combinations").entries if found.key != FIRST} == {2}


def test_the_best_and_what_is_within_one_deviation_of_it_is_bold(tmp_path):
    section = section_of(tmp_path, make_stages(range(5), {"ce": 0.5, "joint": 0.599, "lpl": 0.6}))
    bold = {found.key.method for found in table_of(section, "combinations").entries if found.best}
    assert bold == {"joint", "lpl"}
    assert not any(found.best for found in tables(section)[0].entries if found.key.period == 0)


def test_the_share_of_the_gap_runs_from_ce_to_all_fine(tmp_path):
    section = section_of(tmp_path, make_stages(range(5)))
    assert entry(section, Key(1, "lpl")).share == pytest.approx((0.57 - 0.50) / (0.62 - 0.50))
    assert entry(section, Key(1, "ce")).share is None


def test_conclusions_are_tested_over_seeds(tmp_path):
    section = section_of(tmp_path, make_stages(range(5)))
    found = {finding.claim.text: finding for finding in findings(section)}
    helps = found["old labels help as partial labels: lpl (section 6)"]
    assert helps.verdict == "confirmed"
    assert helps.comparison.gain == pytest.approx(7)
    assert helps.comparison.count == 5
    assert helps.paper_gain == pytest.approx(38.47 - 33.53)
    pseudo = found["pseudo-labels on old data help (section 5)"]
    assert pseudo.pairs == 1  # st-hard alone was trained
    most = found["lpl+st-hard/cond closes most of the gap between ce and all-fine (section 6)"]
    assert most.comparison.gain == pytest.approx(60 - (50 + 62) / 2)


def test_a_conclusion_that_runs_contradict_is_contradicted(tmp_path):
    section = section_of(tmp_path, make_stages(range(5), METHODS | {"lpl": 0.40}))
    found = {finding.claim.text: finding.verdict for finding in findings(section)}
    assert found["old labels help as partial labels: lpl (section 6)"] == "contradicted"


def test_one_seed_decides_nothing(tmp_path):
    section = section_of(tmp_path, make_stages([0]))
    assert {finding.verdict for finding in findings(section)} == {"undecided"}

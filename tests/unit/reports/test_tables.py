"""The paper's tables, filled with ours."""

import pytest
from tests.stores import METHODS, make_stages, write_store

from leco.methods.method import ALL_METHODS
from leco.reports.conclusions import CLAIMS, findings
from leco.reports.sections import Key, sections
from leco.reports.stored import read_store
from leco.reports.tables import entry, tables


def section_of(runs, stages, **options):
    (found,) = sections(read_store(write_store(runs, stages, **options)).records)
    return found


def table_of(section, name):
    return next(table for table in tables(section) if table.name == name)


def test_ours_stand_beside_the_papers(tmp_path):
    section = section_of(tmp_path, make_stages(range(5)))
    table = table_of(section, "baseline")
    assert table.columns == ("TP0", "label-new", "relabel-old", "all-fine")
    assert [row.labels for row in table.rows] == [("finetune",), ("freeze",), ("scratch",)]
    finetune = table.rows[0].entries[1]
    assert finetune.scores.mean == pytest.approx(50, abs=1.5)
    assert finetune.paper  # cifar-leco-1k is in the paper
    assert table.rows[0].entries[2].scores is None  # a gap, where the paper has a number
    assert table.counts == [5]


def test_all_39_methods_fill_the_table_of_combinations(tmp_path):
    scores = {str(method): 0.4 + number / 200 for number, method in enumerate(ALL_METHODS)}
    section = section_of(tmp_path, make_stages([0], scores))
    table = table_of(section, "combinations")
    assert "39 of 39" in table.caption
    assert len(table.rows) == 14  # none, 4 kinds of pseudo-labels refined in 3 ways, all-fine
    keys = {found.key.method for found in table.entries if found.scores is not None}
    assert keys == set(scores)
    assert all(found.paper for found in table.entries)


def test_an_incomplete_grid_has_gaps_and_no_errors(tmp_path):
    section = section_of(tmp_path, make_stages([0], {"lpl": 0.5}, benchmark="own", cells=()))
    made = tables(section)
    assert [table.name for table in made] == ["hierarchy", "combinations"]
    assert all(found.share is None for table in made for found in table.entries)
    assert findings(section) == []


def test_a_store_with_the_first_period_alone_has_one_number(tmp_path):
    stages = [(stage, score) for stage, score in make_stages([0]) if stage.period == 0]
    ((found,),) = [row.entries for row in tables(section_of(tmp_path, stages))[0].rows]
    assert found.scores is not None


def test_several_periods_are_columns(tmp_path):
    classes = {"v1": ["a|b"], "v2": ["x&y"], "v3": ["d_e"]}
    section = section_of(tmp_path, make_stages([0, 1], periods=3), classes=classes)
    assert [table.name for table in tables(section)] == ["baseline-periods", "losses-periods", "combinations"]
    assert table_of(section, "losses-periods").columns == ("TP0", "TP1", "TP2")


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
    helps = found["old labels help, as partial labels (section 6)"]
    assert helps.verdict == "confirmed"
    assert helps.comparison.gain == pytest.approx(7)
    assert helps.comparison.count == 5
    assert helps.paper_gain is not None
    pseudo = found["pseudo-labels on old data help (section 5)"]
    assert pseudo.pairs == 1  # st-hard alone was trained
    most = found["lpl+st-hard/cond goes most of the way from ce to all-fine (section 6)"]
    assert most.comparison.gain == pytest.approx(60 - (50 + 62) / 2)


def test_what_the_paper_says_and_runs_contradict_is_said(tmp_path):
    section = section_of(tmp_path, make_stages(range(5), METHODS | {"lpl": 0.40}))
    found = {finding.claim.text: finding.verdict for finding in findings(section)}
    assert found["old labels help, as partial labels (section 6)"] == "contradicted"


def test_one_seed_decides_nothing(tmp_path):
    section = section_of(tmp_path, make_stages([0]))
    assert {finding.verdict for finding in findings(section)} == {"undecided"}


def test_claims_differ():
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)

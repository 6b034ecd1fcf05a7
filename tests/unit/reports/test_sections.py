"""Which stages are compared with each other, and which of several candidates counts."""

import shutil
from dataclasses import replace

from tests.stores import make_stages, write_stage, write_store

from leco.paper import Key
from leco.reports.sections import sections
from leco.reports.stored import read_store


def sections_of(runs):
    return sections(read_store(runs).records)


def test_seeds_and_methods_share_a_section(tmp_path):
    runs = write_store(tmp_path, make_stages(range(3)))
    (section,) = sections_of(runs)
    assert section.seeds == [0, 1, 2]
    assert section.versions == ("v1", "v2")
    assert len(section.scores(Key(1, "lpl")).by_seed) == 3
    assert section.scores(Key(1, "joint+pl")) is None


def test_budgets_are_never_mixed(tmp_path):
    write_store(tmp_path, make_stages([0, 1]))
    write_store(tmp_path, make_stages([0, 1], batches={"steps": 80}))
    assert [section.settings["batches.steps"] for section in sections_of(tmp_path)] == [40, 80]


def test_data_are_never_mixed(tmp_path):
    write_store(tmp_path, make_stages([0, 1]))
    write_store(tmp_path, make_stages([2, 3]), data="fedcba9876543210")
    assert sorted(section.seeds for section in sections_of(tmp_path)) == [[0, 1], [2, 3]]


def test_an_optional_setting_splits_only_stages_that_use_it(tmp_path):
    methods = {"ce": 0.5, "ce+pl": 0.6}
    stages = make_stages([0, 1], methods, cells=(), pseudo_labels={"threshold": 0.95})
    write_store(tmp_path, stages)
    known = {stage.fingerprint for stage, _ in stages}
    write_store(
        tmp_path,
        [
            s
            for s in make_stages([0, 1], methods, cells=(), pseudo_labels={"threshold": 0.5})
            if s[0].fingerprint not in known
        ],
    )
    found = sections_of(tmp_path)
    assert [section.settings["pseudo_labels.threshold"] for section in found] == [0.5, 0.95]
    for section in found:  # `ce` has no threshold, and belongs to both
        assert len(section.scores(Key(1, "ce"))) == len(section.scores(Key(1, "ce+pl"))) == 2


def test_different_environments_within_a_section_are_named(tmp_path):
    write_store(tmp_path, make_stages([0]))
    write_store(tmp_path, make_stages([1]), packages={"leco": "0.1.0", "torch": "2.7.0"}, threads=8)
    (section,) = sections_of(tmp_path)
    assert any("different versions of torch: 2.6.0, 2.7.0" in remark for remark in section.remarks)
    assert any("different threads: 1, 8" in remark for remark in section.remarks)


def test_of_several_learning_rates_the_best_on_validation_counts(tmp_path):
    ((first, score), *_) = make_stages([0], methods={"ce": 0.5}, cells=())
    write_stage(tmp_path, first, score)
    for rate, validation, test in ((0.1, 0.9, 0.30), (0.01, 0.2, 0.80)):
        training = first.training.change(optimiser={"learning_rate": (rate,)})
        changes = {"period": 1, "version": "v2", "strategy": "finetune", "previous": (first,), "training": training}
        write_stage(tmp_path, replace(first, **changes), test, validation_score=validation)
    (section,) = sections_of(tmp_path)
    assert section.scores(Key(1)).by_seed == {0: 30.0}
    assert section.remarks == ()


def test_a_teacher_that_starts_from_another_method_is_no_cell(tmp_path):
    classes = {"v1": ["a|b"], "v2": ["x&y"], "v3": ["d_e"]}
    stages = make_stages([0], {"ce": 0.5, "lpl+st-hard": 0.6}, periods=3, cells=())
    teachers = [stage for stage, _ in stages if str(stage.method) == "ce" and stage.period == 2]
    assert len(teachers) == 2  # the row of the table, and the teacher of lpl+st-hard
    write_store(
        tmp_path, [(s, 0.9 if s.fingerprint == teachers[1].fingerprint else v) for s, v in stages], classes=classes
    )
    (section,) = sections_of(tmp_path)
    assert section.scores(Key(2, "ce")).mean < 60


def test_a_stage_whose_previous_stage_is_missing_is_left_out_with_a_remark(tmp_path):
    stages = make_stages([0], {"lpl": 0.5}, periods=3, cells=())
    write_store(tmp_path, stages, classes={"v1": ["a|b"], "v2": ["x&y"], "v3": ["d_e"]})
    (gone,) = [stage for stage, _ in stages if stage.period == 1]
    shutil.rmtree(tmp_path / "stages" / gone.fingerprint)
    (section,) = sections_of(tmp_path)
    assert section.scores(Key(2, "lpl")) is None
    assert any("1 stage is left out" in remark for remark in section.remarks)


def test_without_a_test_set_scores_are_those_on_validation_and_say_so(tmp_path):
    write_store(tmp_path, make_stages([0, 1]), test=None)
    (section,) = sections_of(tmp_path)
    assert section.scores(Key(1, "ce")) is not None
    assert any("no test set" in remark for remark in section.remarks)

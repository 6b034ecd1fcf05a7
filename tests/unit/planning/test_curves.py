"""Curves are found again where they are known, and intervals are where they should be."""

import math

import pytest
import torch

from leco.data.benchmarks import digits
from leco.planning.curves import SHAPES, Labels, Shape, fit_curves
from leco.planning.known import HISTORY, NEWEST, VALIDATION, Known
from leco.planning.measure import Level, Measured, draw, levels
from leco.planning.simulate import interval


def made_up(samples_of_a_class: int = 40, history: int = 200) -> Known:
    """Digits with nothing but labels: what curves need."""
    evidence = digits.ontology().evidence()
    fine = torch.arange(10).repeat(samples_of_a_class)
    old = digits.ontology().translate(torch.arange(10).repeat(history // 10), "v2", "v1")
    labels = torch.cat([evidence.ids(fine, "v2"), evidence.ids(fine[:50], "v2"), evidence.ids(old, "v1")])
    parts = [(len(fine), NEWEST), (50, VALIDATION), (len(old), HISTORY)]
    part = torch.cat([torch.full((count,), kind) for count, kind in parts])
    zeros = torch.zeros(len(part), dtype=torch.int64)
    return Known(evidence, torch.zeros(len(part), 1), torch.arange(len(part)), labels, part, zeros)


def measured(known: Known, shape: Shape, level: float, slope: float, noise: float = 0.0) -> tuple[Measured, Labels]:
    """What would be measured if all classes followed one curve."""
    from leco.planning.curves import labels_today

    today = labels_today(known)
    rows = known.rows(torch.cat([known.samples(NEWEST), known.samples(VALIDATION)]))
    wanted = tuple(levels(known))
    shares = torch.tensor([0.8 * found.new for found in wanted]).double()
    generator = torch.Generator().manual_seed(0)
    columns = []
    for share, found in zip(shares.tolist(), wanted, strict=True):
        along = shape.progress(Labels(today.new * share, today.old * found.old), today)[known.classes[rows]]
        columns.append(level + slope * along + noise * torch.randn(len(rows), generator=generator).double())
    return Measured(wanted, shares, rows, torch.stack(columns, dim=1), 0.0, 10), today


KNOWN = [Shape("added", 0.2, 0.5), Shape("multiplied", 0.3, 0.0), Shape("added", 0.2, 1.5, -0.5)]


@pytest.mark.parametrize("shape", KNOWN, ids=str)
def test_a_known_curve_is_found_again_and_followed_beyond_the_data(shape):
    known = made_up()
    found, today = measured(known, shape, 0.6, 0.1)
    curves = fit_curves(known, found, seed=0)
    more = Labels(today.new * 3, today.old * 0.5)
    expected = float(0.6 + 0.1 * shape.progress(more, today).mean())
    low, high = interval(curves.macc(more))
    assert low - 1e-3 < expected < high + 1e-3
    assert abs(curves.macc(more).mean() - expected) < 0.035  # shapes that fit nearly as well are tried, too
    assert shape.kind in {found.kind for found in curves.shapes}


def test_intervals_widen_with_noise_and_with_distance():
    known = made_up()
    shape = Shape("added", 0.2, 0.5)
    quiet, loud = (fit_curves(known, measured(known, shape, 0.6, 0.1, noise)[0], seed=0) for noise in (0.05, 0.4))
    near, far = (Labels(quiet.today.new * factor, quiet.today.old) for factor in (1.1, 5.0))
    assert quiet.macc(far).std() < loud.macc(far).std()
    assert loud.macc(near).std() < loud.macc(far).std()


def test_a_class_that_was_hardly_looked_at_is_drawn_to_the_mean():
    known = made_up(samples_of_a_class=20)
    found, _ = measured(known, Shape("added", 0.2, 0.5), 0.6, 0.1)
    classes = known.classes[found.rows]
    right = found.right.clone()
    right[classes == 3] = 0.0  # a class that is never right
    keep = (classes != 3) | (torch.arange(len(classes)) == int((classes == 3).nonzero()[0]))
    many, few = (
        fit_curves(known, Measured(found.levels, found.shares, found.rows[k], right[k], 0.0, 10), seed=0)
        for k in (torch.ones_like(keep), keep)
    )
    assert many.level[0, 3] < 0.35
    assert many.level[0, 3] < few.level[0, 3]


def test_more_labels_never_hurt_and_accuracy_stays_between_0_and_1():
    known = made_up()
    curves = fit_curves(known, measured(known, Shape("added", 0.2, 0.0), 0.9, 0.2, 0.3)[0], seed=0)
    before = curves.accuracy(curves.today)
    after = curves.accuracy(Labels(curves.today.new * 100, curves.today.old))
    assert (after >= before).all()
    assert after.max() <= 1
    assert before.min() >= 0


def test_every_shape_is_zero_today_and_grows_with_labels():
    today = Labels(torch.tensor([10.0, 0.0]).double(), torch.tensor([5.0, 5.0]).double())
    more = Labels(today.new + 10, today.old)
    for shape in SHAPES:
        assert (shape.progress(today, today).abs() < 1e-12).all()
        assert (shape.progress(more, today) > 0).all()


def test_every_shape_has_the_same_slope_today_and_an_s_levels_off():
    today = Labels(torch.tensor([1e6]).double(), torch.zeros(1).double())
    a_little, much = (Labels(today.new * math.exp(step), today.old) for step in (1e-4, 9.0))
    for shape in SHAPES:
        assert float(shape.progress(a_little, today)) == pytest.approx(1e-4, rel=1e-3)
        if shape.centre is not None:
            ceiling = (1 + math.exp(shape.power * shape.centre)) / shape.power
            assert 0.99 * ceiling < float(shape.progress(much, today)) < ceiling


def test_subsamples_are_nested_and_hold_out_every_newest_sample_once():
    known = made_up()
    seen = []
    for number in range(5):
        drawn = draw(known, number, seed=3)
        small, large = drawn.taken(Level(0.354, 0.5)), drawn.taken(Level(1.0, 1.0))
        for few, many in zip(small, large, strict=True):
            assert torch.isin(few, many).all()
            assert len(few) < len(many)
        assert not torch.isin(drawn.held_out, torch.cat(large)).any()
        classes = known.classes[known.rows(small[0])]
        assert torch.bincount(classes, minlength=10).min() > 0  # in proportion to the classes
        seen.append(drawn.held_out[torch.isin(drawn.held_out, known.samples(NEWEST))])
    assert torch.cat(seen).sort().values.tolist() == known.samples(NEWEST).tolist()
    again = draw(known, 2, seed=3)
    assert torch.equal(again.newest, draw(known, 2, seed=3).newest)
    assert not torch.equal(again.newest, draw(known, 2, seed=4).newest)

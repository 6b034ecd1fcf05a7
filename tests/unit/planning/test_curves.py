"""Known curves are recovered, and intervals cover them."""

import math

import pytest
import torch
from tests.unit.planning.conftest import made_up_known

from leco.planning.curves import SHAPES, Labels, Shape, fit_curves, labels_today, progress
from leco.planning.known import NEWEST, VALIDATION, Known
from leco.planning.measure import Measured, grid
from leco.planning.strategies import interval


def measured(known: Known, shape: Shape, level: float, slope: float, noise: float = 0.0) -> tuple[Measured, Labels]:
    """Measurements as if all classes followed one curve."""
    today = labels_today(known)
    rows = known.rows(torch.cat([known.samples(NEWEST), known.samples(VALIDATION)]))
    wanted = tuple(grid(known))
    shares = torch.tensor([0.8 * found.new for found in wanted]).double()
    generator = torch.Generator().manual_seed(0)
    columns = []
    for share, found in zip(shares.tolist(), wanted, strict=True):
        along = progress([shape], Labels(today.new * share, today.old * found.old), today)[0, known.classes[rows]]
        columns.append(level + slope * along + noise * torch.randn(len(rows), generator=generator).double())
    return Measured(wanted, shares, rows, torch.stack(columns, dim=1), 0.0, 10), today


KNOWN = [Shape("added", 0.2, 0.5), Shape("multiplied", 0.3, 0.0), Shape("added", 0.2, 1.5, -0.5)]


@pytest.mark.parametrize("shape", KNOWN, ids=str)
def test_a_known_curve_is_found_again_and_followed_beyond_the_data(shape):
    known = made_up_known()
    found, today = measured(known, shape, 0.6, 0.1)
    curves = fit_curves(known, found, seed=0)
    more = Labels(today.new * 3, today.old * 0.5)
    expected = float(0.6 + 0.1 * progress([shape], more, today).mean())
    low, high = interval(curves.macc(more))
    assert low - 1e-3 < expected < high + 1e-3
    assert abs(curves.macc(more).mean() - expected) < 0.035  # shapes that fit nearly as well are tried, too
    assert shape.kind in {found.kind for found in curves.shapes}


def test_intervals_widen_with_noise_and_with_distance():
    known = made_up_known()
    shape = Shape("added", 0.2, 0.5)
    quiet, loud = (fit_curves(known, measured(known, shape, 0.6, 0.1, noise)[0], seed=0) for noise in (0.05, 0.4))
    near, far = (Labels(quiet.today.new * factor, quiet.today.old) for factor in (1.1, 5.0))
    assert quiet.macc(far).std() < loud.macc(far).std()
    assert loud.macc(near).std() < loud.macc(far).std()


def test_a_class_that_was_hardly_looked_at_is_drawn_to_the_mean():
    known = made_up_known(samples_of_a_class=20)
    found, _ = measured(known, Shape("added", 0.2, 0.5), 0.6, 0.1)
    classes = known.classes[found.rows]
    right = found.right.clone()
    right[classes == 3] = 0.0  # a class that is never right
    keep = (classes != 3) | (torch.arange(len(classes)) == int((classes == 3).nonzero()[0]))
    many, few = (
        fit_curves(known, Measured(found.points, found.shares, found.rows[k], right[k], 0.0, 10), seed=0)
        for k in (torch.ones_like(keep), keep)
    )
    assert many.level[0, 3] < 0.35
    assert many.level[0, 3] < few.level[0, 3]


def test_more_labels_never_hurt_and_accuracy_stays_between_0_and_1():
    known = made_up_known()
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
        assert (progress([shape], today, today).abs() < 1e-12).all()
        assert (progress([shape], more, today) > 0).all()


def test_every_shape_has_the_same_slope_today_and_an_s_levels_off():
    today = Labels(torch.tensor([1e6]).double(), torch.zeros(1).double())
    a_little, much = (Labels(today.new * math.exp(step), today.old) for step in (1e-4, 9.0))
    for shape in SHAPES:
        assert float(progress([shape], a_little, today)) == pytest.approx(1e-4, rel=1e-3)
        if shape.centre is not None:
            ceiling = (1 + math.exp(shape.power * shape.centre)) / shape.power
            assert 0.99 * ceiling < float(progress([shape], much, today)) < ceiling

"""Points of the learning curve: nested subsamples, and files with measurements."""

import pytest
import torch
from tests.unit.planning.conftest import made_up_known, prepared

from leco import LecoError
from leco.planning.known import NEWEST
from leco.planning.measure import Point, draw, grid


def test_levels_are_smaller_by_the_root_of_two_and_without_history_only_they_vary():
    known = made_up_known()
    assert [str(point) for point in grid(known, 2)] == ["1-1", "1-0.5", "1-0", "0.707-1", "0.707-0.5", "0.707-0"]
    assert [point.new for point in grid(made_up_known(history=0))] == [1.0, 0.707, 0.5, 0.354]


def test_subsamples_are_nested_and_hold_out_every_newest_sample_once():
    known = made_up_known()
    seen = []
    for number in range(5):
        drawn = draw(known, number, seed=3)
        small, large = drawn.subsample(Point(0.354, 0.5)), drawn.subsample(Point(1.0, 1.0))
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


def test_what_was_measured_is_refused_when_damaged(own):
    found = prepared(own)
    for name, kept in (("0-*.json", '{"right": "01"}'), ("0-*.json", ""), ("prior.json", '{"prior": 1e999}')):
        path = next(found.context.folder.glob(name))
        before = path.read_bytes()
        path.write_text(kept)
        with pytest.raises(LecoError, match=r"is damaged.*; delete it, and it is measured again"):
            prepared(own)
        path.write_bytes(before)

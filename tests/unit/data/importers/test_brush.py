"""Streams of Label Studio's brush: what they show, and what is none."""

from contextlib import suppress

import numpy as np
import pytest
from tests.brushes import brush_stream

from leco import LecoError
from leco.data.importers.brush import decode_brush

# Written by the encoder of label-studio-sdk 2.1.2: three pixels in the second row of three, and the last of the third.
REAL = [0, 0, 0, 60, 57, 27, 254, 23, 0, 183, 255, 132, 192, 35, 255, 0]


def test_a_stream_of_label_studio_is_read():
    assert decode_brush(REAL, 5, 3).astype(int).tolist() == [[0] * 5, [0, 1, 1, 1, 0], [0, 0, 0, 0, 1]]


def test_runs_begin_and_end_at_any_channel():
    rng = np.random.default_rng(0)
    for height, width in ((1, 1), (3, 5), (17, 23)):
        mask = rng.random((height, width)) < 0.5
        for colours in (None, rng):
            assert np.array_equal(decode_brush(brush_stream(mask, colours), width, height), mask)


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        ([], "breaks off after 0 bytes"),
        (REAL[:-2], "breaks off after 14 bytes"),
        (REAL[:5], "breaks off"),
        ([255] * 4 + REAL[4:], "holds 4,294,967,295 values; 5x3 pixels need 4 each"),
        ([*REAL[:7], 0x7F, 0xFF, 0xFF, 0xFF], "a run that ends at value"),
        ([*REAL[:3], 300], "not a list of bytes"),
        ([*REAL[:3], -1], "not a list of bytes"),
        ([*REAL[:3], "60"], "not a list of bytes"),
        ([*REAL[:3], 6.5], "not a list of bytes"),
        ([[60]], "not a list of bytes"),
    ],
)
def test_what_is_no_stream_is_refused(stream, problem):
    with pytest.raises(LecoError, match=problem):
        decode_brush(stream, 5, 3)


def test_any_bytes_are_a_mask_or_refused():
    rng = np.random.default_rng(1)
    read = 0
    for _ in range(300):
        stream = [0, 0, 0, 60, *rng.integers(0, 256, int(rng.integers(0, 60))).tolist()]
        with suppress(LecoError):
            assert decode_brush(stream, 5, 3).shape == (3, 5)
            read += 1
    assert 0 < read < 300

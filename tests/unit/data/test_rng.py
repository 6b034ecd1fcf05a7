import pytest
import torch

from leco import LecoError
from leco.data.rng import WORD, Draws, key, mix, shift_right, signed

IDS = torch.arange(100_000)

GOLDEN_UNIFORM = [
    [0.010063230991363525, 0.043925702571868896],
    [0.9860270619392395, 0.8610380291938782],
    [0.7448055148124695, 0.13007789850234985],
    [0.2775462865829468, 0.387362539768219],
]
GOLDEN_INTEGERS = [[5, 3], [2, 9], [3, 5], [7, 7]]
GOLDEN_BRANCH = [0.8363702893257141, 0.10962039232254028, 0.3214060068130493, 0.9336658716201782]


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def naive_splitmix(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
    return word ^ word >> 31


def test_mixing_tensors_equals_splitmix_in_python_integers():
    words = [0, 1, 2, 0x9E3779B97F4A7C15, WORD - 1, WORD // 2]
    mixed = mix(torch.tensor([signed(word) for word in words]))
    assert mixed.tolist() == [signed(naive_splitmix(word)) for word in words]


def test_the_first_output_of_splitmix_with_seed_zero_is_the_published_one():
    assert key(0) == 0xE220A8397B1DCDAF


def test_a_shift_moves_in_zeros():
    assert shift_right(torch.tensor([-1, -(2**63), 8]), 2).tolist() == [2**62 - 1, 2**61, 2]


def test_draws_never_change_between_releases():
    draws = Draws(seed=1, step=2, ids=torch.tensor([0, 3, 10**12, -1]))
    torch.testing.assert_close(draws.uniform("flip", 2), torch.tensor(GOLDEN_UNIFORM), rtol=0, atol=0)
    assert draws.integers("level", 1, 10, 2).tolist() == GOLDEN_INTEGERS
    torch.testing.assert_close(
        draws.branch("strong").uniform("flip")[:, 0], torch.tensor(GOLDEN_BRANCH), rtol=0, atol=0
    )


def test_uniform_numbers_have_the_moments_of_a_uniform_distribution():
    values = Draws(0, 0, IDS).uniform("flip", 3)
    assert values.dtype == torch.float32
    assert values.shape == (len(IDS), 3)
    assert values.min() >= 0
    assert values.max() < 1
    torch.testing.assert_close(values.mean(0), torch.full((3,), 0.5), atol=0.005, rtol=0)
    torch.testing.assert_close(values.var(0), torch.full((3,), 1 / 12), atol=0.002, rtol=0)
    counts = torch.histc(values[:, 0], 100, 0, 1)
    assert ((counts - 1000).square() / 1000).sum() < 160  # chi-squared with 99 degrees of freedom: p = 1e-4


@pytest.mark.parametrize(
    "other",
    [
        Draws(0, 0, IDS + 1).uniform("flip"),
        Draws(0, 1, IDS).uniform("flip"),
        Draws(1, 0, IDS).uniform("flip"),
        Draws(0, 0, IDS).uniform("crop"),
        Draws(0, 0, IDS).uniform("flip", 2)[:, 1:],
        Draws(0, 0, IDS).branch("strong").uniform("flip"),
    ],
    ids=["neighbouring id", "neighbouring step", "neighbouring seed", "name", "draw number", "branch"],
)
def test_draws_that_differ_in_one_thing_are_not_correlated(other):
    values = Draws(0, 0, IDS).uniform("flip")
    assert abs(correlation(values[:, 0], other[:, 0])) < 0.015


def test_a_sample_draws_the_same_in_any_batch():
    order = torch.randperm(1000)
    whole = Draws(3, 5, IDS[:1000])
    for draw in ("uniform", "normal"):
        expected = getattr(whole, draw)("flip", 2)
        assert torch.equal(getattr(Draws(3, 5, order), draw)("flip", 2), expected[order])
        torch.testing.assert_close(getattr(Draws(3, 5, order[:1]), draw)("flip", 2), expected[order[:1]])
    assert torch.equal(whole.uniform("flip", 5)[:, :2], whole.uniform("flip", 2))


def test_integers_cover_their_range_evenly():
    values = Draws(0, 0, IDS).integers("level", -4, 5)
    assert values.dtype == torch.int64
    counts = torch.bincount(values[:, 0] + 4)
    assert len(counts) == 9
    assert ((counts - len(IDS) / 9).square() / (len(IDS) / 9)).sum() < 32  # chi-squared, 8 degrees of freedom: p = 1e-4


def test_integers_of_an_empty_range_are_refused():
    with pytest.raises(LecoError, match=r"the range \[3, 3\) of 'level' is empty"):
        Draws(0, 0, IDS).integers("level", 3, 3)


def test_normal_numbers_have_the_moments_of_a_normal_distribution():
    values = Draws(0, 0, IDS).normal("noise", 2)
    assert values.isfinite().all()
    moments = torch.stack([values.mean(), values.var(), (values**3).mean(), (values**4).mean()])
    torch.testing.assert_close(moments, torch.tensor([0.0, 1.0, 0.0, 3.0]), atol=0.05, rtol=0)
    assert abs(correlation(*values.T)) < 0.015


def test_no_samples_draw_nothing():
    draws = Draws(0, 0, torch.empty(0, dtype=torch.int64))
    assert draws.uniform("flip", 3).shape == (0, 3)
    assert draws.integers("level", 0, 2).shape == (0, 1)


@pytest.mark.parametrize("ids", [torch.zeros(3), torch.zeros(3, 1, dtype=torch.int64)])
def test_ids_that_are_not_a_vector_of_integers_are_refused(ids):
    with pytest.raises(LecoError, match="sample ids must be a vector of int64"):
        Draws(0, 0, ids)

"""The paper's conclusions."""

import pytest

from leco.methods.method import Method
from leco.paper import value_of
from leco.paper.claims import CLAIMS, MAIN_CLAIMS


def test_claims_differ():
    assert len({claim.text for claim in CLAIMS}) == len({claim.pairs for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text)
def test_claims_compare_cells_of_the_paper(claim):
    for key in (key for pair in claim.pairs for key in pair):
        assert key.period == 1
        assert str(Method.parse(key.method)) == key.method
        assert value_of("inat-leco", key)


@pytest.mark.parametrize("claim", MAIN_CLAIMS, ids=lambda claim: claim.text)
def test_the_main_claims_hold_in_the_papers_own_numbers(claim):
    ((better, worse),) = claim.pairs
    assert value_of("inat-leco", better)[0].value > value_of("inat-leco", worse)[0].value

import numpy as np
import pytest
import torch

from leco import LecoError, Transition, Version


def test_a_transition_refuses_shares_that_are_no_probabilities():
    old, new = Version("v1", ("a", "b")), Version("v2", ("c", "d"))
    with pytest.raises(LecoError, match=r"shares of 'd' in v1 must be positive and sum to at most 1, not 0.9, 0.4"):
        Transition(old, new, np.array([[1, 0], [0.9, 0.4]]))
    with pytest.raises(LecoError, match=r"shares of 'c'"):
        Transition(old, new, np.array([[1.5, -0.5], [1, 0]]))
    with pytest.raises(LecoError, match="do not fit 2 classes of v2 by 2 of v1"):
        Transition(old, new, np.eye(3))


def test_a_dense_table_of_a_huge_ontology_is_refused():
    big = Version("big", tuple(str(i) for i in range(20_000)))
    with pytest.raises(LecoError, match=r"would need 1.6 GB; use .sparse or .parents"):
        _ = Transition.identity(big).shares


def test_projecting_probabilities_is_a_product_with_the_shares(street):
    transition = street.transition("v3", "v1")
    probs = torch.rand(4, len(street.newest), 2, 3).softmax(dim=1)
    expected = torch.einsum("nchw,cd->ndhw", probs, transition.shares)
    torch.testing.assert_close(transition.project(probs), expected)

import math

import torch
from tests.unit.planning.conftest import made_up_known

from leco.planning.known import HISTORY, NEWEST, Known, num_choices, open_share
from leco.planning.strategies import Costs


def test_what_is_offered_is_what_the_old_label_can_be(street):
    evidence = street.until("v2").evidence()
    rows = evidence.ids(["bus", "sidewalk", "background", ""], "v1")
    assert num_choices(evidence, rows).tolist() == [2, 1, 2, len(street["v2"])]


def test_bits_of_a_question_are_those_that_the_old_label_leaves_open(street):
    evidence = street.until("v2").evidence()
    shares = open_share(evidence, evidence.ids(["bus", "sidewalk", ""], "v1"))
    expected = [math.log2(2) / math.log2(10), 0, 1]
    torch.testing.assert_close(shares, torch.tensor(expected, dtype=torch.double))
    torch.testing.assert_close(Costs(3.0).of_relabelling(shares), 3 * torch.tensor(expected, dtype=torch.double))
    assert Costs(3.0, 0.5).of_relabelling(shares).tolist() == [0.5, 0, 0.5]  # what is known costs nothing


def test_history_is_expected_to_be_what_its_old_label_leaves_possible():
    known = made_up_known(samples_of_a_class=5, history=20)
    history, evidence = known.history, known.evidence
    place = int((history.label == evidence.ids(["loop"], "v1")).nonzero()[0])
    children = torch.tensor([name in "0689" for name in evidence.ontology.newest.handles])
    torch.testing.assert_close(history.expected[place], children.double() / 4)  # classes are equally frequent
    torch.testing.assert_close(history.open[place], torch.tensor(math.log(4) / math.log(10)).double())
    torch.testing.assert_close(history.informed[place], history.expected[place] * (1 - history.open[place]))
    assert history.relabellable.tolist() == list(range(20))


def test_an_image_of_several_pixels_has_the_label_of_most_and_counts_each_class_once():
    evidence = made_up_known().evidence
    fine, old = evidence.ids(["3", "3", "5"], "v2"), evidence.ids(["loop", "straight", "straight"], "v1")
    part = torch.tensor([NEWEST] * 3 + [HISTORY] * 3)
    sample = torch.tensor([0, 0, 0, 1, 1, 1])
    known = Known(evidence, torch.zeros(6, 1), sample, torch.cat([fine, old]), part)
    assert known.labelled.tolist() == [float(name in "35") for name in evidence.ontology.newest.handles]
    assert [known.name(int(label)) for label in known.history.label] == [("v1", "straight")]
    torch.testing.assert_close(known.history.expected.sum(), torch.tensor(2.0).double())
    assert known.rows(torch.tensor([1])).tolist() == [3, 4, 5]

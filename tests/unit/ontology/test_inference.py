import numpy as np
import pytest

from leco import LecoError
from leco.ontology.inference import CoLabels, infer, parents

SAMPLES = (
    [("dog", "husky")] * 9 + [("cat", "husky")] + [("dog", "pet")] * 5 + [("cat", "pet")] * 5 + [("cat", "lynx")] * 2
)


def test_the_majority_parent_and_its_conflicts_are_found():
    husky, pet, lynx = parents(CoLabels.count(SAMPLES))
    assert (husky.parent, husky.share, husky.count, husky.status) == ("dog", 0.9, 10, "decided")
    assert husky.conflict == pytest.approx(0.1)
    assert 0.55 < husky.at_least < 0.6  # Wilson, 9 of 10
    assert pet.status == "mixed"  # half and half: no majority, however often it is seen
    assert (lynx.parent, lynx.status) == ("cat", "rare")


def test_a_tree_takes_the_majority_and_a_soft_transition_the_measured_shares():
    colabels = CoLabels.count(SAMPLES)
    tree, soft = infer(colabels), infer(colabels, kind="soft", min_share=0)
    assert tree.transition("v2", "v1").shares.tolist() == [[1, 0], [1, 0], [0, 1]]
    np.testing.assert_allclose(soft.transition("v2", "v1").shares, [[0.9, 0.1], [0.5, 0.5], [0, 1]], rtol=1e-6)
    pruned = infer(colabels, kind="soft", min_share=0.2)
    np.testing.assert_allclose(pruned.transition("v2", "v1").shares, [[1, 0], [0.5, 0.5], [0, 1]])
    np.testing.assert_allclose(colabels.shares.toarray().sum(axis=1), 1)


def test_the_inferred_transition_equals_counting_with_loops():
    generator = np.random.default_rng(0)
    pairs = [(f"o{generator.integers(3)}", f"n{generator.integers(5)}") for _ in range(300)]
    ontology = infer(CoLabels.count(pairs), kind="soft")
    shares = ontology.transition("v2", "v1").shares
    for new in ontology["v2"].classes:
        of_new = [old for old, name in pairs if name == new]
        for old in ontology["v1"].classes:
            share = shares[ontology["v2"].index(new), ontology["v1"].index(old)].item()
            assert share == pytest.approx(of_new.count(old) / len(of_new))


def test_an_old_class_that_nothing_comes_from_says_nothing_any_more():
    merged = [("car", "vehicle")] * 8 + [("truck", "vehicle")] * 3
    tree = infer(CoLabels.count(merged))
    assert tree["v2"].ignored == ("truck",)
    assert (tree.evidence().rows(["truck"], "v1") == 0).all()
    assert infer(CoLabels.count(merged), kind="soft")["v2"].ignored == ()


def test_same_names_are_kept_and_ignored_labels_say_nothing():
    pairs = [("road", "road")] * 5 + [("road", "lane")] * 5 + [("void", "lane"), ("road", "void"), ("", "road")]
    ontology = infer(CoLabels.count(pairs, ignore=["void"]))
    assert {change.kind for change in ontology.changes("v1", "v2")} == {"carved"}
    assert ontology["v1"].ignored == ontology["v2"].ignored == ("void",)


def test_no_overlap_and_unknown_ignored_labels_are_said():
    with pytest.raises(LecoError, match="no sample is labelled in both versions"):
        CoLabels.count([("dog", ""), ("", "husky")])
    with pytest.raises(LecoError, match=r"ignored label 'viod' does not occur; did you mean 'void'\?"):
        CoLabels.count([("dog", "husky"), ("void", "husky")], ignore=["viod"])

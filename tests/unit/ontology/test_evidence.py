import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.ontologies import ontologies

from leco import LecoError, Ontology


def naive_row(ontology: Ontology, label: int, version: str) -> list[float]:
    """Walk every newest class back to `version`, multiplying shares."""
    names = [v.name for v in ontology.versions]
    row = []
    for newest in range(len(ontology.newest)):
        mass = {newest: 1.0}
        for step in reversed(ontology.steps[names.index(version) :]):
            back: dict[int, float] = {}
            for index, share in mass.items():
                for old, part in step.origins(index).items():
                    back[old] = back.get(old, 0.0) + share * part
            mass = back
        row.append(math.log(mass[label]) if mass.get(label) else -math.inf)
    return row


@given(ontologies(), st.data())
def test_rows_equal_a_walk_back_through_the_versions(ontology, data):
    evidence = ontology.evidence()
    version = data.draw(st.sampled_from(ontology.versions))
    for label in range(len(version)):
        expected = naive_row(ontology, label, version.name)
        if max(expected) == -math.inf:
            with pytest.raises(LecoError, match="impossible"):
                evidence.rows([label], version.name)
        else:
            torch.testing.assert_close(evidence.rows([label], version.name)[0], torch.tensor(expected))


def test_no_label_and_ignored_labels_leave_every_class_possible(street):
    rows = street.evidence().rows(["", None, "void"], "v2")
    assert torch.equal(rows, torch.zeros(3, len(street.newest)))


def test_a_class_that_a_later_version_ignores_says_nothing(street):
    rows = street.evidence().rows(["drone"], "v2")
    assert torch.equal(rows, torch.zeros(1, len(street.newest)))


def test_a_label_of_a_removed_class_is_refused_before_training(street):
    with pytest.raises(
        LecoError, match=r"'fax' of v1 is impossible: no class of v3 comes from it; remove these 2 samples"
    ):
        street.evidence().rows(["road", "fax", "fax"], "v1")


def test_a_brand_new_class_is_ruled_out_by_any_old_label(street):
    evidence = street.until("v2").evidence()
    drone = street["v2"].index("drone")
    assert evidence.rows(["road"], "v1")[0, drone] == -math.inf
    assert evidence.rows([""], "v1")[0, drone] == 0


def test_the_rest_of_a_catch_all_stays_possible(street):
    row = street.evidence().rows(["background"], "v1")[0]
    possible = [street.newest.classes[i] for i in row.isfinite().nonzero().flatten().tolist()]
    assert possible == ["traffic-cone", "island", "background"]


def test_a_merged_class_is_weighed_by_its_share(street):
    row = street.evidence().rows(["child"], "v1")[0]
    assert row[street.newest.index("special-subject")].item() == pytest.approx(math.log(0.7))


def test_labels_of_any_shape_put_the_classes_second(street):
    evidence = street.evidence()
    labels = torch.randint(-1, len(street.newest), (2, 3, 4))
    rows = evidence.rows(labels, "v3")
    assert rows.shape == (2, len(street.newest), 3, 4)
    assert torch.equal(rows[1, :, 2, 3], evidence.rows(labels[1, 2, 3].view(1), "v3")[0])


def test_row_ids_tell_versions_apart_and_gather_the_same_rows(street):
    evidence = street.evidence()
    ids = torch.cat([evidence.ids(["bus"], "v1"), evidence.ids(["bus"], "v3"), evidence.ids([""], "v1")])
    assert len(set(ids.tolist())) == 3
    assert torch.equal(evidence.gather(ids)[:1], evidence.rows(["bus"], "v1"))
    assert len(evidence) == 1 + sum(len(version) for version in street.versions)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int8, torch.int32, torch.int64])
def test_labels_may_have_any_integer_type(street, dtype):
    assert street.evidence().rows(torch.tensor([1], dtype=dtype), "v1").isfinite().sum() == 1


def test_evidence_moves_to_a_device(street):
    evidence = street.evidence()
    moved = evidence.to("cpu")
    assert torch.equal(moved.rows(["road"], "v1"), evidence.rows(["road"], "v1"))
    assert evidence.to("meta").loglik.device.type == "meta"


def test_labels_that_are_no_class_are_named(street):
    evidence = street.evidence()
    with pytest.raises(LecoError, match=r"label 99 at position \(0, 1\) is not a class index of v1"):
        evidence.rows(torch.tensor([[0, 99]]), "v1")
    with pytest.raises(LecoError, match=r"must be integers, not torch\.float32"):
        evidence.rows(torch.tensor([0.0]), "v1")
    with pytest.raises(LecoError, match="'raod' is not a class of v1; did you mean 'road'"):
        evidence.rows(["raod"], "v1")


def test_a_tree_costs_one_entry_per_class_and_version():
    parents = {f"f{i}": {"from": f"c{i % 10}"} for i in range(1000)}
    versions = [{"name": "v1", "classes": [f"c{i}" for i in range(10)]}, {"name": "v2", "classes": parents}]
    evidence = Ontology.from_dict({"versions": versions}).evidence()
    assert len(evidence.classes) == 2 * 1000


def test_permuting_the_newest_classes_permutes_the_rows():
    parents = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}

    def build(order: list[str]) -> Ontology:
        classes = {name: {"from": parents[name]} for name in order}
        return Ontology.from_dict(
            {"versions": [{"name": "v1", "classes": ["a", "b"]}, {"name": "v2", "classes": classes}]}
        )

    order = ["b2", "a1", "b1", "a2"]
    one, other = build(list(parents)), build(order)
    permutation = [one.newest.index(name) for name in order]
    rows = one.evidence().rows(["a", "b", ""], "v1")[:, permutation]
    assert torch.equal(rows, other.evidence().rows(["a", "b", ""], "v1"))

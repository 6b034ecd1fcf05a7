import pytest

from leco import LecoError, Ontology


def test_a_slash_in_a_repeated_name_is_refused_where_it_would_confuse():
    with pytest.raises(LecoError, match="'X/Y' would be the id of 2 classes"):
        Ontology.from_taxonomy("t", ["l1", "l2"], [("P", "X/Y"), ("X", "Y"), ("Q", "Y")])
    with pytest.raises(LecoError, match="lineage 1 of t"):
        Ontology.from_taxonomy("t", ["l1", "l2"], [("P", "Y"), ("X", None)])


def test_names_may_repeat_under_different_parents():
    lineages = [("Lycaenidae", "Satyrium", "S. w-album"), ("Orchidaceae", "Satyrium", "S. odorum")]
    ontology = Ontology.from_taxonomy("genera", ["family", "genus", "species"], lineages)
    assert ontology["genus"].classes == ("Satyrium", "Satyrium")
    assert ontology.translate(["S. odorum"], "species", "family") == ["Orchidaceae"]
    assert ontology.translate(["S. odorum"], "species", "genus") == ["Orchidaceae/Satyrium"]
    with pytest.raises(
        LecoError, match=r"is the name of several classes of genus; use an id: 'Lycaenidae/Satyrium' or"
    ):
        ontology["genus"].index("Satyrium")
    assert ontology["genus"].index("Orchidaceae/Satyrium") == 1

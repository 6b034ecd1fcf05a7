import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from tests.ontologies import ontologies

from leco import LecoError, Ontology
from leco.ontology.draw import to_html, to_svg

SVG = "{http://www.w3.org/2000/svg}"


@given(ontologies())
def test_every_class_is_drawn_once_and_no_two_on_the_same_spot(ontology):
    picture = ET.fromstring(to_svg(ontology))
    nodes = [group for group in picture.iter(f"{SVG}g") if "node" in group.attrib["class"]]
    assert len(nodes) == sum(len(version) for version in ontology.versions)
    spots = {(n.find(f"{SVG}circle").attrib["cx"], n.find(f"{SVG}circle").attrib["cy"]) for n in nodes}
    assert len(spots) == len(nodes)
    shares = [text for text in picture.iter(f"{SVG}text") if text.attrib.get("class") == "share"]
    assert len({(text.attrib["x"], text.attrib["y"]) for text in shares}) == len(shares)
    assert len(list(picture.iter(f"{SVG}path"))) == sum(step.sparse.nnz for step in ontology.steps)


def test_names_are_escaped_in_picture_and_page():
    evil = "<script>alert('x')</script>"
    versions = [
        {"name": "v<1>", "classes": [evil]},
        {"name": "v2", "classes": {'"&': {"from": evil}, "b": {"from": evil}}},
    ]
    ontology = Ontology.from_dict({"name": evil, "versions": versions})
    assert ET.fromstring(to_svg(ontology)) is not None
    page = to_html(ontology)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_a_page_needs_no_network(street):
    page = to_html(street)
    assert not re.findall(r"""(?:src|href)\s*=|@import|url\(""", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_focus_draws_a_class_and_its_relatives_only(street):
    picture = to_svg(street, focus=["city-bus"])
    drawn = re.findall(r'<text x="[^"]*" y="[^"]*">([^<]*)</text></g>', picture)
    assert sorted(drawn) == ["bus", "bus", "city-bus"]
    with pytest.raises(LecoError, match=r"'citybus' is not a class of any version; did you mean 'city-bus'\?"):
        to_svg(street, focus=["citybus"])
    with pytest.raises(LecoError, match="'void' is ignored in v2, so it is not drawn"):
        to_svg(street, focus=["void"])


def test_too_many_classes_for_one_picture_are_refused_with_the_remedy():
    classes = {f"c{i}": {"from": "a"} for i in range(4000)}
    ontology = Ontology.from_dict(
        {"versions": [{"name": "v1", "classes": ["a", "b"]}, {"name": "v2", "classes": classes}]}
    )
    with pytest.raises(LecoError, match=r"4,002 classes are too many for one drawing; .* --focus CLASS"):
        to_svg(ontology)
    assert "c17" in to_svg(ontology, focus=["c17"])

"""Exported models answer as the bundle does, and can be served without this package."""

import ast
import importlib.util
import io
import json
import threading
import urllib.error
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from tests.trainings import exported, model_of
from typer.testing import CliRunner, Result

from leco import LecoError, Ontology
from leco.cli.main import app
from leco.model import onnx as onnx_model
from leco.model.bundle import Bundle, write_bundle
from leco.model.onnx import output_names

EXAMPLE = Path(__file__).parents[3] / "examples" / "serve_onnx.py"


def export(bundle: Bundle, output: Path) -> Result:
    return CliRunner().invoke(app, ["export", str(bundle.folder), "--onnx", "-o", str(output)])


@pytest.fixture(scope="module")
def served(trained, tmp_path_factory) -> Path:
    from leco.model.bundle import read_bundle

    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    result = export(read_bundle(trained.folders[1]), path)
    assert result.exit_code == 0, result.exception
    assert "returns probabilities_v2, probabilities_v1" in result.stdout
    assert "onnxruntime and torch differ by at most" in result.stdout
    return path


def test_a_served_model_answers_as_the_bundle_does(trained, new, served):
    images = trained.periods.test.inputs.read(torch.arange(597))
    session = onnxruntime.InferenceSession(str(served), providers=["CPUExecutionProvider"])
    fine, coarse = session.run(list(output_names(new.description)), {"input": images.float().numpy() / 255})
    expected = model_of(new).predictor.probs(images)
    np.testing.assert_allclose(fine, expected, atol=1e-5)
    np.testing.assert_allclose(coarse, new.ontology.transition("v2", "v1").project(expected), atol=1e-5)


def test_a_file_of_other_origin_is_not_replaced(new, served, tmp_path):
    output = tmp_path / "model.onnx"
    output.write_bytes(b"somebody else's")
    assert "was not written by leco" in str(export(new, output).exception)
    assert output.read_bytes() == b"somebody else's"
    output.write_bytes(served.read_bytes())
    assert export(new, output).exit_code == 0


def test_the_file_says_what_it_is(new, served):
    model = onnx.load(served)
    known = {prop.key: prop.value for prop in model.metadata_props}
    assert Ontology.from_dict(json.loads(known["leco.ontology"])).fingerprint == known["leco.fingerprint"]
    assert known["leco.fingerprint"] == new.description.ontology
    assert json.loads(known["leco.versions"]) == ["v1", "v2"]
    assert json.loads(known["leco.classes"])["v1"] == ["loop", "straight", "open-curve"]
    assert known["leco.preprocessing"] == "grey in [0, 1]; the shorter edge scaled to 8; the middle 8 x 8 of it"
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param  # any number of samples
    assert str(Path(onnx_model.__file__).parent).encode() not in served.read_bytes()  # nothing of this machine


def test_vectors_and_pixels_can_be_served_too(vectors, segmenter, tmp_path):
    for bundle, _ in (vectors, segmenter):
        content, difference = exported(bundle)
        assert difference < 1e-5
        assert onnx.load_from_string(content).graph.output[1].name == "probabilities_v1"


def test_versions_may_be_called_anything(new, tmp_path):
    content = new.ontology.to_dict()
    content["versions"][0]["name"], content["versions"][1]["name"] = "input", "été / 2.0"
    ontology = Ontology.from_dict(content)
    names = ("input", "été / 2.0")
    changes = {"versions": names, "heads": names[1:], "trained": names[1], "calibration": {}}
    description = new.description.model_copy(update=changes | {"ontology": ontology.fingerprint})
    write_bundle(tmp_path / "b", description, ontology, new.network().state_dict(), new.metrics)
    from leco.model.bundle import read_bundle

    session = onnxruntime.InferenceSession(exported(read_bundle(tmp_path / "b"))[0])
    assert [output.name for output in session.get_outputs()] == ["probabilities_été / 2.0", "probabilities_input"]


def test_a_file_that_answers_otherwise_is_not_written(new, tmp_path, monkeypatch):
    real = onnx_model.Served.forward
    monkeypatch.setattr(
        onnx_model.Served,
        "forward",
        lambda self, x: real(self, x) if torch.compiler.is_compiling() else tuple(0.9 * p for p in real(self, x)),
    )
    result = export(new, tmp_path / "model.onnx")
    assert isinstance(result.exception, LecoError)
    assert "onnxruntime and torch differ by" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_ending_must_be_known(new, tmp_path):
    assert "the suffix must be .onnx" in str(export(new, tmp_path / "model.pt").exception)


def serve_module():
    spec = importlib.util.spec_from_file_location("serve_onnx", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bundle_stays_as_it_is(new):
    assert "is inside the bundle" in str(export(new, new.folder / "model.onnx").exception)
    assert not (new.folder / "model.onnx").exists()


def test_what_an_older_version_has_no_name_for_is_told_as_predict_does(new, tmp_path):
    content = new.ontology.to_dict()
    content["versions"][1]["classes"]["7"] = {"from": []}  # brand-new
    ontology = Ontology.from_dict(content)
    description = new.description.model_copy(update={"calibration": {}, "ontology": ontology.fingerprint})
    write_bundle(tmp_path / "b", description, ontology, new.network().state_dict(), new.metrics)
    from leco.model.bundle import read_bundle
    from leco.model.predictions import ranked

    bundle = read_bundle(tmp_path / "b")
    (tmp_path / "model.onnx").write_bytes(exported(bundle)[0])
    module = serve_module()
    model = module.Model.load(str(tmp_path / "model.onnx"))
    pixels = torch.randint(0, 256, (5, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    expected = ranked(model_of(bundle).predictor.probs(pixels), ontology, "v1", top=4)
    for image, answer in zip(pixels, expected, strict=True):
        file = io.BytesIO()
        Image.fromarray(image[0].numpy()).save(file, "PNG")
        found = module.answer(model, file.getvalue(), "v1", top=4)["answers"]
        assert [part["label"] for part in found] == [label for label, _ in answer.classes]
        assert [part["probability"] for part in found] == pytest.approx([p for _, p in answer.classes], abs=1e-5)


def test_the_example_needs_neither_leco_nor_torch():
    modules = set()
    for node in ast.walk(ast.parse(EXAMPLE.read_text())):
        modules |= {alias.name.split(".")[0] for alias in node.names} if isinstance(node, ast.Import) else set()
        modules |= {node.module.split(".")[0]} if isinstance(node, ast.ImportFrom) else set()
    assert not modules & {"leco", "torch", "torchvision", "timm"}


def test_the_example_serves(new, served, pictures):
    module = serve_module()
    image = (pictures / "images" / "6" / "1203.png").read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), module.handler(module.Model.load(str(served)))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}/"

            def post(query: str, content: bytes) -> dict:
                request = urllib.request.Request(address + query, data=content)
                with urllib.request.urlopen(request, timeout=30) as reply:
                    return json.load(reply)

            pixels = torch.from_numpy(np.array(Image.open(io.BytesIO(image)))).view(1, 1, 8, 8)
            probs = model_of(new).predictor.probs(pixels)[0]
            fine = post("?top=3", image)
            assert fine["version"] == "v2"
            assert [int(found["label"]) for found in fine["answers"]] == probs.topk(3).indices.tolist()
            assert fine["answers"][0]["probability"] == pytest.approx(probs.max().item(), abs=1e-5)
            coarse = post("?version=v1", image)["answers"]
            expected = new.ontology.transition("v2", "v1").project(probs[None])[0]
            assert coarse[0]["label"] == new.ontology["v1"].handle(int(expected.argmax()))
            everything = post("?version=v1&top=9", image)["answers"]
            assert {answer["label"] for answer in everything} == {*new.ontology["v1"].handles, ""}
            assert sum(answer["probability"] for answer in everything) == pytest.approx(1, abs=1e-5)
            for query, content in (("", b"no image"), ("?version=v9", image), ("?top=x", image)):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    post(query, content)
                assert refused.value.code == 400
                assert json.load(refused.value)["error"]
                refused.value.close()
        finally:
            server.shutdown()
            thread.join()

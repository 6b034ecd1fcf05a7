"""Export a model as one ONNX file, for servers without leco and torch."""

import json
import logging
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from leco.errors import LecoError, first_line
from leco.model.description import Description
from leco.ontology.ontology import Ontology

LARGEST_DIFFERENCE = 1e-4  # of a probability, between torch and onnxruntime
INPUT = "input"


class Served(nn.Module):
    """Map a server's inputs to probabilities at every version, newest first.

    Images are float in [0, 1]; normalisation is part of the graph.
    """

    def __init__(self, network: nn.Module, description: Description, ontology: Ontology) -> None:
        super().__init__()
        self.network, self.newest = network, description.newest
        self.normalise = None if len(description.shape) == 3 else description.normaliser()
        self.mean: Tensor
        self.factor: Tensor
        self.register_buffer("mean", torch.tensor(description.mean).view(-1, 1, 1))
        self.register_buffer("factor", 1 / torch.tensor(description.std).view(-1, 1, 1))
        self.names = [version.name for version in reversed(ontology.versions[:-1])]
        for number, name in enumerate(self.names):
            self.register_buffer(f"shares_{number}", ontology.transition(self.newest, name).shares)

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """(n, …) -> probabilities (n, c), or (n, c, h, w), for each version."""
        ready = self.normalise(inputs) if self.normalise is not None else (inputs - self.mean) * self.factor
        probs = self.network(ready)[self.newest].softmax(dim=1)
        older = [
            (probs.movedim(1, -1) @ getattr(self, f"shares_{number}")).movedim(-1, 1)
            for number in range(len(self.names))
        ]
        return (probs, *older)


def export_onnx(network: nn.Module, description: Description, ontology: Ontology, name: str) -> tuple[bytes, float]:
    """Return the file, and the largest difference from torch on random inputs; refuse more than rounding errors."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  (what torch exports with)
    except ImportError as error:
        raise LecoError(f"export needs {error.name}; install it with: pip install 'leco[onnx]'") from None
    served = Served(network, description, ontology).eval()
    shape = input_shape(description)
    outputs = output_names(description)
    model = _traced(served, shape, list(outputs))
    onnx.helper.set_model_props(model, metadata(description, ontology))
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    difference = max(_difference(served, session, outputs, shape, count) for count in (1, 3))
    if not difference <= LARGEST_DIFFERENCE:
        raise LecoError(
            f"{name}: onnxruntime and torch differ by {difference:.2g} on random inputs, more than "
            f"{LARGEST_DIFFERENCE:g}; nothing was written"
        )
    return content, difference


def _traced(served: Served, shape: tuple[int, ...], outputs: list[str]) -> Any:
    """Trace the graph, for any batch size."""
    example = torch.rand(2, *shape)
    batch = torch.export.Dim("batch", min=1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                served,
                (example,),
                dynamo=True,
                dynamic_shapes=({0: batch},),
                input_names=[INPUT],
                output_names=outputs,
                optimize=True,
                verbose=False,
            )
    except Exception as error:  # a backbone may use operations that ONNX does not have
        problem = first_line(error)
        raise LecoError(f"this model cannot be exported: {problem}") from None
    assert program is not None
    model = program.model_proto
    for node in (*model.graph.node, *model.graph.value_info):
        node.ClearField("metadata_props")  # lines of code, and the folders of this machine
        node.ClearField("doc_string")
    return model


@torch.no_grad()
def _difference(served: Served, session: Any, outputs: tuple[str, ...], shape: tuple[int, ...], count: int) -> float:
    inputs = torch.rand(count, *shape, generator=torch.Generator().manual_seed(count))
    expected = served(inputs)
    found = session.run(list(outputs), {INPUT: inputs.numpy()})
    return max(float(np.abs(a - b.numpy()).max()) for a, b in zip(found, expected, strict=True))


def input_shape(description: Description) -> tuple[int, ...]:
    """Shape of one sample; in segmentation, of a window."""
    if description.window is None:
        return description.shape
    return (description.shape[0], description.window, description.window)


def output_names(description: Description) -> tuple[str, ...]:
    """Names of the outputs, one for each version, newest first."""
    return tuple(f"probabilities_{version}" for version in reversed(description.versions))


def metadata(description: Description, ontology: Ontology) -> dict[str, str]:
    """Everything a server must know, as strings; lists and mappings as JSON."""
    side, shape = description.side, input_shape(description)
    images = f"{'RGB' if shape[0] == 3 else 'grey'} in [0, 1]"
    if side is None:
        how = f"{description.modality.inputs_are} as they are"
    elif description.window is not None:
        how = f"{images}; the longer edge scaled to {side}; windows of {shape[1]} x {shape[2]}"
    else:
        how = f"{images}; the shorter edge scaled to {side}; the middle {shape[1]} x {shape[2]} of it"
    return {
        "leco": description.leco,
        "leco.task": description.task,
        "leco.preprocessing": how,
        "leco.input": json.dumps({"shape": shape, "side": side}),
        "leco.versions": json.dumps(description.versions, ensure_ascii=False),
        "leco.outputs": json.dumps(
            dict(zip(reversed(description.versions), output_names(description), strict=True)), ensure_ascii=False
        ),
        "leco.fingerprint": description.ontology,
        "leco.ontology": json.dumps(ontology.to_dict(), ensure_ascii=False),
        "leco.classes": json.dumps({v.name: v.handles for v in ontology.versions}, ensure_ascii=False),
    }

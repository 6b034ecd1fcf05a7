"""Serve a model that `leco export` wrote, with onnxruntime, numpy and Pillow; leco and torch are not needed.

    python examples/serve_onnx.py model.onnx 8080
    curl --data-binary @photo.jpg 'http://localhost:8080/?version=v1&top=3'

A model for feature vectors takes a JSON list of numbers instead of an image. Everything else is in the file: the
preprocessing, the versions and the names of their classes. This is a demonstration, not a server for the internet.
"""

import io
import json
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

LARGEST = 20_000_000  # bytes of a request


@dataclass(frozen=True)
class Model:
    """A session, and the metadata of its file."""

    session: Any
    task: str
    shape: tuple[int, ...]
    side: int | None
    classes: dict[str, list[str]]  # by version, oldest first
    outputs: dict[str, str]  # by version

    @classmethod
    def load(cls, path: str) -> "Model":
        """Read a file."""
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        known = session.get_modelmeta().custom_metadata_map
        given = json.loads(known["leco.input"])
        return cls(
            session,
            known["leco.task"],
            tuple(given["shape"]),
            given["side"],
            json.loads(known["leco.classes"]),
            json.loads(known["leco.outputs"]),
        )


def read_image(content: bytes, model: Model) -> np.ndarray:
    """Decode an image as the model takes it: upright, its middle, in [0, 1]."""
    channels, height, width = model.shape
    with Image.open(io.BytesIO(content)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    scale = model.side / min(upright.size)
    size = tuple(max(model.side, int(edge * scale)) for edge in upright.size)
    pixels = np.asarray(upright.resize(size, Image.Resampling.BILINEAR), dtype=np.float32) / 255
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    middle = pixels[top : top + height, left : left + width].transpose(2, 0, 1)
    return middle if channels == 3 else middle.mean(axis=0, keepdims=True)


def answer(model: Model, content: bytes, version: str | None = None, top: int = 1) -> dict[str, Any]:
    """Return the likeliest classes of a version, the newest by default; "" for a class that it does not have."""
    version = version or list(model.classes)[-1]
    if version not in model.outputs:
        raise ValueError(f"{version!r} is not one of the versions {', '.join(model.outputs)}")
    if model.task == "segmentation":
        raise ValueError("this server does not predict masks")
    sample = np.array(json.loads(content)) if model.task == "features" else read_image(content, model)
    if sample.shape != model.shape:
        raise ValueError(f"the model takes {model.shape}, not {sample.shape}")
    (probabilities,) = model.session.run([model.outputs[version]], {"input": sample[None].astype(np.float32)})
    labels, values = model.classes[version], probabilities[0]
    if version != list(model.classes)[-1]:  # a newer class may not exist in an older version
        labels, values = [*labels, ""], np.append(values, max(0.0, 1 - values.sum()))
    best = np.argsort(-values, kind="stable")[:top]
    found = [{"label": labels[i], "probability": float(values[i])} for i in best]
    return {"version": version, "answers": found}


def handler(model: Model) -> type[BaseHTTPRequestHandler]:
    """Return a request handler: POST an image, get JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            wanted = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
            try:
                length = int(self.headers.get("Content-Length", 0))
                if not 0 < length <= LARGEST:
                    raise ValueError(f"a request must have 1 to {LARGEST} bytes, not {length}")
                content = self.rfile.read(length)
                found = answer(model, content, wanted.get("version"), max(1, int(wanted.get("top", 1))))
                self._reply(200, found)
            except Exception as error:  # whatever an image or a query may cause is the client's to fix
                self._reply(400, {"error": str(error)})

        def _reply(self, code: int, content: dict[str, Any]) -> None:
            text = json.dumps(content, ensure_ascii=False).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


def main() -> None:
    """Serve until interrupted."""
    model, port = Model.load(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8080
    with ThreadingHTTPServer(("127.0.0.1", port), handler(model)) as server:
        print(f"http://127.0.0.1:{port} predicts {', '.join(model.outputs)}")
        server.serve_forever()


if __name__ == "__main__":
    main()

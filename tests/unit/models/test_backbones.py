"""Pretrained weights, as far as they can be tested offline."""

import timm
import torch
from safetensors.torch import save_file

from leco.models.backbones import build_backbone, cached_weights


def test_pretrained_weights_that_are_on_this_machine_are_loaded_without_the_network(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path))
    assert cached_weights("resnet18") is None
    assert cached_weights("wrn-28-2") is None
    place = tmp_path / "models--timm--resnet18.a1_in1k"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("abc")
    (place / "snapshots" / "abc").mkdir(parents=True)
    made = timm.create_model("resnet18")
    save_file(made.state_dict(), place / "snapshots" / "abc" / "model.safetensors")
    assert cached_weights("resnet18") is not None
    grey = build_backbone("resnet18", (1, 64, 64), pretrained=True)
    torch.testing.assert_close(grey.layer1[0].conv1.weight, made.layer1[0].conv1.weight)

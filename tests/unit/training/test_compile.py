from functools import partial

import pytest
import torch
from tests.unit.training.test_loop import make_training
from torch._dynamo.utils import counters

from leco import LecoError
from leco.devices import compiled


@pytest.mark.parametrize("method", ["joint+st-soft/cond", "lpl+fixmatch/cond"])
def test_a_compiled_network_trains_the_same_in_one_graph_a_kind_of_pass(method, monkeypatch):
    traced = partial(torch.compile, backend="aot_eager")  # traces like the usual one, but needs no C++ compiler
    monkeypatch.setattr(torch, "compile", traced)
    monkeypatch.setattr("shutil.which", lambda name: name if name == "g++" else None)
    torch._dynamo.reset()
    counters.clear()
    training = make_training(method, steps=4, network={"compile": True})
    for mine, theirs in zip(training.run(), make_training(method, steps=4).run(), strict=True):
        assert mine.losses == pytest.approx(theirs.losses, rel=1e-4)
        assert mine.score == theirs.score
    passes = 2 if "fixmatch" in method else 1  # with gradients, and without
    assert counters["stats"]["unique_graphs"] == passes
    assert not counters["graph_break"]
    assert not any("_orig_mod" in name for name in training.checkpoint().tensors)


def test_what_compiles_must_be_there(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    network = torch.nn.Linear(2, 2)
    with pytest.raises(LecoError, match=r"training.network.compile: needs a C\+\+ compiler; install g\+\+ or clang"):
        compiled(network, torch.device("cpu"))
    with pytest.raises(LecoError, match=r"training.network.compile: needs Triton; pip install triton, or set it to"):
        compiled(network, torch.device("cuda"))

"""Models of the last period in a store, for the other scripts in this folder."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from leco.devices import make_fabric
from leco.evaluation.evaluate import Judge
from leco.experiments.experiment import experiment
from leco.experiments.run import build_network
from leco.experiments.stages import Stage, plan
from leco.experiments.train import periods_of


def arguments(description: str) -> argparse.ArgumentParser:
    """The arguments that all scripts share: the store, and the benchmark of its models."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("benchmark")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--budget", default="small")
    return parser


def stored_models(
    options: argparse.Namespace, seed: int | None = None
) -> Iterator[tuple[str, Stage, Judge, nn.Module]]:
    """Yield name, stage, judge and network of each complete model of the last period, of one seed or of all."""
    for path in sorted((options.runs / "stages").glob("*/config.json")):
        config = json.loads(path.read_text())
        mine = config["material"].startswith(f"{options.benchmark} ") and seed in (None, config["seed"])
        if not config["period"] or not mine:
            continue
        changes = {name: config[name] for name in ("method", "strategy", "annotation", "head_start", "seed")}
        wanted = experiment(options.benchmark, changes | {"budget": options.budget}, {})
        periods = periods_of(wanted, options.data)
        stage = plan(wanted, periods).periods[-1][0]
        held_out = periods.annotated(stage.period, stage.annotation).validation
        judge = Judge(periods, stage.period, held_out, make_fabric("cpu"), stage.training.segmentation.window)
        # By its folder, not by the name of the stage: an older leco, with fewer settings, may have named it otherwise.
        network = build_network(stage, periods)
        network.load_state_dict(load_file(path.with_name("model.safetensors")))
        name = stage.annotation if stage.annotation != "label-new" else str(stage.method)
        yield name, stage, judge, network.eval()

"""What several stages of segmentation make of the same test frames, as one picture: predictions only, no frame.

    python examples/predicted_maps.py runs camvid-leco --data DIR -o maps.png

Of each complete stage of the last period and one seed in `runs`, one row; a frame is a column.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from leco.data.palette import palette
from leco.data.views.sheet import contact_sheet
from leco.experiments.config import experiment
from leco.experiments.judging import Judge
from leco.experiments.material import make_material
from leco.experiments.networks import build_network
from leco.experiments.stages import plan
from leco.training.devices import make_fabric


@torch.no_grad()
def main() -> None:
    """Find the stages, let each predict, put the maps together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("benchmark")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--budget", default="small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path("maps.png"))
    options = parser.parse_args()
    rows = []
    for path in sorted((options.runs / "stages").glob("*/config.json")):
        config = json.loads(path.read_text())
        mine = config["material"].startswith(f"{options.benchmark} ") and config["seed"] == options.seed
        if not config["period"] or not mine:
            continue
        changes = {name: config[name] for name in ("method", "strategy", "annotation", "head_start", "seed")}
        wanted = experiment(options.benchmark, changes | {"budget": options.budget}, {})
        material = make_material(wanted, options.data)
        stage = plan(wanted, material).periods[-1][0]
        held_out = material.annotated(stage.period, stage.annotation).validation
        judge = Judge(material, stage.period, held_out, make_fabric("cpu"), stage.training.window)
        tested = material.tested(stage.period)
        chosen = tested[torch.linspace(0, len(tested) - 1, options.frames).long()]
        network = build_network(stage, material, pretrained=False)
        network.load_state_dict(load_file(path.with_name("model.safetensors")))
        network.eval()
        predicted = judge.predict(network, material.test.inputs.read(chosen), chosen, material.test).argmax(dim=1)
        colours = palette(len(material.until(stage.period).newest))[predicted]
        name = stage.annotation if stage.annotation != "label-new" else str(stage.method)
        rows.append((name, colours.permute(0, 3, 1, 2)))
        print(name)
    contact_sheet(sorted(rows, key=lambda row: row[0])).save(options.output)


if __name__ == "__main__":
    main()

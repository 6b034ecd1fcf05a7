"""What several stages of segmentation make of the same test frames, as one picture: predictions only, no frame.

    python examples/predicted_maps.py runs camvid-leco --data DIR -o maps.png

Of each complete stage of the last period and one seed in `runs`, one row; a frame is a column.
"""

from pathlib import Path

import torch
from stored_models import arguments, stored_models

from leco.data.pictures import contact_sheet, palette


@torch.no_grad()
def main() -> None:
    """Find the stages, let each predict, put the maps together."""
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path("maps.png"))
    options = parser.parse_args()
    rows = []
    for name, stage, judge, network in stored_models(options, options.seed):
        material = judge.material
        tested = material.tested(stage.period)
        chosen = tested[torch.linspace(0, len(tested) - 1, options.frames).long()]
        predicted = judge.predict(network, material.test.inputs.read(chosen), chosen, material.test).argmax(dim=1)
        colours = palette(len(material.until(stage.period).newest))[predicted]
        rows.append((name, colours.permute(0, 3, 1, 2)))
        print(name)
    contact_sheet(sorted(rows, key=lambda row: row[0])).save(options.output)


if __name__ == "__main__":
    main()

"""Draw the predictions of several segmentation models for the same test frames, as one picture without the frames.

    python examples/predicted_maps.py runs camvid-leco --data DIR -o maps.png

One row for each complete stage of the last period and one seed in `runs`; one column for each frame.
"""

from pathlib import Path

import torch
from stored_models import arguments, stored_models

from leco.data.pictures import contact_sheet, palette


@torch.no_grad()
def main() -> None:
    """Find the stages, predict with each, and draw."""
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path("maps.png"))
    options = parser.parse_args()
    rows = []
    for name, stage, judge, network in stored_models(options, options.seed):
        periods = judge.periods
        tested = periods.tested(stage.period)
        chosen = tested[torch.linspace(0, len(tested) - 1, options.frames).long()]
        predicted = judge.predict(network, periods.test.inputs.read(chosen), chosen, periods.test).argmax(dim=1)
        colours = palette(len(periods.until(stage.period).newest))[predicted]
        rows.append((name, colours.permute(0, 3, 1, 2)))
        print(name)
    contact_sheet(sorted(rows, key=lambda row: row[0])).save(options.output)


if __name__ == "__main__":
    main()

"""Draw tutorial-v1.svg and tutorial-v2.svg: what the new model of the tutorial does better and worse, by class.

leco evaluate next second/labels.csv --root photos --against upgraded --json > compared.json
.venv/bin/python docs/figures/tutorial.py compared.json
"""

import json
import sys
from pathlib import Path

from leco.reports.details import ClassScore
from leco.reports.plots import classes_dots

SHOWN = 10  # classes with the largest gains, and as many with the smallest

for part in json.loads(Path(sys.argv[1]).read_text()):
    classes = sorted(part["differences"], key=lambda found: -found["gain"])
    chosen = classes if len(classes) <= 2 * SHOWN else classes[:SHOWN] + classes[-SHOWN:]
    cells = {
        name: [ClassScore(found["name"], found["support"], found[when]) for found in chosen]
        for name, when in (("the deployed model, upgraded", "before"), ("trained on from it", "after"))
    }
    figure = classes_dots(cells, f"test accuracy at {part['version']}, %")
    Path(__file__).with_name(f"tutorial-{part['version']}.svg").write_text(figure, encoding="utf-8")

"""Draw architecture.svg: the packages of leco, and which of them may import which.

.venv/bin/python docs/figures/architecture.py
"""

from pathlib import Path

# Packages that stand side by side; each may import the rows below it, and its neighbours to the right.
ROWS = [
    [("cli", "commands"), ("reports", "tables"), ("paper", "numbers")],
    [("planning", "what to annotate"), ("estimator", "scikit-learn")],
    [("experiments", "stages, store, grids; leco.train")],
    [("training", "loop, optimisers, loggers")],
    [("model", "leco.Model: predict, upgrade, bundles")],
    [("evaluation", "scores, comparisons")],
    [("dataset", "leco.Dataset: samples, ontology, periods")],
    [("modalities", "images, vectors, segmentation")],
    [("models", "backbones, heads")],
    [("data", "files, batches, views, benchmarks")],
    [("methods", "losses, pseudo-labels")],
    [("ontology", "versions, transitions, evidence")],
]
BASE = ("base modules", "settings, registry, io, errors, devices, text")
WIDTH, HEIGHT, LEFT, GAP = 430, 34, 8, 6
STYLE = """
svg{background:#fff}text{fill:#1b1f24}.note{fill:#5b626d}
rect{fill:#f2f5f9;stroke:#9aa3af}.base{fill:#e4e9f0}
path{stroke:#5b626d;fill:none;stroke-width:1.5}.tip{fill:#5b626d;stroke:none}
@media(prefers-color-scheme:dark){svg{background:#14171c}text{fill:#e6e9ee}.note{fill:#a8b0bc}
rect{fill:#222832;stroke:#5b6575}.base{fill:#2d3542}path{stroke:#a8b0bc}.tip{fill:#a8b0bc}}
"""


def box(x: float, y: float, width: float, name: str, note: str, kind: str = "") -> str:
    """A box with a name, and what it holds."""
    rect = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="5"/>'
    text = f'<text x="{x + 12}" y="{y + 22}"><tspan font-weight="600">{name}</tspan>'
    return f'{rect}{text}<tspan class="note" dx="8">{note}</tspan></text>'


parts = []
for row, packages in enumerate(ROWS):
    y = 10 + row * (HEIGHT + GAP)
    width = (WIDTH - GAP * (len(packages) - 1)) / len(packages)
    for column, (name, note) in enumerate(packages):
        parts.append(box(LEFT + column * (width + GAP), y, width, name, note))
bottom = 10 + len(ROWS) * (HEIGHT + GAP)
parts.append(box(LEFT, bottom, WIDTH, *BASE, "base"))
side = LEFT + WIDTH + 20
end = bottom + HEIGHT
parts.append(f'<path d="M{side},16 V{end - 10}"/><path class="tip" d="M{side - 5},{end - 12} h10 l-5,12 z"/>')
middle = bottom / 2
turned = f'transform="rotate(90 {side + 12} {middle})"'
parts.append(f'<text class="note" x="{side + 12}" y="{middle}" text-anchor="middle" {turned}>may import</text>')
size = (side + 32, end + 10)
Path(__file__).with_name("architecture.svg").write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}" '
    'role="img" font-family="system-ui, sans-serif" font-size="13">\n<title>The packages of leco: each may import '
    f"those below it</title>\n<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n",
    encoding="utf-8",
)

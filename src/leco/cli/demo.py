"""`leco demo`: tells the story of `experiments.walkthrough`."""

from pathlib import Path
from typing import TYPE_CHECKING

from typer import echo, progressbar

if TYPE_CHECKING:
    from torch import Tensor


def demo(folder: Path = Path("leco-demo")) -> None:
    """Run the walk-through, print what it shows, and write the ontology and its drawing to `folder`."""
    import torch

    from leco.data.benchmarks import digits
    from leco.experiments.walkthrough import NUM_NEW, NUM_OLD, SEEDS, run_seed
    from leco.ontology.draw import to_html
    from leco.ontology.files import write_text

    ontology = digits.ontology()
    evidence = ontology.evidence()
    folder.mkdir(parents=True, exist_ok=True)
    ontology.save(folder / "ontology.yaml")
    write_text(folder / "ontology.html", to_html(ontology))

    echo("1. The ontology evolved: v1 tells digits by their strokes, v2 says which digit.\n")
    for change in ontology.changes("v1", "v2"):
        echo(f"   {change.kind}: {', '.join(change.old)} -> {', '.join(change.new)}")
    echo("\n2. A label is evidence: log P(annotator says it | true class), a row over the ten digits of v2.\n")
    for label, version in (("8", "v2"), ("loop", "v1"), ("", "v1")):
        row = " ".join("   0" if value == 0 else "-inf" for value in evidence.rows([label], version)[0].tolist())
        echo(f"   {(label or 'none') + ' (' + version + ')':12}{row}")
    echo(f"\n3. {NUM_NEW} digits labelled in v2, {NUM_OLD} others in v1; a linear softmax, {SEEDS} random splits.\n")
    with progressbar(range(SEEDS), label="   training") as seeds:
        results = [run_seed(ontology, evidence, seed) for seed in seeds]
    table = {key: torch.tensor([result[key] for result in results]) * 100 for key in results[0]}
    echo(f"\n   {'test mAcc, %':32}{'at v2':>14}{'at v1':>14}")
    for key, values in table.items():
        if key.startswith("v2/"):
            name = key.removeprefix("v2/")
            echo(f"   {name:32}{_spread(values):>14}{_spread(table['v1/' + name]):>14}")
    echo(
        "\n4. The first model guesses the v2 labels of the old samples; their v1 labels correct it. Right guesses, %:\n"
    )
    echo(f"   {'as guessed':32}{_spread(table['pseudo/plain']):>14}")
    kept = f"filtered ({table['pseudo/kept'].mean():.0f} % kept)"
    echo(f"   {kept:32}{_spread(table['pseudo/filter']):>14}")
    echo(f"   {'conditioned (all kept)':32}{_spread(table['pseudo/cond']):>14}")
    echo(f"\nMean ± standard deviation over {SEEDS} splits. The ontology is drawn in {folder / 'ontology.html'};")
    echo(f"try also: .venv/bin/leco ontology diff {folder / 'ontology.yaml'}")


def _spread(values: "Tensor") -> str:
    return f"{values.mean():.1f} ± {values.std():.1f}"

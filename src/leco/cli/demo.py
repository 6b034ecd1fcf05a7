"""`leco demo`: the paper's story on the handwritten digits of scikit-learn.

In v1 digits are labelled by their strokes (loop, straight, open curve), in v2 as digits; 60 samples per period, a
network with one hidden layer, 300 steps of 64. Test mAcc in %, eight seeds, a minute on two idle CPU cores: scratch
86.3 ± 1.8, finetune 87.5 ± 1.4, joint 88.0 ± 1.9, lpl 88.7 ± 2.5, lpl+st-hard/cond 89.4 ± 1.8, all-fine 90.8 ± 2.1.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from typer import echo

from leco.paper.claims import ALL_FINE, BEST, FINETUNE, FREEZE, JOINT, LPL, MAIN_CLAIMS, RELABEL, SCRATCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leco.experiments.experiment import Experiment
    from leco.experiments.grid import Graph
    from leco.ontology.ontology import Ontology
    from leco.paper import Key
    from leco.reports.comparison import Scores

_SIZE, _SEEDS = 60, 8
_CHAPTERS = {
    SCRATCH: "new labels only, from scratch",
    FREEZE: "new labels only, old features frozen",
    FINETUNE: "new labels only, old model finetuned",
    RELABEL: "old samples relabelled instead",
    JOINT: "+ old labels, a head of their own (joint)",
    LPL: "+ old labels as evidence (lpl)",
    BEST: "+ pseudo-labels, conditioned on them",
    ALL_FINE: "everything relabelled (all-fine)",
}


def demo(folder: Path = Path("leco-demo")) -> None:
    """Train every chapter of the story, print its results, and keep everything in `folder`."""
    from leco.data.benchmarks import digits
    from leco.experiments.grid import Graph
    from leco.io import write_text
    from leco.ontology.draw import to_html
    from leco.reports.comparison import compare, decide

    ontology = digits.ontology()
    folder.mkdir(parents=True, exist_ok=True)
    ontology.save(folder / "ontology.yaml")
    write_text(folder / "ontology.html", to_html(ontology))
    _print_idea(ontology)
    ways = f"{len(_CHAPTERS)} ways to train for v2, {_SEEDS} seeds"
    echo(f"3. {_SIZE} digits labelled in v1, then {_SIZE} others in v2: {ways}.\n")
    graph = Graph.of([_experiment(key, seed) for key in _CHAPTERS for seed in range(_SEEDS)], folder)
    runs = folder / "runs"
    _train(graph, folder, runs)
    scores = _collect(graph, runs)
    _print_scores(scores)
    echo("4. Do the runs agree with the paper? Gain in points, paired by seed:\n")
    compared = []
    for claim in MAIN_CLAIMS:
        ((better, worse),) = claim.pairs
        compared.append(compare(scores["v2"][better], scores["v2"][worse], planned=_SEEDS))
    decided = decide([(found, "better") for found in compared])
    for claim, found, (_, verdict) in zip(MAIN_CLAIMS, compared, decided, strict=True):
        echo(f"   {claim.text:72}{found!s:>12}  {verdict}")
    _draw(scores["v2"], folder / "results.png")
    echo("\nA small network on small images: a demonstration, not a benchmark. Files:")
    echo(f"   {folder / 'results.png'}    the table as a figure")
    echo(f"   {folder / 'ontology.html'}  the ontology, drawn")
    echo(f"   {runs / 'stages'}    every training: config, metrics, result, weights")
    echo("Try next: leco run digits-leco --method lpl --strategy finetune --seed 1")


def _experiment(key: "Key", seed: int) -> "Experiment":
    from leco.experiments.experiment import experiment

    choices = {"method": key.method, "strategy": key.strategy, "annotation": key.annotation}
    return experiment("digits-leco", {**choices, "seed": seed, "size": _SIZE}, {})


def _print_idea(ontology: "Ontology") -> None:
    echo("1. The ontology evolved: v1 groups digits by their strokes, v2 tells them apart.\n")
    for change in ontology.changes("v1", "v2"):
        echo(f"   {change.kind}: {', '.join(change.old)} -> {', '.join(change.new)}")
    echo("\n2. A label is evidence: log P(annotator gives it | true class), a row over the ten digits of v2.\n")
    evidence = ontology.evidence()
    for label, version in (("8", "v2"), ("loop", "v1"), ("", "v1")):
        row = " ".join("   0" if value == 0 else "-inf" for value in evidence.rows([label], version)[0].tolist())
        echo(f"   {(label or 'none') + ' (' + version + ')':12}{row}")
    echo()


def _train(graph: "Graph", root: Path, runs: Path) -> None:
    from leco.cli.grid import watch
    from leco.errors import LecoError
    from leco.experiments.grid import run_locally
    from leco.experiments.pools import cores

    missing = graph.missing(runs)
    shared = graph.wanted - len(graph.stages)
    echo(f"   {graph.wanted} trainings, {shared} of them shared with others: {len(missing)} to do\n")
    if not missing:
        return
    states = run_locally(graph, root, runs, jobs=min(4, cores()), device="cpu")
    for problem in watch(states, len(missing), str(runs)).failed.values():
        raise LecoError(f"a training failed: {problem}")


def _collect(graph: "Graph", runs: Path) -> "dict[str, dict[Key, Scores]]":
    """The test scores of every chapter at each version, in percent."""
    from leco.experiments.stages import choose
    from leco.experiments.store import Store
    from leco.reports.comparison import Scores

    store = Store(runs)
    results = [store.require(choose(plan.periods[-1], store).fingerprint) for plan in graph.plans]
    found: dict[str, dict[Key, Scores]] = {"v2": {}, "v1": {}}
    for version, table in found.items():
        for number, key in enumerate(_CHAPTERS):
            mine = results[number * _SEEDS : (number + 1) * _SEEDS]
            table[key] = Scores(
                {seed: 100 * (result.score("test", version) or 0.0) for seed, result in enumerate(mine)}
            )
    return found


def _print_scores(scores: "Mapping[str, Mapping[Key, Scores]]") -> None:
    from leco.reports.comparison import gap_closed

    echo(f"   {'test mAcc, %':44}{'at v2':>12}{'at v1':>12}{'gap closed':>12}")
    for key, found in scores["v2"].items():
        share = gap_closed(found, scores["v2"][FINETUNE], scores["v2"][ALL_FINE])
        closed = "" if share is None or share <= 0 else f"{100 * share:.0f} %"
        echo(f"   {_CHAPTERS[key]:44}{found!s:>12}{scores['v1'][key]!s:>12}{closed:>12}")
    echo("   gap: between finetuning on new labels only and all-fine\n")


def _draw(cells: "Mapping[Key, Scores]", path: Path) -> None:
    """Draw a row per chapter: a dot for each seed, the mean, and the standard deviation."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 0.42 * len(cells) + 1.3), layout="constrained")
    for y, scores in zip(reversed(range(len(cells))), cells.values(), strict=True):
        axes.plot(list(scores.by_seed.values()), [y] * len(scores), "o", color="#7aa6c2", markersize=4, alpha=0.7)
        axes.errorbar(scores.mean, y, xerr=scores.std or 0, fmt="D", color="#123f5a", markersize=6, capsize=4)
        axes.annotate(str(scores), (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    for key, style in ((FINETUNE, ":"), (ALL_FINE, "--")):
        axes.axvline(cells[key].mean, linestyle=style, color="#888888", linewidth=1, zorder=0)
    axes.set_yticks(range(len(cells)), [_CHAPTERS[key] for key in reversed(list(cells))])
    axes.set_xlabel("mean per-class accuracy on test, %")
    axes.set_title(f"digits-leco, {_SIZE} samples per period, {_SEEDS} seeds", fontsize=10, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)

"""`leco demo`: tells the story of `experiments.story`."""

from pathlib import Path
from typing import TYPE_CHECKING

from typer import echo

if TYPE_CHECKING:
    from leco.experiments.grid import Graph
    from leco.ontology.ontology import Ontology
    from leco.paper.claims import Chapter
    from leco.reports.comparison import Scores


def demo(folder: Path = Path("leco-demo")) -> None:
    """Train the story's cells, print what they show, and keep everything in `folder`."""
    from leco.data.benchmarks import digits
    from leco.experiments.grid import Graph
    from leco.io import write_text
    from leco.ontology.draw import to_html
    from leco.paper.claims import CHAPTERS, CONCLUSIONS, FINETUNE, SEEDS, SIZE
    from leco.reports.comparison import compare
    from leco.reports.plots import draw_scores

    ontology = digits.ontology()
    folder.mkdir(parents=True, exist_ok=True)
    ontology.save(folder / "ontology.yaml")
    write_text(folder / "ontology.html", to_html(ontology))
    _tell_idea(ontology)
    echo(f"3. {SIZE} digits labelled in v1, then {SIZE} others in v2: eight ways to train for v2, {SEEDS} seeds.\n")
    experiments = [chapter.experiment(seed) for chapter in CHAPTERS for seed in range(SEEDS)]
    graph = Graph.of(experiments, folder)
    runs = folder / "runs"
    _train(graph, folder, runs)
    scores = _collect(graph, runs, list(CHAPTERS))
    _print_scores(scores)
    echo("4. Does it bear out the paper? Gain in points, paired over the seeds:\n")
    for conclusion, better, worse in CONCLUSIONS:
        found = compare(scores["v2"][better], scores["v2"][worse])
        echo(f"   {conclusion:72}{found!s:>12}  {found.verdict}")
    named = {chapter.name: found for chapter, found in scores["v2"].items()}
    title = f"digits-leco, {SIZE} samples a period, {SEEDS} seeds"
    draw_scores(named, folder / "results.png", FINETUNE.name, CHAPTERS[-1].name, title)
    echo("\nA small network on small images: a demonstration, not a benchmark. Files:")
    echo(f"   {folder / 'results.png'}    the table as a figure")
    echo(f"   {folder / 'ontology.html'}  the ontology, drawn")
    echo(f"   {runs / 'stages'}    every training: config, metrics, result, weights")
    echo("Try next: leco run digits-leco --method lpl --strategy finetune --seed 1")


def _tell_idea(ontology: "Ontology") -> None:
    echo("1. The ontology evolved: v1 tells digits by their strokes, v2 says which digit.\n")
    for change in ontology.changes("v1", "v2"):
        echo(f"   {change.kind}: {', '.join(change.old)} -> {', '.join(change.new)}")
    echo("\n2. A label is evidence: log P(annotator says it | true class), a row over the ten digits of v2.\n")
    evidence = ontology.evidence()
    for label, version in (("8", "v2"), ("loop", "v1"), ("", "v1")):
        row = " ".join("   0" if value == 0 else "-inf" for value in evidence.rows([label], version)[0].tolist())
        echo(f"   {(label or 'none') + ' (' + version + ')':12}{row}")
    echo()


def _train(graph: "Graph", root: Path, runs: Path) -> None:
    from leco.cli.grid import watch
    from leco.errors import LecoError
    from leco.experiments.grid import cores, run_locally

    missing = graph.missing(runs)
    shared = graph.wanted - len(graph.stages)
    echo(f"   {graph.wanted} trainings, {shared} of them shared with others: {len(missing)} to do\n")
    if not missing:
        return
    states = run_locally(graph, root, runs, jobs=min(4, cores()), device="cpu")
    for problem in watch(states, len(missing), str(runs)).failed.values():
        raise LecoError(f"a training failed: {problem}")


def _collect(graph: "Graph", runs: Path, chapters: "list[Chapter]") -> "dict[str, dict[Chapter, Scores]]":
    """The test scores of every chapter at each version, in percent."""
    from leco.experiments.stages import choose
    from leco.experiments.store import Store
    from leco.paper.claims import SEEDS
    from leco.reports.comparison import Scores

    store = Store(runs)
    results = [store.require(choose(plan.periods[-1], store).fingerprint) for plan in graph.plans]
    found: dict[str, dict[Chapter, Scores]] = {"v2": {}, "v1": {}}
    for version, table in found.items():
        for number, chapter in enumerate(chapters):
            mine = results[number * SEEDS : (number + 1) * SEEDS]
            table[chapter] = Scores({seed: 100 * result["test"][version]["macc"] for seed, result in enumerate(mine)})
    return found


def _print_scores(scores: "dict[str, dict[Chapter, Scores]]") -> None:
    from leco.paper.claims import ALL_FINE, FINETUNE
    from leco.reports.comparison import gap_closed

    echo(f"   {'test mAcc, %':44}{'at v2':>12}{'at v1':>12}{'gap closed':>12}")
    for chapter, found in scores["v2"].items():
        share = gap_closed(found, scores["v2"][FINETUNE], scores["v2"][ALL_FINE])
        closed = "" if share is None or share <= 0 else f"{100 * share:.0f} %"
        echo(f"   {chapter.name:44}{found!s:>12}{scores['v1'][chapter]!s:>12}{closed:>12}")
    echo("   gap: between finetuning on new labels only and all-fine\n")

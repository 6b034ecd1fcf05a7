"""Back-test of plans: test mAcc after carrying out the labelling that a plan simulates.

    .venv/bin/python benchmarks/plan_backtest.py cub-leco --sizes 800 1200 --seeds 10 11 12 13 14 --data DIR
    .venv/bin/python benchmarks/plan_backtest.py cifar-leco --sizes 1000 2000 --seeds 10 11 12 13 14 --data DIR \
        --stage FOLDER
    .venv/bin/python benchmarks/plan_backtest.py --figure docs/figures/planning.svg

A plan gets a smaller benchmark; the rest of the pool are samples to label. Each strategy is then carried out on samples
drawn at random, a head is trained on all labels (as the plan does: frozen features, evidence losses), and scored on the
whole test split, which plans never read. A case is one training. Features of CIFAR are those of the network in FOLDER,
a stage of a store (see docs/how-to/planning.md). Cases are stored in RUNS/backtest, for the figure and to resume.
"""

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leco.data.periods import Part, seeded
from leco.data.samples import Samples
from leco.dataset import Periods
from leco.experiments.experiment import experiment
from leco.experiments.machine import Machine
from leco.experiments.train import periods_of
from leco.models.backbones import build_backbone
from leco.ontology.evidence import UNLABELLED
from leco.planning.features import Extractor
from leco.planning.heads import logits
from leco.planning.known import HISTORY, NEWEST, Known
from leco.planning.measure import DRAWS
from leco.planning.prepare import Prepared, load_context, prepare
from leco.planning.strategies import Costs, Mixture, break_even, choose, outcome

BUDGETS = (0.5, 1.0, 2.0)  # of the number of newest labels, at a cost of 1 each
RELABEL_COSTS = (1.0, 0.7, 0.4)
RATIOS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the figure


def main() -> None:
    """Run one benchmark, or draw the results of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="?")
    parser.add_argument("--sizes", type=int, nargs="+", default=[800])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--stage", type=Path, help="folder with model.safetensors of a WRN-16-1")
    parser.add_argument("--backbone", help="as for `leco plan`: a timm model, or pixels")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.runs / "backtest"
    folder.mkdir(parents=True, exist_ok=True)
    if options.benchmark:
        for size in options.sizes:
            for seed in options.seeds:
                path = folder / f"{options.benchmark}-{size}-{seed}.json"
                if not path.is_file():
                    path.write_text(json.dumps(view(options, size, seed)) + "\n")
                print(f"{path.name}: {summary([json.loads(path.read_text())])}", flush=True)
    views = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for benchmark in sorted({found["benchmark"] for found in views}):
        print(f"{benchmark}: {summary([found for found in views if found['benchmark'] == benchmark])}")
    print(f"all: {summary(views)}")
    if options.figure:
        draw(views, options.figure)


def view(options: argparse.Namespace, size: int, seed: int) -> dict[str, Any]:
    """Plan on one smaller benchmark, and carry the plan out."""
    name = {"cifar-leco": "cifar-leco-1k"}.get(options.benchmark, options.benchmark)
    wanted = experiment(name, {"size": size, "seed": seed}, {})
    periods = periods_of(wanted, options.data)
    prepared = prepared_with(options, wanted, periods)
    truth = Truth.of(periods, prepared, wanted.dataset(options.data).benchmark.pool)
    cases, rules = [], []
    for budget in (share * size for share in BUDGETS):
        for cost in RELABEL_COSTS:
            costs = Costs(1.0, cost, 0.0)
            choice = choose(prepared.context.known, prepared.curves, budget, costs)
            assert choice is not None
            tried = {
                found.mixture.kind: found for found in (choice.pure("label-new"), choice.pure("relabel-old")) if found
            }
            tried["recommended"] = choice.best
            actual = {}
            for kind, found in tried.items():
                if found.mixture.new > len(truth.reserve):
                    continue
                actual[kind] = truth.macc(found.mixture)
                inside = found.low <= actual[kind] <= found.high
                case = {"kind": kind, "budget": budget, "cost": cost, "new": found.mixture.new}
                case |= {"relabel": found.mixture.relabel, "expected": found.macc, "low": found.low, "high": found.high}
                cases.append(case | {"actual": actual[kind], "inside": inside})
            if len(actual) == len(tried):
                loss = max(value for kind, value in actual.items() if kind != "recommended") - actual["recommended"]
                width = choice.best.high - choice.best.low
                rules.append({"budget": budget, "cost": cost, "loss": loss, "width": width, "decided": choice.decided})
    now = truth.macc(Mixture(0, 0, 0, 0, 0))
    return {
        "benchmark": options.benchmark,
        **{
            "size": size,
            "seed": seed,
            "draws": options.draws,
            "features": prepared.context.reader.extractor.name,
            "now": now,
        },
        **{"cases": cases, "rules": rules, "flip": flip(prepared, truth, size)},
    }


def prepared_with(options: argparse.Namespace, wanted: Any, periods: Periods) -> Prepared:
    """Measure, with features of a stored stage if one is named."""
    backbone = stored(options.stage, periods) if options.stage else options.backbone
    return prepare(load_context(wanted, periods, options.runs, Machine(), backbone), draws=options.draws)


def stored(stage: Path, periods: Periods) -> Extractor:
    """Return the network of a stage, whatever its fingerprint."""
    from safetensors.torch import load_file

    config = json.loads((stage / "config.json").read_text())
    model = config["training"]["model"]
    network = build_backbone(model, periods.shape)
    weights = load_file(stage / "model.safetensors")
    network.load_state_dict({k.removeprefix("backbone."): v for k, v in weights.items() if k.startswith("backbone.")})
    network.eval()
    return Extractor(f"{model.upper()}, {config['version']}", stage.name, network)


class Truth:
    """Data that the plan does not know: the newest label of every sample, samples in reserve, and the test split."""

    def __init__(self, prepared: Prepared, known: Known, reserve: Tensor, test: tuple[Tensor, Tensor]) -> None:
        self.prepared, self.known, self.reserve, self.test = prepared, known, reserve, test
        self.path = prepared.context.folder / "trained.json"  # test mAcc by the samples that were trained on
        self.trained: dict[str, float] = json.loads(self.path.read_text()) if self.path.is_file() else {}

    @classmethod
    def of(cls, periods: Periods, prepared: Prepared, pool: Samples) -> "Truth":
        """Read the data of a benchmark, whose pool has the labels of samples that belong to no period, too."""
        context, newest = prepared.context, periods.versions[-1]
        everything = torch.arange(len(periods.pool))
        kept = torch.ones(len(everything), dtype=torch.bool)
        for period in range(len(periods.versions)):
            annotated = periods.annotated(period, "label-new")
            for part in (annotated.newest, annotated.validation):
                kept[part.indices] = False
        reserve = everything[kept]
        reserve = reserve[torch.randperm(len(reserve), generator=seeded(context.seed + 77))][:6_000]
        known = context.known
        labelled, tested = (
            replace(context.reader, periods=replace(periods, pool=samples), embedded=None)
            for samples in (pool, periods.test)
        )
        rows = labelled.read(Part(newest, torch.cat([reserve, known.samples(HISTORY)])))
        fine = known.part == NEWEST
        features = torch.cat([known.features[fine], context.projection(rows.features)])
        samples = torch.cat([known.sample[fine], rows.sample])
        labels = torch.cat([known.labels[fine], rows.labels])
        everything_known = Known(known.evidence, features, samples, labels, torch.full_like(samples, NEWEST))
        test = tested.read(Part(newest, torch.arange(len(periods.test))))
        seen = test.labels != UNLABELLED  # a mask may have no label at all
        classes = test.labels[seen] - known.evidence.offsets[newest]
        return cls(prepared, everything_known, reserve, (context.projection(test.features[seen]), classes))

    def macc(self, mixture: Mixture) -> float:
        """Carry a mixture out, once, on samples drawn at random."""
        pool = self.prepared.context.known.history
        candidates = pool.samples[pool.relabellable]
        order = torch.randperm(len(candidates), generator=seeded(self.prepared.context.seed + 99))
        return self.after(candidates[order[: mixture.relabel]], mixture.new)

    def after(self, relabelled: Tensor, new: int) -> float:
        """Test mAcc of a head that knows the newest labels of these samples, and of new ones."""
        samples = json.dumps([relabelled.tolist(), self.reserve[:new].tolist(), self.prepared.context.head.name])
        key = hashlib.sha256(samples.encode()).hexdigest()[:16]
        if key not in self.trained:
            self.trained[key] = self.train(relabelled, new)
            self.path.write_text(json.dumps(self.trained))
        return self.trained[key]

    def train(self, relabelled: Tensor, new: int) -> float:
        """Train such a head, and return its test mAcc."""
        known = self.prepared.context.known
        fine = self.known.rows(torch.cat([known.samples(NEWEST), relabelled, self.reserve[:new]]))
        still_old = ~torch.isin(known.sample, relabelled) & (known.part == HISTORY)
        merged = replace(
            known,
            features=torch.cat([self.known.features[fine], known.features[still_old]]),
            sample=torch.cat([self.known.sample[fine], known.sample[still_old]]),
            labels=torch.cat([self.known.labels[fine], known.labels[still_old]]),
            part=torch.cat([self.known.part[fine], known.part[still_old]]),
        )
        head = replace(self.prepared.context.head, known=merged).fit(merged.samples(NEWEST), merged.samples(HISTORY))
        features, classes = self.test
        right = (logits(head, features).argmax(dim=1) == classes).double()
        counts = torch.bincount(classes, minlength=known.num_classes)
        return float((torch.bincount(classes, right, minlength=known.num_classes) / counts)[counts > 0].mean())


def flip(prepared: Prepared, truth: Truth, size: int) -> dict[str, Any]:
    """LabelNew against RelabelOld at one budget, for several costs of relabelling."""
    budget = size // 2
    new = Mixture(0, budget, 0, 0, budget)
    pool = len(prepared.context.known.history.relabellable)
    expected = outcome(prepared.context.known, prepared.curves, new)
    points = []
    for ratio in RATIOS:
        old = Mixture(1, 0, min(pool, int(budget / ratio)), 0, budget)
        found = outcome(prepared.context.known, prepared.curves, old)
        point = {"ratio": ratio, "relabel": old.relabel, "expected": found.macc, "low": found.low, "high": found.high}
        points.append(point | {"actual": truth.macc(old)})
    label_new = {"expected": expected.macc, "low": expected.low, "high": expected.high, "actual": truth.macc(new)}
    return {"budget": budget, "label-new": label_new, "relabel-old": points} | {
        "break_even": break_even(prepared.context.known, prepared.curves, budget)
    }


def summary(views: list[dict[str, Any]]) -> str:
    """Return how often actual values are within their intervals, and the largest loss of the recommended mixture."""
    # LabelNew does not depend on the cost of relabelling: each training counts once.
    distinct = [{(case["new"], case["relabel"]): case for case in found["cases"]} for found in views]
    cases = [case for found in distinct for case in found.values()]
    rules = [rule for found in views for rule in found["rules"]]
    if not cases or not rules:
        return "nothing"
    inside = sum(case["inside"] for case in cases)
    width = sum(case["high"] - case["low"] for case in cases) / len(cases)
    bias = sum(case["expected"] - case["actual"] for case in cases) / len(cases)
    worst = max(rule["loss"] for rule in rules)
    kept = sum(rule["loss"] <= rule["width"] for rule in rules)
    return (
        f"{inside} of {len(cases)} inside ({inside / len(cases):.0%}), mean width {100 * width:.1f}, "
        f"bias {100 * bias:+.1f} points; recommended within its interval of the better pure one in {kept} of "
        f"{len(rules)}, at worst {100 * worst:.1f} points below"
    )


def draw(views: list[dict[str, Any]], path: Path) -> None:
    """Draw LabelNew and RelabelOld against the cost ratio: expected with interval, and actual."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "leco", "svg.fonttype": "none"})
    groups = sorted({(found["benchmark"], found["size"]) for found in views})
    figure, axes = plt.subplots(1, len(groups), figsize=(4.0 * len(groups), 3.4), layout="constrained", squeeze=False)
    for axis, (benchmark, size) in zip(axes[0], groups, strict=True):
        chosen = [found["flip"] for found in views if (found["benchmark"], found["size"]) == (benchmark, size)]

        def mean(values: list[float]) -> float:
            return 100 * sum(values) / len(values)

        old = [[found["relabel-old"][place] for found in chosen] for place in range(len(RATIOS))]
        new = [found["label-new"] for found in chosen]
        bands = {
            key: [mean([point[key] for point in points]) for points in old]
            for key in ("expected", "low", "high", "actual")
        }
        axis.fill_between(RATIOS, bands["low"], bands["high"], color="#0072b2", alpha=0.15)
        axis.plot(RATIOS, bands["expected"], color="#0072b2", label="RelabelOld, expected")
        axis.plot(RATIOS, bands["actual"], "o", color="#0072b2", label="RelabelOld, on test")
        axis.axhspan(mean([n["low"] for n in new]), mean([n["high"] for n in new]), color="#e69f00", alpha=0.15)
        axis.axhline(mean([n["expected"] for n in new]), color="#e69f00", linestyle="--", label="LabelNew, expected")
        axis.axhline(mean([n["actual"] for n in new]), color="#e69f00", linestyle=":", label="LabelNew, on test")
        axis.set_title(
            f"{benchmark}, {size} a period, budget {chosen[0]['budget']}\nmeans of {len(chosen)} seeds", fontsize=9
        )
        axis.set_xlabel("cost of relabelling / cost of a new label")
    axes[0][0].set_ylabel("mAcc, %")
    axes[0][0].legend(fontsize=7, frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()

"""Every measurement of docs/explanation/performance.md in one sitting: `make bench`.

    .venv/bin/python benchmarks/bench.py                      # all scripts: about 15 minutes on two idle cores
    .venv/bin/python benchmarks/bench.py --only growth views  # some of them
    .venv/bin/python benchmarks/bench.py --paste              # put the last tables and figures into the documentation

Tables are written to `build/bench/tables.md` and figures beside them. Every script runs in a process of its own. A
script that fails is named at the end; its rows are missing, so that nothing is pasted.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from leco.reports import plots

ROOT = Path(__file__).parents[1]
BUILD, PAGE, FIGURES = (
    ROOT / "build" / "bench",
    ROOT / "docs" / "explanation" / "performance.md",
    ROOT / "docs" / "figures",
)
SCRIPTS = (
    "start_up.py --repeats 3",
    "reports.py",
    "step_overhead.py --repeats 3 --methods ce,joint+pl/filter,lpl,lpl+st-hard/cond,lpl+st-soft/cond,lpl+fixmatch/cond",
    "released.py --repeats 1",
    "released.py --model wrn-10-1",
    "time_to_accuracy.py",
    "convolutions.py",
    "compiling.py",
    "views.py",
    "feeding.py --repeats 1",
    "pixel_losses.py --shape 1 116 720 720 --repeats 3",
    "many_classes.py --repeats 5",
    "frozen.py",
    "growth.py",
    "busy.py --repeats 3",
)
COLUMNS = ("measured", "script", "result", "goal", "limited by")
AXES = {  # of figures: their labels, and their scales
    "growth-samples": ("past samples", "ms a step", "log", "linear"),
    "growth-periods": ("periods", "ms a step", "linear", "linear"),
    "growth-classes": ("newest classes", "ms a step", "log", "log"),
    "growth-processes": ("processes on two cores", "images/s", "linear", "linear"),
}


def main() -> None:
    """Run the scripts and write what they found, or paste it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [script.partition(".")[0] for script in SCRIPTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SCRIPT", help=", ".join(names))
    parser.add_argument("--paste", action="store_true", help="put the last tables and figures into the documentation")
    options = parser.parse_args()
    if options.paste:
        paste()
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    rows = BUILD / "rows.jsonl"
    rows.write_text("")
    started, load, failed = time.time(), os.getloadavg()[0], []
    for script in (script for script in SCRIPTS if script.partition(".")[0] in options.only):
        print(f"== {script}", flush=True)
        begun, (name, *words) = time.perf_counter(), script.split()
        command = [sys.executable, str(ROOT / "benchmarks" / name), *words]
        if subprocess.run(command, env=os.environ | {"LECO_BENCH": str(rows)}, check=False).returncode:
            failed.append(script)
        print(f"({time.perf_counter() - begun:.0f} s)", flush=True)
    found = [json.loads(text) for text in rows.read_text().splitlines()]
    blocks = {"machine": machine(started, load)} | dict(tables(found))
    for name, text in figures(found):
        (BUILD / f"{name}.svg").write_text(text)
        blocks[name.partition("-")[0]] += f"\n\n![{AXES[name][1]} over {AXES[name][0]}](../figures/{name}.svg)"
    (BUILD / "tables.json").write_text(json.dumps({"blocks": blocks, "failed": failed}, ensure_ascii=False))
    (BUILD / "tables.md").write_text("\n\n".join(f"**{name}**\n\n{text}" for name, text in blocks.items()) + "\n")
    print(f"\n{(BUILD / 'tables.md').read_text()}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def machine(started: float, load: float) -> str:
    """Say when and where the figures were measured."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) if sys.platform == "linux" else None
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in ("torch", "timm"))]
    day = datetime.datetime.fromtimestamp(started, datetime.UTC).date().isoformat()
    return (
        f"Measured on {day} in {(time.time() - started) / 60:.0f} minutes: {os.cpu_count()} cores of "
        f"{cpu[1] if cpu else platform.machine()}, no GPU, {', '.join(versions)}; load average {load:.1f} before."
    )


def version(package: str) -> str:
    """Version of an installed package."""
    from importlib.metadata import version as found

    return found(package)


def tables(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the names of all tables, and the tables as Markdown; columns that are empty throughout are left out."""
    for name in dict.fromkeys(entry["table"] for entry in found if "table" in entry):
        rows = [entry for entry in found if entry.get("table") == name]
        cells = [[r["measured"], f"`{r['script']}`", r["result"], r["goal"], r["limit"]] for r in rows]
        used = [number for number in range(len(COLUMNS)) if any(row[number] for row in cells)]
        shown = [[row[number] for number in used] for row in (list(COLUMNS), ["---"] * len(COLUMNS), *cells)]
        yield name, "\n".join(f"| {' | '.join(row)} |" for row in shown)


def figures(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the names of all figures, and the figures as SVG."""
    for name in dict.fromkeys(entry["figure"] for entry in found if "figure" in entry):
        figure, axes = plots._figure(2.6)
        for number, entry in enumerate(entry for entry in found if entry.get("figure") == name):
            plots._line(axes, number, entry["x"], entry["y"], entry["name"])
        axes.set(**dict(zip(("xlabel", "ylabel", "xscale", "yscale"), AXES[name], strict=True)))
        if AXES[name][2] == "linear":
            axes.locator_params(axis="x", integer=True)
        axes.set_ylim(bottom=0 if AXES[name][3] == "linear" else None)
        plots._legend(figure, axes)
        yield name, plots._svg(figure)


def paste() -> None:
    """Replace the tables between the comments of the page, and the figures."""
    stored = json.loads((BUILD / "tables.json").read_text())
    if stored["failed"]:
        sys.exit(f"not pasted, since some scripts failed: {', '.join(stored['failed'])}")
    page = PAGE.read_text()
    for name, text in stored["blocks"].items():
        block = re.compile(rf"(<!-- bench: {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        if not block.search(page):
            sys.exit(f"{PAGE}: has no place for the table {name}: <!-- bench: {name} --> and <!-- end -->")
        page = block.sub(lambda place, text=text: f"{place[1]}\n{text}\n{place[2]}", page)
    PAGE.write_text(page)
    for path in BUILD.glob("*.svg"):
        (FIGURES / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()

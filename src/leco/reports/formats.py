"""A report as Markdown, LaTeX or CSV, and the words that all formats share."""

import csv
import io
from collections.abc import Iterable

from leco.model import card as md
from leco.reports.conclusions import MARGIN, Finding
from leco.reports.plans import PlannedClass
from leco.reports.report import Part, Report
from leco.reports.tables import Entry, Table, entry

GAP = "–"
LEGEND = (
    "Mean ± sample standard deviation over seeds; bold: the best, and what is less than one standard deviation (of the "
    "best) below it"
)
SHARE = "closes: the share of the gap between ce and all-fine, both with finetune, that a method closes"
TESTED = (
    "Gain in points, mean ± standard deviation of the differences, paired over the seeds that both have, two-sided "
    f"t-test at 5 % (similar: within {MARGIN:g} point, two one-sided tests). With so many tests, expect one in "
    "twenty to err; gains over several kinds of pseudo-labels are averaged first"
)


def cell_text(found: Entry | None) -> str:
    """Ours, or a gap."""
    if found is None:
        return ""
    return GAP if found.scores is None else str(found.scores)


def count_text(table: Table) -> str:
    """How many seeds the cells of a table have."""
    counts = table.counts
    if len(counts) == 1:
        return f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    return f"{counts[0]} to {counts[-1]} seeds, as marked" if counts else "nothing trained"


def gain_text(finding: Finding) -> str:
    """The gain, as far as there is one."""
    return str(finding.comparison) if finding.comparison.count else GAP


def more(found: Entry, table: Table) -> list[str]:
    """What stands below a number: seeds where they differ, the gap closed, the paper's figure."""
    parts = []
    if found.scores is not None and len(table.counts) > 1:
        parts.append(f"n {len(found.scores)}")
    if found.share is not None:
        parts.append(f"closes {100 * found.share:.0f} %")
    if found.paper:
        parts.append(f"paper {found.paper_text}")
    return parts


def to_markdown(report: Report) -> str:
    """Tables and conclusions; figures are in the HTML page."""
    lines = ["# Report", "", f"{report.stages:,} stages in {md.plain(str(report.runs))}.", ""]
    for part in report.parts:
        lines += [f"## {md.plain(part.title)}", "", *(f"- {name}: {md.plain(text)}" for name, text in part.facts)]
        lines += [f"- **{md.plain(remark)}**" for remark in part.section.remarks] + [""]
        for table in part.tables:
            lines += [f"**{md.plain(table.caption)}** {count_text(table)}.", ""]
            lines += [*md.table([*table.labels, *table.columns], len(table.labels), _md_cells(table)), ""]
        lines += [f"{LEGEND}. {SHARE}.", ""] if part.tables else []
        if part.findings:
            rows = [
                [md.plain(f.claim.text), gain_text(f), str(f.comparison.count), _paper_gain(f), f"**{f.verdict}**"]
                for f in part.findings
            ]
            lines += md.table(["the paper concludes", "gain", "n", "paper's gain", "here"], 1, rows)
            lines += ["", f"{TESTED}.", ""]
    for plan in report.plans:
        lines += [f"## {md.plain(plan.title)}", "", *(f"- {name}: {md.plain(text)}" for name, text in plan.facts), ""]
        headings = ["class", "labelled", "+ new", "+ relabelled", "now, %", "expected, %", "90 % interval"]
        lines += [*md.table(headings, 1, (_md_planned(row) for row in plan.classes)), ""]
    lines += [f"- left out: {md.plain(problem)}" for problem in report.problems]
    return "\n".join(lines).rstrip() + "\n"


def _md_planned(row: PlannedClass) -> list[str]:
    cells = [md.plain(row.name), str(row.labelled), f"{row.new:.1f}", f"{row.relabel:.1f}"]
    if row.accuracy is None or row.expected is None or row.low is None or row.high is None:
        return [*cells, GAP, GAP, GAP]
    return [
        *cells,
        f"{100 * row.accuracy:.1f}",
        f"{100 * row.expected:.1f}",
        f"{100 * row.low:.1f} to {100 * row.high:.1f}",
    ]


def _md_cells(table: Table) -> Iterable[list[str]]:
    for row in table.rows:
        texts = []
        for found in row.entries:
            text = cell_text(found)
            below = "; ".join(more(found, table)) if found else ""
            marked = f"**{text}**" if found and found.best else text
            texts.append(f"{marked} ({below})" if below else marked)
        yield [*map(md.plain, row.labels), *texts]


def _paper_gain(finding: Finding) -> str:
    return "" if finding.paper_gain is None else f"{finding.paper_gain:+.1f}"


def to_latex(report: Report) -> str:
    """Tables for `booktabs`, to be read with \\input."""
    lines = ["% Needs \\usepackage{booktabs}."]
    for part in report.parts:
        lines += ["", f"% {_tex(part.title)}", *(f"% {name}: {_tex(text)}" for name, text in part.facts)]
        lines += [f"% {_tex(remark)}" for remark in part.section.remarks]
        for table in part.tables:
            lines += _tex_table(part, table)
        if part.findings:
            lines += ["\\begin{tabular}{lrrrl}", "\\toprule", "conclusion & gain & n & paper & here \\\\", "\\midrule"]
            for f in part.findings:
                cells = [_tex(f.claim.text), _tex(gain_text(f)), str(f.comparison.count), _paper_gain(f), f.verdict]
                lines.append(" & ".join(cells) + " \\\\")
            lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _tex_table(part: Part, table: Table) -> list[str]:
    columns = "l" * len(table.labels) + "r" * len(table.columns)
    lines = ["\\begin{table}", "\\centering", f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    lines += [" & ".join(map(_tex, (*table.labels, *table.columns))) + " \\\\", "\\midrule"]
    for row in table.rows:
        cells = []
        for found in row.entries:
            text = _tex(cell_text(found))
            below = [_tex(words) for words in more(found, table)] if found else []
            text = f"\\textbf{{{text}}}" if found and found.best else text
            cells.append(f"{text} {{\\scriptsize ({'; '.join(below)})}}" if below else text)
        lines.append(" & ".join([*map(_tex, row.labels), *cells]) + " \\\\")
    caption = _tex(f"{part.title}: {table.caption} {count_text(table)}. {LEGEND}.")
    return [*lines, "\\bottomrule", "\\end{tabular}", f"\\caption{{{caption}}}", "\\end{table}"]


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in " ".join(text.split()))


_COLUMNS = (
    *("section", "benchmark", "data", "model", "steps", "batch_size", "further_settings", "metric", "period"),
    *("version", "method", "strategy", "annotation", "n", "mean", "std", "seeds", "gap_closed", "paper"),
    *("paper_std", "paper_place"),
)


def to_csv(report: Report) -> str:
    """One row for every cell that was trained, in percent; the paper's figure beside it (the first, if several)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for number, part in enumerate(report.parts, 1):
        section = part.section
        for key in sorted(section.cells):
            found = entry(section, key)
            if found.scores is None:
                continue
            scores, paper = found.scores, found.paper[0] if found.paper else None
            settings = [section.settings.get(name) for name in ("model", "steps", "batch_size")]
            settings.append(dict(part.facts).get("further settings", ""))
            writer.writerow(
                [
                    *(number, section.benchmark, section.data, *settings, section.metric, key.period),
                    *(section.versions[key.period], key.method, key.strategy, key.annotation, len(scores)),
                    *(f"{scores.mean:.4f}", "" if scores.std is None else f"{scores.std:.4f}"),
                    " ".join(map(str, sorted(scores.by_seed))),
                    "" if found.share is None else f"{found.share:.4f}",
                    *((paper.value, paper.std, paper.place) if paper else ("", "", "")),
                ]
            )
    return text.getvalue()

"""A report as Markdown, LaTeX or CSV, and the legends that all formats share."""

import csv
import io
from collections.abc import Iterable

from leco.errors import and_more
from leco.planning.record import NewClass
from leco.reports.analyses import Analysis
from leco.reports.comparison import LEVEL, MARGIN, SEEDS
from leco.reports.report import Entry, Finding, Part, Report, Table, entry
from leco.text import GAP, csv_cells, escape_markdown, interval, markdown_table, percent, plural
from leco.text import escape_markdown as escape

LEGEND = (
    "Mean ± sample standard deviation over seeds; bold: the best, and what is less than one standard deviation (of the "
    "best) below it; closes: the share of the gap between ce and all-fine, both with finetune, that a method closes; "
    f"{GAP}: not trained"
)
TESTED = (
    "Gain in points, mean ± standard deviation of the differences, paired by seed; two-sided t-tests (similar: within "
    f"{MARGIN:g} point, two one-sided tests). Gains with several kinds of pseudo-labels are averaged first. p-values "
    "are corrected for the number of conclusions (Holm): that any of them is decided wrongly has a chance of "
    f"{100 * LEVEL:g} % at most, also if seeds were added after a look at the results, since tests are made with "
    f"{SEEDS}, {2 * SEEDS}, {4 * SEEDS} … seeds and share that chance. Intervals are of one conclusion, at "
    f"{100 * (1 - LEVEL):g} % over its tests"
)
MOST_PROBLEMS = 100  # that a report lists


def score_text(found: Entry) -> str:
    """Our score, or a gap."""
    return GAP if found.scores is None else str(found.scores)


def counts_text(table: Table) -> str:
    """The numbers of cells that were trained, and of their seeds."""
    counts = table.counts
    if not counts:
        return "nothing trained"
    seeds = plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds, as marked"
    return f"{table.trained} of {plural(table.cells, 'cell')} trained, {seeds}"


def notes_on(found: Entry, table: Table) -> list[str]:
    """The notes below a score: seeds where cells differ in them, the gap closed, the paper's figures."""
    notes = []
    if found.scores is not None and len(table.counts) > 1:
        notes.append(f"n {len(found.scores)}")
    if found.share is not None:
        notes.append(f"closes {100 * found.share:.0f} %")
    if found.paper:
        notes.append(f"paper {' or '.join(map(str, found.paper))}")
    return notes


def problems_text(report: Report) -> list[str]:
    """The messages about files and folders that were left out."""
    return and_more(report.problems, MOST_PROBLEMS)


def paper_gain_text(finding: Finding) -> str:
    """The gain in the paper, if it has one."""
    return "" if finding.paper_gain is None else f"{finding.paper_gain:+.1f}"


def interval_text(finding: Finding) -> str:
    """The interval of the gain, if there are enough seeds."""
    found = finding.comparison.interval
    return "" if found is None else f"{found[0]:+.1f} to {found[1]:+.1f}"


def p_text(finding: Finding) -> str:
    """The corrected p-value, if there are enough seeds."""
    if finding.p is None:
        return ""
    return f"{finding.p:.3f}" if finding.p >= 0.001 else "< 0.001"


def to_markdown(report: Report) -> str:
    """Tables, conclusions and plans as Markdown; figures are in the HTML page only."""
    lines = ["# leco report", "", f"{plural(report.stages, 'stage')} in {escape(str(report.runs))}.", ""]
    for analysis in report.models:
        lines += _md_analysis(analysis)
    for part in report.parts:
        lines += [
            f"## {escape(part.title)}",
            "",
            *(f"- {name}: {escape(text)}" for name, text in part.facts),
        ]
        lines += [f"- **{escape(remark)}**" for remark in part.section.remarks] + [""]
        for table in part.tables:
            grid = table.grid
            lines += [f"**{escape(table.caption)}** {counts_text(table)}.", ""]
            lines += [*markdown_table([*grid.labels, *grid.columns], len(grid.labels), _md_rows(table)), ""]
        lines += [f"{LEGEND}.", ""] if part.tables else []
        if part.findings:
            rows = [
                [
                    escape(f.claim.text),
                    str(f.comparison),
                    interval_text(f),
                    str(f.comparison.count),
                    p_text(f),
                    paper_gain_text(f),
                    f"**{f.verdict}**",
                ]
                for f in part.findings
            ]
            headings = ["the paper concludes", "gain", "95 % interval", "n", "p", "paper's gain", "here"]
            lines += markdown_table(headings, 1, rows)
            lines += ["", f"{TESTED}.", ""]
    for analysis in report.analyses:
        lines += _md_analysis(analysis)
    for plan in report.plans:
        lines += [
            f"## {escape(plan.title)}",
            "",
            *(f"- {name}: {escape(text)}" for name, text in plan.facts),
            "",
        ]
        headings = ["class", "labelled", "+ new", "+ relabelled", "now, %", "expected, %", "90 % interval"]
        lines += [*markdown_table(headings, 1, (_md_class(row) for row in plan.classes)), ""]
    lines += [f"- left out: {escape(problem)}" for problem in problems_text(report)]
    return "\n".join(lines).rstrip() + "\n"


def _md_analysis(analysis: Analysis) -> list[str]:
    return [f"## {escape(analysis.title)}", "", *analysis_lines(analysis), ""]


def analysis_lines(analysis: Analysis) -> list[str]:
    """The table of an analysis, and its caption, as Markdown."""
    headings = [*analysis.labels, *analysis.columns]
    rows = ([escape(text) for text in row] for row in analysis.rows)
    return [*markdown_table(headings, len(analysis.labels), rows), "", escape(analysis.caption)]


def _md_class(row: NewClass) -> list[str]:
    counts = [str(row.labelled), f"{row.new:.1f}", f"{row.relabel:.1f}"]
    return [
        escape(row.name),
        *counts,
        percent(row.accuracy),
        percent(row.expected),
        interval(row.low, row.high),
    ]


def _md_rows(table: Table) -> Iterable[list[str]]:
    for row in table.grid.rows:
        texts = []
        for found in row.entries:
            if found is None:
                texts.append("")
                continue
            score, notes = score_text(found), "; ".join(notes_on(found, table))
            texts.append((f"**{score}**" if found.best else score) + (f" ({notes})" if notes else ""))
        yield [*map(escape_markdown, row.labels), *texts]


def to_latex(report: Report) -> str:
    """Tables for `booktabs`, to be read with \\input."""
    lines = ["% Needs \\usepackage{booktabs}."]
    for part in report.parts:
        lines += [
            "",
            f"% {escape_latex(part.title)}",
            *(f"% {name}: {escape_latex(text)}" for name, text in part.facts),
        ]
        lines += [f"% {escape_latex(remark)}" for remark in part.section.remarks]
        for table in part.tables:
            lines += _tex_table(part, table)
        if part.findings:
            headings = "conclusion & gain & 95\\,\\% interval & n & p & paper & here \\\\"
            lines += ["\\begin{tabular}{lrrrrrl}", "\\toprule", headings, "\\midrule"]
            for f in part.findings:
                texts = [str(f.comparison), interval_text(f), str(f.comparison.count), p_text(f), paper_gain_text(f)]
                numbers = [escape_latex(text).replace("<", "$<$") for text in texts]
                lines.append(" & ".join([escape_latex(f.claim.text), *numbers, f.verdict]) + " \\\\")
            lines += ["\\bottomrule", "\\end{tabular}"]
    for analysis in (*report.models, *report.analyses):
        names = [*analysis.labels, *analysis.columns]
        columns = "l" * len(analysis.labels) + "r" * len(analysis.columns)
        lines += ["", f"% {escape_latex(analysis.title)}", f"% {escape_latex(analysis.caption)}"]
        lines += [f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
        lines += [" & ".join(map(escape_latex, names)) + " \\\\", "\\midrule"]
        lines += [" & ".join(map(escape_latex, texts)) + " \\\\" for texts in analysis.rows]
        lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _tex_table(part: Part, table: Table) -> list[str]:
    grid = table.grid
    columns = "l" * len(grid.labels) + "r" * len(grid.columns)
    lines = ["\\begin{table}", "\\centering", f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    lines += [" & ".join(map(escape_latex, (*grid.labels, *grid.columns))) + " \\\\", "\\midrule"]
    for row in grid.rows:
        texts = []
        for found in row.entries:
            if found is None:
                texts.append("")
                continue
            score, notes = escape_latex(score_text(found)), escape_latex("; ".join(notes_on(found, table)))
            score = f"\\textbf{{{score}}}" if found.best else score
            texts.append(f"{score} {{\\scriptsize ({notes})}}" if notes else score)
        lines.append(" & ".join([*map(escape_latex, row.labels), *texts]) + " \\\\")
    caption = escape_latex(f"{part.title}: {table.caption} {counts_text(table)}. {LEGEND}.")
    return [*lines, "\\bottomrule", "\\end{tabular}", f"\\caption{{{caption}}}", "\\end{table}"]


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}


def escape_latex(text: str) -> str:
    """Text on one line with the special characters of LaTeX escaped."""
    return "".join(_TEX.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in " ".join(text.split()))


_COLUMNS = (
    *("section", "benchmark", "data", "model", "steps", "batch_size", "further_settings", "metric", "period"),
    *("version", "method", "strategy", "annotation", "n", "mean", "std", "seeds", "gap_closed", "paper"),
    *("paper_std", "paper_place"),
)


def to_csv(report: Report) -> str:
    """One row for every cell that was trained, in percent, with the paper's (first) figure."""
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
            settings = [section.setting(name) for name in ("network.backbone", "batches.steps", "batches.size")]
            settings.append(dict(part.facts).get("further settings", ""))
            writer.writerow(
                csv_cells(
                    [
                        *(number, section.benchmark, section.data, *settings, section.metric, key.period),
                        *(section.versions[key.period], key.method, key.strategy, key.annotation, len(scores)),
                        *(f"{scores.mean:.4f}", "" if scores.std is None else f"{scores.std:.4f}"),
                        " ".join(map(str, sorted(scores.by_seed))),
                        "" if found.share is None else f"{found.share:.4f}",
                        *((paper.value, paper.std, paper.place) if paper else ("", "", "")),
                    ]
                )
            )
    return text.getvalue()

"""The paper's conclusions, each held against the stored runs by a paired test over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leco.paper import value_of
from leco.paper.claims import ALL_FINE, BEST, CONCLUSIONS, FINETUNE, FREEZE, RELABEL, SCRATCH, Chapter
from leco.reports.comparison import Comparison, Scores, Verdict, compare
from leco.reports.sections import Key, Section

MARGIN = 1.0  # points within which two cells are called similar
_PSEUDO = ("st-hard", "st-soft", "pl", "fixmatch")


@dataclass(frozen=True)
class Claim:
    """One conclusion: the first cell of each pair is better than the second, or similar to it, on average."""

    text: str
    pairs: tuple[tuple[Chapter, Chapter], ...]
    kind: Literal["better", "similar", "most of the way"] = "better"


@dataclass(frozen=True)
class Finding:
    """A claim and what the runs say about it."""

    claim: Claim
    comparison: Comparison
    verdict: Verdict
    pairs: int  # of cells that were compared
    paper_gain: float | None  # where the paper has all of these pairs


def _method(name: str) -> Chapter:
    return Chapter(name, method=name)


def _families(better: str, worse: str) -> tuple[tuple[Chapter, Chapter], ...]:
    """One pair for each kind of pseudo-labels."""
    return tuple((_method(better.format(p)), _method(worse.format(p))) for p in _PSEUDO)


CLAIMS = (
    *(Claim(text, ((better, worse),)) for text, better, worse in CONCLUSIONS),
    Claim("training from scratch is better than old features frozen (appendix F)", ((SCRATCH, FREEZE),)),
    Claim("label-new and relabel-old are similar with cross-entropy (section 4)", ((FINETUNE, RELABEL),), "similar"),
    Claim("label-new is better than relabel-old once old labels are used (section 8)", ((BEST, RELABEL),)),
    Claim("pseudo-labels on old data help (section 5)", _families("ce+{}", "ce")),
    Claim("pseudo-labels help beside joint training (section 5)", _families("joint+{}", "joint")),
    Claim("joint training helps beside pseudo-labels (section 5)", _families("joint+{}", "ce+{}")),
    Claim("partial labels are better than a head of their own (section 6)", ((_method("lpl"), _method("joint")),)),
    Claim("so they are beside pseudo-labels (section 6)", _families("lpl+{}", "joint+{}")),
    Claim("filtering pseudo-labels by old labels helps, beside lpl (section 6)", _families("lpl+{}/filter", "lpl+{}")),
    Claim("conditioning them on old labels helps, beside lpl (section 6)", _families("lpl+{}/cond", "lpl+{}")),
    Claim("filtering helps pseudo-labels alone (appendix F)", _families("ce+{}/filter", "ce+{}")),
    Claim("conditioning helps pseudo-labels alone (appendix F)", _families("ce+{}/cond", "ce+{}")),
    Claim(
        "lpl+st-hard/cond goes most of the way from ce to all-fine (section 6)",
        ((BEST, FINETUNE), (BEST, ALL_FINE)),
        "most of the way",
    ),
)


def findings(section: Section) -> list[Finding]:
    """What a section says about every claim, in its newest period; claims that nothing was trained for are left out."""
    found = (_finding(claim, section) for claim in CLAIMS)
    return [finding for finding in found if finding is not None]


def _finding(claim: Claim, section: Section) -> Finding | None:
    pairs = [(b, w, section.scores(_key(b, section)), section.scores(_key(w, section))) for b, w in claim.pairs]
    there = [(b, w, one, other) for b, w, one, other in pairs if one is not None and other is not None]
    if not there or (claim.kind == "most of the way" and len(there) < len(claim.pairs)):
        return None
    better = _average([one for _, _, one, _ in there])
    worse = _average([other for _, _, _, other in there])  # of ce and all-fine: the middle between them
    result = compare(better, worse)
    verdict = similar(result) if claim.kind == "similar" else result.verdict
    paper = [_paper(section, chapter) for b, w, _, _ in there for chapter in (b, w)]
    known = [value for value in paper if value is not None]
    gains = [one - other for one, other in zip(known[::2], known[1::2], strict=False)]
    gain = sum(gains) / len(gains) if len(known) == len(paper) else None
    return Finding(claim, result, verdict, len(there), gain)


def _key(chapter: Chapter, section: Section) -> Key:
    return Key(section.last, chapter.method, chapter.strategy, chapter.annotation)


def _average(cells: Sequence[Scores]) -> Scores:
    """The mean of several cells, for every seed that all of them have."""
    seeds = set.intersection(*(set(cell.by_seed) for cell in cells))
    return Scores({seed: sum(cell.by_seed[seed] for cell in cells) / len(cells) for seed in sorted(seeds)})


def _paper(section: Section, chapter: Chapter) -> float | None:
    key = _key(chapter, section)
    cells = value_of(section.benchmark, key.method, key.strategy, key.annotation, key.period)
    return cells[0].value if cells else None


def similar(found: Comparison) -> Verdict:
    """Whether two cells differ by less than `MARGIN` points: two one-sided tests at the 5 % level.

    >>> [similar(Comparison(gain, spread, count=5, p=None)) for gain, spread in ((0.1, 0.2), (3.0, 0.2), (0.1, 4.0))]
    ['confirmed', 'contradicted', 'undecided']
    """
    from scipy.stats import t

    if found.spread is None or found.count < 2:
        return "undecided"
    half = float(t.ppf(0.95, found.count - 1)) * found.spread / math.sqrt(found.count)
    if abs(found.gain) + half < MARGIN:
        return "confirmed"
    return "contradicted" if abs(found.gain) - half > MARGIN else "undecided"

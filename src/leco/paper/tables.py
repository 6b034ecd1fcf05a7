"""The paper's tables of results, by name; Tables 1 and 7, which hold sizes of datasets, are left out."""

from dataclasses import dataclass
from typing import Literal

from leco.errors import LecoError, nearest

Layout = Literal["baseline", "losses", "hierarchy", "baseline-4tp", "losses-4tp", "combinations", "text"]


@dataclass(frozen=True)
class Table:
    """A table of the paper: its number, label and section there, how it is laid out, and remarks for its readers."""

    name: str
    number: int | None  # None for figures in the text
    label: str
    where: str
    layout: Layout
    caption: str
    remarks: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The table as the paper refers to it."""
        return f"Table {self.number}" if self.number else self.where


_RANDOM = (
    "On mapillary-leco-2.5k, TrainScratch here is the row that Table 8 calls TrainRandom (`random`): no ImageNet "
    "weights. In Table 8, TrainScratch has them, and other figures."
)
_RANDOM_OR_NOT = _RANDOM + " On mapillary-leco-9k TrainScratch has ImageNet weights in both tables."
_BEST = (
    "The column joint+SSL is a copy of {source}: joint+st-soft, or joint+st-hard on Mapillary. It is said to be the "
    "best there; on cifar-leco-10k ce+st-soft is better (69.86)."
)
_BEST_OF_ALL = "lpl+st-hard/cond is called the best on inat-leco (84.34); Table 12 has joint+st-hard/cond at 84.37."
_RENAMED = "The paper writes FinetuneNew here for what it calls FinetunePrev elsewhere: `finetune`."

_TABLES = [
    Table(
        *("baseline", 2, "tab:baseline", "section 4", "baseline"),
        "Which data to label and what to start from, with cross-entropy alone.",
        (_RANDOM,),
    ),
    Table(
        *("ssl-joint", 3, "tab:ssl_joint", "section 5", "losses"),
        "What old data add through pseudo-labels, a second head for old labels, or both.",
    ),
    Table(
        *("hierarchy", 4, "tab:ssl_hie", "section 6", "hierarchy"),
        "What knowing the hierarchy adds: partial labels, and pseudo-labels refined by the old label.",
        (_BEST.format(source="Table 3"), _BEST_OF_ALL),
    ),
    Table(
        *("baseline-4tp", 5, "tab:baseline_4_tps", "section 7", "baseline-4tp"),
        "Which data to label and what to start from, over several periods.",
        (_RENAMED,),
    ),
    Table(
        *("losses-4tp", 6, "tab:full_4_tps", "section 7", "losses-4tp"),
        "What the losses on old data add over several periods, with finetune and label-new.",
        (_RENAMED,),
    ),
    Table(
        *("baseline-mapillary", 8, "tab:vista_baseline", "appendix C", "baseline"),
        "Segmentation: which data to label and what to start from.",
        ("`random` (TrainRandom) starts from nothing; `scratch` (TrainScratch) has a backbone trained on ImageNet.",),
    ),
    Table(
        *("baseline-complete", 9, "tab:baseline_complete", "appendix F", "baseline"),
        "As Table 2, for every size.",
        (_RANDOM_OR_NOT,),
    ),
    Table(*("ssl-joint-complete", 10, "tab:ssl_joint_complete", "appendix F", "losses"), "As Table 3, for every size."),
    Table(
        *("hierarchy-complete", 11, "tab:ssl_hie_complete", "appendix F", "hierarchy"),
        "As Table 4, for every size.",
        (_BEST.format(source="Table 10"),),
    ),
    Table(
        *("combinations", 12, "tab:all", "appendix F", "combinations"),
        "All 39 methods, with finetune.",
    ),
    Table(
        *("combinations-mapillary", 13, "tab:all_seg", "appendix F", "combinations"),
        "Segmentation: the 12 methods without pseudo-labels or with st-hard, with finetune.",
    ),
    Table(
        *("text", None, "", "text and captions", "text"),
        "Results quoted in the text and in captions.",
        ("The abstract quotes no figures.",),
    ),
]

TABLES = {table.name: table for table in _TABLES}


def table(name: str) -> Table:
    """Find a table by its number in the paper, or its name here.

    >>> table("table-9").name, table("9").name
    ('baseline-complete', 'baseline-complete')
    """
    wanted = name.lower().removeprefix("table-")
    for found in _TABLES:
        if wanted in (found.name, str(found.number)):
            return found
    numbered = ", ".join(f"table-{found.number}" for found in _TABLES if found.number)
    known = f"; valid: {numbered}" if wanted.isdecimal() else nearest(wanted, TABLES)
    raise LecoError(f"{name!r} is not a table of results in the paper{known}")

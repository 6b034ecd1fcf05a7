"""Whether one model is better than another, class by class, or only seems to be."""

from dataclasses import dataclass
from typing import Literal

from leco.deployment.scoring import Judged
from leco.evaluation import Scores
from leco.ontology.version import Version

LEVEL = 0.05
_ROUNDING = 1e-12
LEGEND = (
    "gain, regression: of the mean, an interval without 0 (paired bootstrap); of a class, p below "
    f"{LEVEL:g} in McNemar's exact test on samples (in segmentation, a sign test on images), "
    "corrected for the number of classes; all else may be chance"
)
Verdict = Literal["gain", "regression", "no difference shown"]


@dataclass(frozen=True)
class Difference:
    """One class: what two models score, and how many samples only one of them had right.

    In segmentation, on how many images one had more of the class's pixels right; that says nothing of pixels called so
    wrongly, so the IoU must have changed to the same side. `p` is of McNemar's exact test (a sign
    test), corrected for the number of classes (Benjamini and Hochberg); without that, one in twenty classes that did
    not change would seem to have.
    """

    name: str
    support: int
    before: float
    after: float
    lost: int  # samples that only the other model had right
    won: int  # samples that only this one had right
    p: float

    @property
    def gain(self) -> float:
        """In points of the score, as a fraction."""
        return self.after - self.before

    @property
    def verdict(self) -> Verdict:
        """What can be said."""
        if not self.is_shown:
            return "no difference shown"
        return "gain" if self.won > self.lost else "regression"

    @property
    def is_shown(self) -> bool:
        """Whether it is more than chance would give."""
        return self.p < LEVEL and (self.won - self.lost) * self.gain > 0


@dataclass(frozen=True)
class Overall:
    """The mean over all classes: what two models score, and the 95 % interval of the difference."""

    support: int
    before: float
    after: float
    low: float
    high: float
    lost: int  # samples that only the other model had right
    won: int

    @property
    def gain(self) -> float:
        """In points of the score, as a fraction."""
        return self.after - self.before

    @property
    def verdict(self) -> Verdict:
        """What can be said."""
        if self.low > _ROUNDING:
            return "gain"
        return "regression" if self.high < -_ROUNDING else "no difference shown"


def compare(
    judged: Judged, version: Version, mine: Scores, other: Scores, metric: str
) -> tuple[Overall, list[Difference]]:
    """The difference of the mean over classes, and that of every class that occurs, the largest first."""
    from scipy import stats

    counts = judged.better[version.name].tolist()
    chances = [float(stats.binomtest(won, won + lost).pvalue) if won + lost else 1.0 for won, lost in counts[:-1]]
    place = {handle: index for index, handle in enumerate(version.handles)}
    theirs = {name: number for number, name in enumerate(other.classes)}
    absent = set(mine.absent)
    present = [number for number, name in enumerate(mine.classes) if name in theirs and name not in absent]
    tested = [chances[place[mine.classes[number]]] for number in present]
    corrected = stats.false_discovery_control(tested).tolist() if tested else []
    column = "iou" if metric == "miou" else "accuracy"
    found = []
    for number, p in zip(present, corrected, strict=True):
        name = mine.classes[number]
        before, after = float(getattr(other, column)[theirs[name]]), float(getattr(mine, column)[number])
        won, lost = counts[place[name]]
        found.append(Difference(name, int(mine.support[number]), before, after, lost, won, p))
    before, after = (float(getattr(part, metric)) for part in (other, mine))
    low, high = judged.pairs[version.name].interval([[place[name] for name in part.classes] for part in (mine, other)])
    won, lost = counts[-1]
    whole = Overall(int(mine.support.sum()), before, after, low, high, lost, won)
    return whole, sorted(found, key=lambda difference: -abs(difference.gain))

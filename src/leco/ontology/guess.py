"""Guess an ontology: samples labelled twice, and names beyond doubt, decide; the rest is left to a person."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from leco.errors import closest
from leco.ontology.files import flow, to_yaml, word
from leco.ontology.inference import MIN_SHARE, CoLabels, Parent, parents
from leco.ontology.names import letters, origins_by_name, words

_MOST_SUGGESTIONS = 500  # classes with suggestions: each is compared to all old ones
_SHORTEST = 3  # letters that related names have in common

Pairs = Mapping[tuple[str, str], Iterable[tuple[str, str]]]  # by (old, new) version: both labels of each sample


@dataclass(frozen=True)
class GuessedStep:
    """How the classes of one version were guessed, and what is left to a person."""

    old: str
    new: str
    kept: tuple[str, ...]
    inferred: dict[str, str]  # new class -> the evidence
    guessed: dict[str, dict[str, str]]  # new class -> {"from": old class} or {"renamed": …}, by its name
    doubtful: dict[str, str]  # kept class that samples labelled twice contradict -> the evidence
    open: dict[str, list[str]]  # class without an origin -> old classes it may come from
    orphans: tuple[str, ...]  # old classes that nothing comes from


@dataclass(frozen=True)
class Guess:
    """An ontology as plain data, and how it was guessed."""

    content: dict[str, Any]
    steps: tuple[GuessedStep, ...]

    def to_yaml(self) -> str:
        """Return the file, with comments on what to fill in."""
        comments = {step.new: self._comments(step) for step in self.steps}
        notes = {step.new: _orphan_notes(step) for step in self.steps}
        return to_yaml(self.content, comments, notes)

    def _comments(self, step: GuessedStep) -> list[str]:
        classes = next(v["classes"] for v in self.content["versions"] if v["name"] == step.new)
        return [_comment(step, name) for name in classes]


def guess(name: str, versions: Mapping[str, Sequence[str]], pairs: Pairs, *, strict: bool = False) -> Guess:
    """Guess the origins of the classes of each version, oldest first, in the previous one.

    A class whose name is in both is kept. If enough samples were labelled in both, a new class comes from its majority
    parent or, failing that, from all its parents in the measured shares. Otherwise it comes from the old class that
    its name leaves no doubt about (`origins_by_name`). Both are marked with `guessed: true`. Names that are merely
    similar are suggested. If `strict`, names decide nothing, and nothing is marked.
    """
    order = list(versions)
    content: list[dict[str, Any]] = [{"name": order[0], "classes": list(versions[order[0]])}]
    steps = []
    for old, new in pairwise(order):
        both = list(pairs.get((old, new), ()))
        step, origins = _step(old, new, versions, CoLabels.count(both) if both else None, names=not strict)
        mark = {} if strict else {"guessed": True}
        classes = {c: origins[c] | mark if c in origins else None for c in versions[new]}
        content.append({"name": new, "classes": classes})
        steps.append(step)
    return Guess({"name": name, "versions": content}, tuple(steps))


def _step(
    old: str, new: str, versions: Mapping[str, Sequence[str]], colabels: CoLabels | None, *, names: bool
) -> tuple[GuessedStep, dict[str, dict[str, Any]]]:
    """Return how the classes were guessed, and the origins of those that are in neither `kept` nor `open`."""
    before = set(versions[old])
    seen = {found.new: found for found in parents(colabels)} if colabels else {}
    step = GuessedStep(old, new, tuple(c for c in versions[new] if c in before), {}, {}, {}, {}, ())
    origins: dict[str, dict[str, Any]] = {}
    used = set(step.kept)
    for name in step.kept:
        found = seen.get(name)
        if found is not None and found.status == "decided" and found.parent != name:
            step.doubtful[name] = f"{found.agreeing:,} of {found.count:,} samples labelled in both were {found.parent}"
    rest = [name for name in versions[new] if name not in before]
    for name in rest:
        found = seen.get(name)
        if found is not None and colabels is not None and found.status in ("decided", "mixed"):
            origin = found.parent if found.status == "decided" else _shares(colabels, name)
            origins[name] = {"from": origin}
            used.update([origin] if isinstance(origin, str) else origin)
            step.inferred[name] = _how(found, origin)
    rest = [name for name in rest if name not in origins]
    if names:
        for name, by_name in origins_by_name(versions[old], rest, step.kept, used).items():
            found, (parent,) = seen.get(name), by_name.values()
            if found is None or found.parent in (None, parent):  # samples too few to decide must not disagree
                step.guessed[name] = origins[name] = by_name
                used.add(parent)
    for name in rest:
        if name not in origins:
            found = seen.get(name)
            seen_as = [found.parent] if found is not None and found.parent else []
            similar = related(name, versions[old]) if len(step.open) < _MOST_SUGGESTIONS else []
            step.open[name] = list(dict.fromkeys(seen_as + similar))
    return replace(step, orphans=tuple(c for c in versions[old] if c not in used)), origins


def _shares(colabels: CoLabels, name: str) -> dict[str, float]:
    """Return the origins of a merged class in rounded shares that sum to one, without noise."""
    row = colabels.shares.tocsr()[[colabels.new.index(name)]]
    kept = {colabels.old[i]: s for i, s in zip(row.indices.tolist(), row.data.tolist(), strict=True) if s >= MIN_SHARE}
    total = sum(kept.values())
    return {parent: round(share / total, 3) for parent, share in sorted(kept.items(), key=lambda item: -item[1])}


def _how(found: Parent, origin: object) -> str:
    if isinstance(origin, str):
        return f"{found.agreeing:,} of {found.count:,} samples labelled in both were {origin}"
    return f"shares of {found.count:,} samples labelled in both"


def _comment(step: GuessedStep, name: str) -> str:
    if name in step.inferred:
        return f"inferred: {step.inferred[name]}"
    if name in step.doubtful:
        return f"kept by name, but {step.doubtful[name]}"
    if name not in step.open:
        return ""
    return f"not in {word(step.old)}: {suggestion(name, step.open[name])}"


def suggestion(name: str, relatives: Sequence[str]) -> str:
    """Suggest what a person may write for a class without an origin.

    >>> suggestion("dog-poodle", ["dog"])
    'brand-new, or {from: dog}?'
    """
    suggested = [flow({"renamed" if letters(r) == letters(name) else "from": r}) for r in relatives]
    return f"brand-new, or {', '.join(suggested)}?" if suggested else "brand-new, or {from: …}?"


def _orphan_notes(step: GuessedStep) -> list[str]:
    if not step.orphans:
        return []
    return [
        f"Nothing comes from these classes of {word(step.old)}, so their labels are refused. Add them to a class",
        f"above, such as {flow({'from': step.orphans[0]})}, or ignore them:",
        f"ignore: {flow(list(step.orphans))}",
    ]


def related(name: str, candidates: Sequence[str], most: int = 3) -> list[str]:
    """Return names that are similar to a name or contain it, the closest first.

    >>> related("dog-poodle", ["cat", "dog", "hot dog"])
    ['dog', 'hot dog']
    >>> related("side_walk", ["road", "Sidewalk"])
    ['Sidewalk']
    """
    mine, own_words = letters(name), set(words(name))
    found = []
    for candidate in candidates:
        its = letters(candidate)
        shared = [w for w in own_words.intersection(words(candidate)) if len(w) >= _SHORTEST]
        inside = min(len(its), len(mine)) >= _SHORTEST and (its in mine or mine in its)
        if shared or inside:
            found.append((its != mine, not inside, abs(len(its) - len(mine)), candidate))
    if found:
        return [candidate for *_, candidate in sorted(found)[:most]]
    close = closest(name, list(candidates), 0.8)
    return [close] if close else []

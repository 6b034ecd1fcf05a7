"""Origins of classes that follow from their names alone. Cautious, since wrong ones are easily overlooked."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

_SHORTEST_CONTAINED = 3  # letters of an old name within a new one
_SHORTEST_MISSPELT = 8  # letters of a word; many shorter ones are one letter from another (rider, river)
_NEGATIONS = frozenset({"anti", "except", "excluding", "no", "non", "not", "without"})
_HUMP = re.compile(r"(?<=[a-z0-9]{2})(?=[A-Z])|(?<=[A-Z]{2})(?=[A-Z][a-z])")  # DogHusky, SUVPickup
_INITIAL = re.compile(r"\b([A-Za-z])-(?=[A-Za-z]{2})")  # a t-shirt is one word
_SIBILANTS = ("s", "x", "z", "ch", "sh", "o")  # their plurals end in -es

Words = tuple[str, ...]


def origins_by_name(
    old: Sequence[str], new: Sequence[str], kept: Collection[str], parents: Collection[str] = ()
) -> dict[str, dict[str, str]]:
    """Return the origins of new classes that their names leave no doubt about, as {"from": …} or {"renamed": …}.

    A class is renamed if its name differs from an old one in case, separators or plural only, or in one letter of a
    long word. It comes from an old class if its name begins or ends with the words of that name. In both cases no
    other old class may fit as well. The `kept` classes are the origin of no others, since a part of them may be
    anything; neither are renamed ones. The `parents` are old classes that other classes are known to come from.

    >>> origins_by_name(["dog", "hot dog", "Sidewalk"], ["dog-husky", "hot dog bun", "dogma", "side_walk"], kept=[])
    {'dog-husky': {'from': 'dog'}, 'hot dog bun': {'from': 'hot dog'}, 'side_walk': {'renamed': 'Sidewalk'}}
    """
    stems = {name: _stems(name) for name in (*old, *new)}
    renamed = _one_to_one(old, new, lambda name: ["".join(stems[name])])
    rest = [name for name in new if name not in renamed]
    renamed |= _one_to_one(old, rest, lambda name: _misspellings(stems[name]))
    renamed = {name: parent for name, parent in renamed.items() if parent not in kept}
    replaced = set(old).difference(kept, renamed.values())
    find = _Containment({name: stems[name] for name in old})
    found: dict[str, dict[str, str]] = {}
    for name in new:
        if name in renamed:
            found[name] = {"from" if renamed[name] in parents else "renamed": renamed[name]}
        elif (parent := find(stems[name])) in replaced:
            found[name] = {"from": parent}
    return found


def words(name: str) -> list[str]:
    """Return the words of a name in lower case.

    >>> words("object--TrafficLight_pole"), words("T-shirt")
    (['object', 'traffic', 'light', 'pole'], ['tshirt'])
    """
    return re.findall(r"[^\W_]+", _INITIAL.sub(r"\1", _HUMP.sub(" ", name)).casefold())


def letters(name: str) -> str:
    """Return the letters and digits of a name in lower case."""
    return "".join(words(name))


def _stems(name: str) -> Words:
    return tuple(_stem(word) for word in words(name))


def _stem(word: str) -> str:
    """Return what a word and its plural have in common.

    >>> [_stem(word) for word in ("tree", "trees", "bus", "buses", "horse", "horses", "grass")]
    ['tree', 'tree', 'bus', 'bus', 'hors', 'hors', 'grass']
    """
    if len(word) > 3:
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
        if word.endswith("e") and word[:-1].endswith(_SIBILANTS):
            word = word[:-1]
    return word


def _one_to_one(old: Iterable[str], new: Iterable[str], keys: Callable[[str], Iterable[str | Words]]) -> dict[str, str]:
    """Return the pairs of a new and an old class that have a key in common, and with no other class."""
    by_key: dict[str | Words, list[str]] = defaultdict(list)
    for name in old:
        for key in keys(name):
            by_key[key].append(name)
    matches = {name: {match for key in keys(name) if key for match in by_key.get(key, ())} for name in new}
    counts = Counter(match for found in matches.values() for match in found)
    return {name: min(found) for name, found in matches.items() if len(found) == 1 and counts[min(found)] == 1}


def _misspellings(stems: Words) -> set[Words]:
    """Return the name with a wildcard for one letter of a long word, or between two of its letters.

    Names that have one of these in common differ in one letter at most, but not in the first one of a word.
    """
    found: set[Words] = set()
    for place, word in enumerate(stems):
        if len(word) >= _SHORTEST_MISSPELT and word.isalpha():
            patterns = {f"{word[:i]}?{word[j:]}" for i in range(1, len(word) + 1) for j in (i, i + 1)}
            found.update((*stems[:place], pattern, *stems[place + 1 :]) for pattern in patterns)
    return found


class _Containment:
    """Find the one old class whose words a new name begins or ends with."""

    def __init__(self, old: Mapping[str, Words]) -> None:
        self._old = old
        self._by_words: dict[Words, list[str]] = defaultdict(list)
        self._by_word: dict[str, list[str]] = defaultdict(list)
        for name, stems in old.items():
            self._by_words[stems].append(name)
            for word in set(stems):
                self._by_word[word].append(name)
        self._longest = max(map(len, self._by_words), default=0)

    def __call__(self, stems: Words) -> str | None:
        lengths = range(1, min(len(stems) - 1, self._longest) + 1)
        runs = {stems[i : i + length] for length in lengths for i in range(len(stems) - length + 1)}
        inside = sorted((run for run in runs if run in self._by_words), key=len)
        if not inside:
            return None
        best = inside[-1]
        rest = next((r for r in (stems[len(best) :], stems[: -len(best)]) if stems in (best + r, r + best)), None)
        if rest is None or _NEGATIONS.intersection(rest) or sum(map(len, best)) < _SHORTEST_CONTAINED:
            return None
        names = self._by_words[best]
        if len(names) > 1 or not all(_is_run(run, best) for run in inside) or self._has_more_in_common(stems, best):
            return None
        return names[0]

    def _has_more_in_common(self, stems: Words, best: Words) -> bool:
        """Return whether another old class has more words in common with a name than the one that it contains."""
        own, most = set(stems), len(set(best))
        # Whoever shares more than `most` words has one of any len(own) - most; the rarest are the quickest to look up.
        rarest = sorted(own, key=lambda word: len(self._by_word.get(word, ())))[: len(own) - most]
        others = {name for word in rarest for name in self._by_word.get(word, ())}
        return any(len(own.intersection(self._old[name])) > most for name in others)


def _is_run(part: Words, whole: Words) -> bool:
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))

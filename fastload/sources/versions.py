"""Words in which the names of one thing's files differ: `0_sat` and `0_mask`, `0_GT_1` and `0_NOISY_1`."""

from __future__ import annotations

import bisect
import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from fastload.sources.protocol import evenly_spaced
from fastload.sources.words import VIEWS, is_result, words_of

_LAST_WORD = re.compile("[_ .-][^_ .-]+$")
_FIRST_WORD = re.compile("^[^_ .-]+[_ .-]")
_WORD = re.compile("[^_ .-]+")
_SAMPLED = 64
_MOST_VERSIONS = 8


def common_ending(stems: Collection[str]) -> str:
    """Return the last word of all stems, with the mark before it; "" if they differ, or there is only one.

    >>> common_ending(["0_sat", "1_sat"]), common_ending(["0_sat", "1"])
    ('_sat', '')
    """
    match = _LAST_WORD.search(next(iter(stems), ""))
    ending = match[0] if match and len(stems) > 1 else ""
    return ending if all(stem.endswith(ending) for stem in stems) else ""


def common_start(stems: Collection[str]) -> str:
    """Return the first word of all stems, with the mark behind it, likewise."""
    match = _FIRST_WORD.search(next(iter(stems), ""))
    start = match[0] if match and len(stems) > 1 else ""
    return start if all(stem.startswith(start) for stem in stems) else ""


def told_apart(stems: Sequence[str]) -> list[str]:
    """Return the stems without the words that all of them begin or end with.

    >>> told_apart(["S1_GT_010", "S1_NOISY_010"]), told_apart(["7", "7_depth"])
    (['GT', 'NOISY'], ['', '_depth'])
    """
    return _reversed(_without_start(_reversed(_without_start(stems))))


def _reversed(stems: Sequence[str]) -> list[str]:
    return [stem[::-1] for stem in stems]


def _without_start(stems: Sequence[str]) -> list[str]:
    start = os.path.commonprefix(stems)  # noqa: RUF071  # not of paths
    if any(stem[len(start) :][:1].isalnum() for stem in stems):  # it ends within a word
        start = re.sub("[^_ .-]*$", "", start)
    return [stem[len(start) :] for stem in stems]


def has_stem(names: Sequence[str], stem: str) -> bool:
    """Return True if one of some sorted names is the stem and a suffix."""
    begun = itertools.takewhile(lambda name: name.startswith(f"{stem}."), _from(names, f"{stem}."))
    return any(os.path.splitext(name)[0] == stem for name in begun)


def _from(names: Sequence[str], start: str) -> Iterator[str]:
    at = bisect.bisect_left(names, start)
    return itertools.islice(names, at, at + _MOST_VERSIONS)


def versions_of(names: Sequence[str]) -> list[str]:
    """Return the words in which files that belong together differ, each with a mark; "" for none among them.

    The last words of names are tried, then the first ones, then known words in between. `names` are sorted;
    nothing is returned if most files have no partner.

    >>> versions_of(["0.png", "0_depth.png", "1.png", "1_depth.png"]), versions_of(["0.png", "1.png"])
    (['', '_depth'], [])
    >>> versions_of(["0_GT_1.png", "0_NOISY_1.png", "1_GT_1.png", "1_NOISY_1.png"])
    ['_GT', '_NOISY']
    """
    stems = [os.path.splitext(names[at])[0] for at in evenly_spaced(len(names), _SAMPLED)]
    spans = {stem: [match.span() for match in _WORD.finditer(stem)] for stem in stems}
    most = max(map(len, spans.values()), default=0)
    for at in (-1, 0, *range(-2, -most, -1)):
        parts = {stem: _around(stem, spans[stem], at) for stem in stems}
        counts = Counter(word for _, word, _ in parts.values() if re.search("[A-Za-z]", word))
        words = ["", *(word for word, n in counts.items() if n > 1 and _MOST_VERSIONS * n >= len(stems))]
        if at < -1:
            words = ["", *(word for word in words if is_result(word) or not VIEWS.isdisjoint(words_of(word)))]
        found: set[str] = set()
        partnered = 0
        for stem in stems if len(words) > 1 else ():
            before, own, after = parts[stem]
            if own not in words:
                before, own, after = ("", "", stem) if at == 0 else (before + own, "", after)
            others = [word for word in words if word != own and has_stem(names, before + word + after)]
            found.update([own, *others] if others else ())
            partnered += bool(others)
        if found and 2 * partnered >= len(stems):
            return sorted(found)
    return []


def _around(stem: str, spans: Sequence[tuple[int, int]], at: int) -> tuple[str, str, str]:
    """Return what is before a word, the word with the mark before it (or behind the first), and the rest."""
    if -at > len(spans) or not spans:
        return stem, "", ""
    start, stop = spans[at]
    if at == 0:
        start, stop = 0, stop + 1 if len(spans) > 1 else 0
    else:
        start = start - 1 if -at < len(spans) else stop
    return stem[:start], stem[start:stop], stem[stop:]

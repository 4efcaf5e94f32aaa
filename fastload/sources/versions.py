"""First and last words of names, in which the files of one thing differ: `0_sat.jpg`, `0_mask.png`."""

from __future__ import annotations

import bisect
import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from fastload.sources.protocol import evenly_spaced

_LAST_WORD = re.compile("[_ .-][^_ .-]+$")
_FIRST_WORD = re.compile("^[^_ .-]+[_ .-]")
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


def has_stem(names: Sequence[str], stem: str) -> bool:
    """Return True if one of some sorted names is the stem and a suffix."""
    begun = itertools.takewhile(lambda name: name.startswith(f"{stem}."), _from(names, f"{stem}."))
    return any(os.path.splitext(name)[0] == stem for name in begun)


def _from(names: Sequence[str], start: str) -> Iterator[str]:
    at = bisect.bisect_left(names, start)
    return itertools.islice(names, at, at + _MOST_VERSIONS)


def versions_of(names: Sequence[str]) -> list[str]:
    """Return the first or last words in which files that belong together differ, "" for none among them.

    `names` are sorted; nothing is returned if most files have no partner.

    >>> versions_of(["0.png", "0_depth.png", "1.png", "1_depth.png"]), versions_of(["0.png", "1.png"])
    (['', '_depth'], [])
    """
    stems = [os.path.splitext(names[at])[0] for at in evenly_spaced(len(names), _SAMPLED)]
    for pattern, join in ((_LAST_WORD, "{0}{1}"), (_FIRST_WORD, "{1}{0}")):
        word_of = {stem: match[0] for stem in stems if (match := pattern.search(stem))}
        counts = Counter(word for word in word_of.values() if re.search("[A-Za-z]", word))
        words = ["", *(word for word, n in counts.items() if n > 1 and _MOST_VERSIONS * n >= len(stems))]
        found: set[str] = set()
        partnered = 0
        for stem in stems if len(words) > 1 else ():
            own = word if (word := word_of.get(stem, "")) in words else ""
            base = pattern.sub("", stem) if own else stem
            others = [word for word in words if word != own and has_stem(names, join.format(base, word))]
            found.update([own, *others] if others else ())
            partnered += bool(others)
        if found and 2 * partnered >= len(stems):
            return sorted(found)
    return []

"""Names of folders that are parts, views or splits of one dataset rather than classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

from fastload.sources.splits import SPLIT_WORD, SPLITS
from fastload.sources.words import ANNOTATION_PARTS, IMAGE_PARTS, NUMBERED_PARTS, RESULTS, VIEWS, words_of

_NUMBER = re.compile(r"[_ -]?[0-9]+$")
_TIME = re.compile("^(?:time|date|phase|t|im|img)[_-]?[0-9]$", re.IGNORECASE)
_SEQUENCE = re.compile("(seq(uence)?|video|vid|clip|movie|shot|scene|episode)s?[_ -]?[0-9]+", re.IGNORECASE)
_RETRIEVAL = re.compile("(?<![a-z])(query|gallery|probe)(?![a-z])")  # beside a split, or one of these


def named_parts(names: Sequence[str]) -> list[str]:
    """Return the names that are those of parts of a dataset, images before annotations.

    >>> named_parts(["label_2", "image_2"]), named_parts(["food_labels", "bag_labels"])
    (['image_2', 'label_2'], [])
    """
    found = {name: part for name in names if (part := _part_of(name))}
    are_alike = len({word for _, word in found.values()}) == 1
    prefixes = {prefix for prefix, _ in found.values()}
    if are_alike and 1 < len(found) == len(names) == len(prefixes - {""}):
        return []  # classes that end in one word
    return sorted(found, key=lambda name: found[name][1] not in IMAGE_PARTS)


def is_part(name: str) -> bool:
    """Return True if a folder's name is that of a part of a dataset, such as `masks` or `gt_image_2`."""
    return _part_of(name) is not None


def is_image_part(name: str) -> bool:
    """Return True if a folder's name is that of the images of a dataset."""
    part = _part_of(name)
    return part is not None and part[1] in IMAGE_PARTS


def _part_of(name: str) -> tuple[str, str] | None:
    """Return the words before the one that names a part, and that one; None if there is none."""
    base = _NUMBER.sub("", name).lower()
    prefix, _, last = base.rpartition("_") if "_" in base else base.rpartition("-")
    whole = re.sub("[_ -]", "", base)
    for before, word in ((prefix, last), ("", whole)):
        is_known = (
            word in IMAGE_PARTS
            or word in ANNOTATION_PARTS
            or (word in NUMBERED_PARTS and base != name.lower())
        )
        if is_known and " " not in before:
            return before, word
    if re.fullmatch("[a-z]{3,}annot", whole):  # trainannot
        return whole[: -len("annot")], "annot"
    return None


def are_views(names: Sequence[str]) -> bool:
    """Return True if folders are named after views of one scene, or after images and results.

    >>> are_views(["hazy", "clear"]), are_views(["mask", "no_mask"]), are_views(["blur", "blur_2", "sharp"])
    (True, False, True)
    """
    words = [{*words_of(name)} for name in names]
    has_result = any(found & (RESULTS | ANNOTATION_PARTS) for found in words)
    letters = {"a", "b"} if has_result else {"x", "y"} if {*map(str.lower, names)} == {"x", "y"} else set()
    known = VIEWS | RESULTS | ANNOTATION_PARTS | IMAGE_PARTS | letters
    told = [found & known for found in words]
    if has_result:  # of two times, beside the change between them
        told = [own or {*_TIME.findall(name)} for own, name in zip(told, names, strict=True)]
    # Of two with one view, the name of one is the view alone: left_arm and left_leg are classes.
    are_versions = all(
        told[a] != told[b] or told[a] in (words[a], words[b]) for a, b in combinations(range(len(names)), 2)
    )
    return all(told) and len({*map(frozenset, told)}) > 1 and are_versions


def named_splits(names: Sequence[str]) -> list[str]:
    """Return the names that are those of splits under other words: of which the split's word alone differs.

    >>> named_splits(["WIDER_train", "WIDER_val", "readme"]), named_splits(["crash test", "fire test"])
    (['WIDER_train', 'WIDER_val'], [])
    """
    found = {name: match for name in names if (match := SPLIT_WORD.search(name) or _RETRIEVAL.search(name))}
    split_of = {name: SPLITS.get(match[0].rstrip("AB").lower(), match[0]) for name, match in found.items()}
    if len(found) == len(names) > 1 and len({*split_of.values()}) > 1:
        return list(found)
    rest = {name: name[: match.start()] + name[match.end() :] for name, match in found.items()}
    pairs = [
        (first, second)
        for first, second in combinations(found, 2)
        if rest[first] == rest[second] and split_of[first] != split_of[second]
    ]
    return sorted({name for pair in pairs for name in pair})


def are_sequences(names: Sequence[str]) -> bool:
    """Return True if all of several folders are named as videos or scenes are: `seq_01`, `clip12`."""
    return len(names) > 1 and all(map(_SEQUENCE.fullmatch, names))


def is_split_alone(name: str) -> bool:
    """Return True if a folder's name begins or ends with the word of a split, as `val2017`."""
    match = SPLIT_WORD.search(name)
    return match is not None and (
        match.start() == 0 or name[match.end() :].isdigit() or match.end() == len(name)
    )

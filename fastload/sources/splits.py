"""Names of splits: the folders, files and words that stand for train, val and test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from fastload.sources.listing import Folder, Listing
from fastload.sources.malformed import in_quotes, malformed

T = TypeVar("T")

SPLITS = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
"""The split that each lower-case name stands for, in the order in which splits are packed."""

# A "test-dev", as COCO has one, is a test.
_WORD = re.compile(r"(?<![a-z])(train(ing)?|val(id(ation)?)?|(?<!test[_-])dev|test(ing)?)(?![a-z])")
_CAPITAL_INSIDE = re.compile("(?<=[a-z])(?=[A-Z])")


def split_words(name: str, *, any_case: bool = True) -> list[re.Match[str]]:
    """Return the words in a name that stand for a split, as in train2017.

    With `any_case`, they may be in capitals, and a capital after a small letter begins a word; the matches
    are then of the name in lower case. In the names of classes, `Test` is no such word.
    """
    return [*_WORD.finditer(_CAPITAL_INSIDE.sub("_", name).lower() if any_case else name)]


def splits_in(name: str) -> set[str]:
    """Return the splits that a name has words of.

    >>> splits_in("trainLabels"), splits_in("images/Val2017/"), splits_in("contest_labels")
    ({'train'}, {'val'}, set())
    >>> splits_in("image_info_test-dev2017"), sorted(splits_in("train_dev"))
    ({'test'}, ['train', 'val'])
    """
    return {SPLITS[word[0]] for word in split_words(name)}


def sorted_splits(splits: Mapping[str, T]) -> dict[str, T]:
    """Return splits in the order in which they are packed: train, val, test, then all others."""
    return {split: splits[split] for split in dict.fromkeys((*SPLITS.values(), *splits)) if split in splits}


def split_names(names: Iterable[str]) -> list[str]:
    """Return the names that stand for a split."""
    return [name for name in names if name.lower() in SPLITS]


def by_split(where: str, named: Mapping[str, T]) -> dict[str, T]:
    """Return values by split instead of by name, in the order of packing; other names stay as they are.

    SourceError is raised if two names, such as `val` and `valid`, stand for one split.
    """
    found: dict[str, tuple[str, T]] = {}
    for name, value in named.items():
        other, _ = found.setdefault(SPLITS.get(name.lower(), name), (name, value))
        if other != name:
            got = f"{other!r} and {name!r}"
            raise malformed(where, "have one name for each split", got, "rename or remove the wrong one")
    return sorted_splits({split: value for split, (_, value) in found.items()})


def require_plain_splits(listing: Listing, folder: Folder) -> None:
    """Raise SourceError if all images below a folder lie in splits under other names, such as train2017."""
    if folder.images:
        return
    names = [name for name in folder.visible if listing.images_below(folder.join(name))]
    if len(names) > 1 and all(map(split_words, names)):
        must, step = (
            "have splits named train, val and test",
            "rename them, and the folders of their annotations",
        )
        raise malformed(listing.shown(folder.path), must, in_quotes(names), step)

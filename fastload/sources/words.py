"""Names of folders and files: what their words say, and which files belong together."""

from __future__ import annotations

import bisect
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import combinations

from fastload.sources.malformed import malformed
from fastload.sources.protocol import evenly_spaced
from fastload.sources.splits import SPLITS, split_words

FilesByStem = dict[str, list[str]]
"""Files by their stems: their paths below a folder without the suffix."""

MASK_SUFFIXES = (".gif",)
"""The suffixes of masks, besides those of images."""

_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z_ .-]+")
_MARKED = re.compile("[^_ .-]+")  # between marks
_FIRST_WORD = re.compile("[^_ .-]+[_ .-]")
_LAST_WORD = re.compile("[_ .-][^_ .-]+$")
_NUMBER = re.compile(r"([_ -]|(?<=[a-z]{3}))[0-9]+$", re.IGNORECASE)  # a Mustang may be a gt500
_VIEW = re.compile("(cam(era)?|view|expert|im)[_ -]?([0-9]|[a-e])", re.IGNORECASE)
_TRAIN_OR_TEST = re.compile("(?<=[a-z])T[rs]$")  # imagesTr and labelsTr, as in nnU-Net
_TIME = re.compile(f"(time|date|phase|t|img)[_-]?[0-9]|{_VIEW.pattern}", re.IGNORECASE)
_SEQUENCE = re.compile("(seq(uence)?|video|vid|clip|movie|shot|scene|episode)s?[_ -]?[0-9]+", re.IGNORECASE)
_RETRIEVAL = re.compile("(?<![a-z])(query|gallery|probe)(?![a-z])")  # beside a split, or one of these
_SURE_SPLITS = {*SPLITS} - {"train", "valid", "dev"}
_FURTHER = {"extra", "holdout", "heldout", "labeled", "unlabeled", "labelled", "unlabelled"}
_SAMPLED = 64
_MOST_VERSIONS = 8


def words_of(name: str) -> list[str]:
    """Return the words in a name, in lower case.

    >>> words_of("JPEGImages"), words_of("train_masks2")
    (['jpeg', 'images'], ['train', 'masks', '2'])
    """
    return [word.lower() for word in _WORD.findall(name)]


def is_result(name: str) -> bool:
    """Return True if a word in a name is that of masks, depth or another result of an image."""
    return not {*words_of(name)}.isdisjoint(RESULTS | ANNOTATION_PARTS)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IMAGE_PARTS = _words(
    "image images img imgs jpegimages photos pictures frames leftimg8bit "
    "jpg jpgs jpeg jpegs png pngs tif tiff"
)
"""The images of a dataset, whatever lies beside them."""

_MASK_PARTS = _words(
    "masks labels anno annos annot annots anns annotation annotations segmentation segmentations "
    "gt gts groundtruth groundtruths trimaps"
)

ANNOTATION_PARTS = _MASK_PARTS | _words("labeltxt bbox bboxes calib geojson gtfine gtcoarse")
"""Annotations of images, whatever lies beside them."""

NUMBERED_PARTS = _words("label mask")
"""Annotations if a number follows, as in KITTI's `label_2`; otherwise, a class may have the name."""

IMAGE_WORDS = IMAGE_PARTS | _words("photo picture pic pics rgb original originals input inputs x")
"""The images of a dataset, if a folder beside them is named after masks."""

MASK_WORDS = _MASK_PARTS | _words("mask label ann seg segs trimap y")
"""Masks, if a folder beside them holds images of the same names."""

RESULTS = _words(
    "mask label labeled labelled annotated seg segm segim depth disp disparity normals flow edges matte "
    "alpha map semantic instance trans transmission depthcrop maskcrop synthdepth"
)
"""Results of an image. A class may have such a name, too: only folders that all have one are pairs."""

VIEWS = _words(
    "rgb color colors grayscale grey gray thermal ir nir infrared vis visible optical sar vv vh mul pan "
    "ct mr mri pet he ihc left right top ortho sat satellite input inputs output outputs source target "
    "targets noisy clean blur blurred sharp hazy foggy clear rain rainy norain hr lr sr high low degraded "
    "enhanced before after pre post raw stills pic pics original reference segmented fg foreground bg "
    "background albedo shading distorted"
)
"""Images of one scene, with the same restriction as for `RESULTS`."""

MASK_ENDING = re.compile(
    r"(.+?)[_ .-](masks?|seg(mentation)?s?|labels?|label_?ids|anno(t(ation)?)?s?|gt|ground[_-]?truth|matte"
    r"|trimap)([_ .-]?[0-9]+)?",
    re.IGNORECASE,
)
"""The name of a mask without its suffix; the first group is that of its image, or begins it."""


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
    """Return True if a folder's name is that of the images of a dataset, not of `depth_image`."""
    part = _part_of(name)
    return part is not None and part[1] in IMAGE_PARTS and not is_result(name)


def _part_of(name: str) -> tuple[str, str] | None:
    """Return the words before the one that names a part, and that one; None if there is none."""
    base = _NUMBER.sub("", _TRAIN_OR_TEST.sub("", name)).lower()
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
    numbered = _TIME if has_result else _VIEW  # of two times, beside the change between them
    told = [
        found & known or ({name} if numbered.fullmatch(name) else set())
        for found, name in zip(words, names, strict=True)
    ]
    # Of two with one view, the name of one is the view alone: left_arm and left_leg are classes.
    are_versions = all(
        told[a] != told[b] or told[a] in (words[a], words[b]) for a, b in combinations(range(len(names)), 2)
    )
    return all(told) and len({*map(frozenset, told)}) > 1 and are_versions


def masked_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names beside which there is one with a word for masks, too.

    >>> masked_names(["gas", "gas mask"]), masked_names(["mask", "no_mask"])
    ([('gas', 'gas mask')], [])
    """
    of_words = {tuple(words_of(name)): name for name in names}
    rest = {name: tuple(word for word in words if word not in MASK_WORDS) for words, name in of_words.items()}
    return [(of_words[key], name) for name, key in rest.items() if of_words.get(key, name) != name]


def named_splits(names: Sequence[str]) -> list[str]:
    """Return the names that are those of splits under other words: of which the split's word alone differs.

    All are if one is a split's own, though `train` may be one class of several, or if all say one split.

    >>> named_splits(["WIDER_train", "WIDER_val", "readme"]), named_splits(["crash test", "fire test"])
    (['WIDER_train', 'WIDER_val'], [])
    """
    found = {name: match for name in names if (match := _split_word(name) or _RETRIEVAL.search(name))}
    split_of = {name: SPLITS.get(match[0], match[0]) for name, match in found.items()}
    are_splits = len(found) == len(names) and len({*split_of.values()}) > 1
    lower = {*map(str.lower, names)}
    is_split = lower & _SURE_SPLITS or ("train" in lower and (len(names) == 2 or lower & _FURTHER))
    are_alone = all(is_split_alone(name) and " " not in name for name in names)
    if len(names) > 1 and (are_splits or is_split or lower <= _FURTHER or are_alone):
        return list(names)
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
    match = _split_word(name)
    return match is not None and (
        match.start() == 0 or name[match.end() :].isdigit() or match.end() == len(name)
    )


def _split_word(name: str) -> re.Match[str] | None:
    return next(iter(split_words(name, any_case=False)), None)


def shared_ends(stems: Collection[str]) -> tuple[str, str]:
    """Return the first and the last word of all stems, each with its mark; "" if they differ, or of one stem.

    >>> shared_ends(["x_0_sat", "x_1_sat"]), shared_ends(["0_sat", "1"])
    (('x_', '_sat'), ('', ''))
    """
    one = next(iter(stems), "") if len(stems) > 1 else ""
    words = _FIRST_WORD.match(one), _LAST_WORD.search(one)
    start, ending = (word[0] if word else "" for word in words)
    return (
        start if all(stem.startswith(start) for stem in stems) else "",
        ending if all(stem.endswith(ending) for stem in stems) else "",
    )


def told_apart(stems: Iterable[str]) -> list[str]:
    """Return the stems without the words that all of them begin and end with.

    >>> told_apart(["S1_GT_010", "S1_NOISY_010"]), told_apart(["7", "7_depth"])
    (['GT', 'NOISY'], ['', 'depth'])
    """
    words = [_MARKED.findall(stem) for stem in stems]
    for end in (0, -1):
        while all(words) and len({parts[end] for parts in words}) == 1:
            for parts in words:
                del parts[end]
    return ["_".join(parts) for parts in words]


def begun_with(names: Sequence[str], start: str) -> list[str]:
    """Return the first eight of the sorted names that begin with a text."""
    at = bisect.bisect_left(names, start)
    return [name for name in names[at : at + _MOST_VERSIONS] if name.startswith(start)]


def has_stem(names: Sequence[str], stem: str) -> bool:
    """Return True if one of some sorted names is the stem and a suffix."""
    return any(os.path.splitext(name)[0] == stem for name in begun_with(names, f"{stem}."))


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
    spans = {stem: [match.span() for match in _MARKED.finditer(stem)] for stem in stems}
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
            before, middle, after = parts[stem]
            if middle not in words:
                before, middle, after = ("", "", stem) if at == 0 else (before + middle, "", after)
            others = [word for word in words if word != middle and has_stem(names, before + word + after)]
            found.update([middle, *others] if others else ())
            partnered += bool(others)
        if found and 2 * partnered >= len(stems):
            return sorted(found)
    return []


def _around(stem: str, spans: Sequence[tuple[int, int]], at: int) -> tuple[str, str, str]:
    """Split a stem around a word, which includes the mark before it (for the first word, the one behind)."""
    if -at > len(spans) or not spans:
        return stem, "", ""
    start, stop = spans[at]
    if at == 0:
        start, stop = 0, stop + 1 if len(spans) > 1 else 0
    else:
        start = start - 1 if -at < len(spans) else stop
    return stem[:start], stem[start:stop], stem[stop:]


def by_stem(paths: Iterable[str], folder: str = "") -> FilesByStem:
    """Return the paths of files below a folder by their stems.

    >>> by_stem(["images/a/0.jpg", "images/a/0.png"], "images")
    {'a/0': ['images/a/0.jpg', 'images/a/0.png']}
    """
    skipped = len(folder) + 1 if folder else 0
    found: FilesByStem = {}
    for path in paths:
        found.setdefault(os.path.splitext(path[skipped:])[0], []).append(path)
    return found


def one_of_each(files: FilesByStem, kind: str, shown: Callable[[str], str]) -> dict[str, str]:
    """Return the only file of each stem; raise SourceError if a stem has two.

    `kind` names the files, as in "mask of its image", and `shown` returns a path as the user knows it.
    """
    for stem, (first, *others) in files.items():
        if others:
            step = f"keep one file named {stem!r}"
            raise malformed(shown(others[0]), f"be the only {kind}", f"{shown(first)} too", step)
    return {stem: path for stem, (path,) in files.items()}

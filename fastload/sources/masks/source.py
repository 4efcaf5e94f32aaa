"""Images with one mask each, in a folder parallel to that of the images or beside the images.

The mask of `images/a.jpg` is `masks/a.png`, `masks/a_mask.png` or similar; beside the image, it is
`a_mask.png` or similar, or `a.png`. Masks are stored byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from fastload.shards.schema import Field
from fastload.sources.annotated import AnnotatedFiles
from fastload.sources.annotations import MASK_STEM, SEGMENTATION, find_annotations
from fastload.sources.files import NameTable, list_files, safe_key
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.malformed import malformed
from fastload.sources.walking import by_split, images_below, list_entries, split_names, unannotated

NO_IMAGE_OF_MASK = "a mask without an image of its name"


def open_masks(path: str) -> dict[str, AnnotatedFiles] | None:
    """List images and masks by split; return None unless at least half of a sample of them form pairs."""
    if not os.path.isdir(path):
        return None
    entries = list_entries(os.path.abspath(path))
    names = split_names(entries.folders)
    found = {}
    if names and names == entries.folders:
        found = {name: places for name in names if (places := _places(entries.join(name)))}
    elif places := _places(entries.path):
        images, masks = places
        inner = [] if images == masks else split_names(list_entries(images).folders)
        found = {name: (os.path.join(images, name), os.path.join(masks, name)) for name in inner}
        found = found or {"": places}
    if not found:
        return None
    splits = by_split(path, found)
    sources = {split: _source(path, entries.path, *places) for split, places in splits.items()}
    next(iter(sources.values())).warnings = unannotated(path, names, found)
    return sources


def _places(folder: str) -> tuple[str, str] | None:
    """Return the folders of the images and of the masks."""
    found = find_annotations(list_entries(folder))
    if found is None or found[0] != SEGMENTATION:
        return None
    signs = [os.path.join(folder, sign).rstrip(os.sep) for sign in found[1]]
    if len(signs) == 1:
        place = os.path.dirname(signs[0])
        if place != folder:  # class folders with masks: two kinds of labels
            must = "have its masks beside the images or in a folder, as a segmentation dataset has"
            step = f"pack each of its folders ('fastload pack {place} DEST')"
            raise malformed(folder, must, f"them in {place}", step)
        return place, place
    return signs[0], signs[1]


def _source(path: str, root: str, images: str, masks: str) -> AnnotatedFiles:
    pairs, unpaired = _paired(images, masks)
    names = [os.path.relpath(image, root) for image in pairs]
    left_out = LeftOutFiles()
    for mask in unpaired:
        left_out.add(os.path.relpath(mask, root), NO_IMAGE_OF_MASK)
    mask_names = [mask and os.path.relpath(mask, root) for mask in pairs.values()]
    return AnnotatedFiles(
        kind="masks",
        name=path,
        classes=(),
        fields=(Field.mask(), Field("mask_path", "text", internal=True)),
        left_out=left_out.finish(),
        files=list_files(root, names),
        values={"mask": list_files(root, mask_names), "mask_path": NameTable(map(safe_key, mask_names))},
        needs_masks=True,
    )


def _paired(images: str, masks: str) -> tuple[dict[str, str], list[str]]:
    """Return the mask of each image, "" for none, and the masks without an image."""
    found = images_below(masks)
    is_beside = images == masks
    by_stem = _masks_by_stem(masks, found, is_beside=is_beside)
    taken = {*by_stem.values()} if is_beside else {*found}
    pairs = {
        image: by_stem.get(os.path.splitext(os.path.relpath(image, images))[0], "")
        for image in images_below(images)
        if image not in taken
    }
    return pairs, [] if is_beside else sorted({*found} - {*pairs.values()})


def _masks_by_stem(folder: str, paths: Iterable[str], *, is_beside: bool) -> dict[str, str]:
    """Return masks by the relative stems of their images; raise SourceError if an image has several."""
    stems = {path: os.path.splitext(os.path.relpath(path, folder))[0] for path in paths}
    every = {*stems.values()}
    by_stem: dict[str, str] = {}
    for path, stem in stems.items():
        match = MASK_STEM.fullmatch(os.path.basename(stem))
        if match:
            stem = os.path.join(os.path.dirname(stem), match[1])
        if is_beside and not (stem in every if match else _is_twin(path, stems)):
            continue
        if stem in by_stem:
            step = "unite them, or pack a table with a column for each"
            raise malformed(path, "be the only mask of its image", f"{by_stem[stem]} too", step)
        by_stem[stem] = path
    return by_stem


def _is_twin(path: str, others: Iterable[str]) -> bool:
    """Return True for photo.png beside photo.jpg: the former is the mask."""
    base, suffix = os.path.splitext(path)
    return suffix.lower() == ".png" and any(
        base + each in others for each in (".jpg", ".jpeg", ".JPG", ".JPEG")
    )

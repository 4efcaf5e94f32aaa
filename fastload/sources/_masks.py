"""Images with a mask each: in a folder of masks that is parallel to that of the images, or beside them.

The mask of `images/a.jpg` is `masks/a.png`, `masks/a_mask.png` or similar; beside the images it is named with
such an ending, or `a.png` beside `a.jpg`. It is stored byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field
from fastload.sources._annotated import AnnotatedFiles
from fastload.sources._annotations import MASK_STEM, SEGMENTATION, find_annotations
from fastload.sources._walking import SPLITS, images_below, in_order, is_image, list_entries
from fastload.sources.files import NameTable, list_files

NO_IMAGE_OF_MASK = "a mask without an image of its name"

Pairs = dict[str, str]  # the mask of each image, by paths relative to the dataset's folder; "" for none


def recognise(path: str) -> bool:
    """Return True for a folder, or splits, of images with a mask for at least half of them."""
    return os.path.isdir(path) and any(_signs(folder) for folder in _split_folders(path).values())


def open_masks(path: str) -> dict[str, AnnotatedFiles]:
    """List images and masks by split."""
    root = os.path.abspath(path)
    sources = {}
    for split, folder in _split_folders(path).items():
        for part, pairs in _pairs_by_split(root, folder, _signs(folder)).items():
            sources[split or part] = _source(path, root, pairs)
    return in_order(sources)


def _source(path: str, root: str, found: tuple[Pairs, Sequence[str]]) -> AnnotatedFiles:
    pairs, unpaired = found
    return AnnotatedFiles(
        kind="masks",
        name=path,
        classes=(),
        fields=(Field.mask(), Field("mask_path", "text", internal=True)),
        left_out=tuple(LeftOut(name, NO_IMAGE_OF_MASK) for name in unpaired),
        files=list_files(root, pairs),
        further={"mask": list_files(root, pairs.values())},
        mask_names=NameTable(pairs.values()),
        needs_all=True,
    )


def _split_folders(path: str) -> dict[str, str]:
    entries = list_entries(os.path.abspath(path))
    inner = {SPLITS[name.lower()]: entries.join(name) for name in entries.folders if name.lower() in SPLITS}
    is_split = inner and len(inner) == len(entries.folders)
    return (
        {split: folder for split, folder in inner.items() if _signs(folder)}
        if is_split
        else {"": entries.path}
    )


def _signs(folder: str) -> list[str]:
    """Return the folder of the images and that of the masks; only a mask if they are together."""
    found = find_annotations(list_entries(folder))
    return found[1] if found is not None and found[0] == SEGMENTATION else []


def _pairs_by_split(root: str, folder: str, signs: Sequence[str]) -> dict[str, tuple[Pairs, list[str]]]:
    """Return the pairs of a folder, by the splits that its folders of images and masks may have."""
    if len(signs) == 1:
        place = os.path.dirname(os.path.join(folder, signs[0]))
        if place != folder:  # folders of classes, with masks: two kinds of labels
            raise SourceError(
                f"{folder}: a segmentation dataset must have its masks beside the images or in a folder, got "
                f"them in {place}: pack each of its folders ('fastload pack {place} DEST')"
            )
        return {"": _paired(root, place, place)}
    images, masks = (os.path.join(folder, sign) for sign in signs)
    inner = [name for name in list_entries(images).folders if name.lower() in SPLITS]
    if not inner:
        return {"": _paired(root, images, masks)}
    return {
        SPLITS[name.lower()]: _paired(root, os.path.join(images, name), os.path.join(masks, name))
        for name in inner
    }


def _paired(root: str, images: str, masks: str) -> tuple[Pairs, list[str]]:
    """Return the mask of each image, and the masks that belong to none."""
    names = _files_below(root, images)
    found = names if images == masks else _files_below(root, masks)
    by_stem = _masks_by_stem(masks, found, is_beside=images == masks, root=root)
    taken = {*by_stem.values()} if images == masks else set()
    prefix = os.path.relpath(images, root)
    pairs = {
        name: by_stem.get(_stem(os.path.relpath(name, prefix)), "")
        for name in names
        if name not in taken and is_image(name)
    }
    used = {*pairs.values()}
    return pairs, [] if images == masks else [name for name in found if name not in used]


def _masks_by_stem(folder: str, names: Sequence[str], *, is_beside: bool, root: str) -> dict[str, str]:
    """Return masks by the stems of their images, relative to the folder; SourceError if one has several."""
    prefix = os.path.relpath(folder, root)
    stems = {name: _stem(os.path.relpath(name, prefix)) for name in names}
    every = {*stems.values()}
    by_stem: dict[str, str] = {}
    for name, stem in stems.items():
        match = MASK_STEM.fullmatch(os.path.basename(stem))
        if match:
            stem = os.path.join(os.path.dirname(stem), match[1])
        # Of photo.jpg and photo.png, the latter is the mask.
        is_twin = is_beside and not match and name.lower().endswith(".png") and _has_twin(name, stems, stem)
        if is_beside and not is_twin and (not match or stem not in every):
            continue
        if stem in by_stem:
            raise SourceError(
                f"{os.path.join(root, name)}: must be the only mask of its image, got {by_stem[stem]} too: "
                "unite them, or pack a table with a column for each"
            )
        by_stem[stem] = name
    return by_stem


def _has_twin(name: str, stems: Mapping[str, str], stem: str) -> bool:
    folder = os.path.dirname(name)
    base = os.path.join(folder, os.path.basename(stem))
    return any(base + suffix in stems for suffix in (".jpg", ".jpeg", ".JPG", ".JPEG"))


def _files_below(root: str, folder: str) -> list[str]:
    return [os.path.relpath(path, root) for path in images_below(folder)]


def _stem(name: str) -> str:
    return os.path.splitext(name)[0]

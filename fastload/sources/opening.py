"""Choice of a layout: the only claim on a folder, or class folders where no layout claims it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from fastload.errors import FastloadError, OptionError, SourceError
from fastload.sources.account import settled
from fastload.sources.classes.doubts import doubts
from fastload.sources.classes.source import list_classes
from fastload.sources.coco import source as coco
from fastload.sources.databases import source as databases
from fastload.sources.file_source import FileSource
from fastload.sources.files import NOT_FOUND
from fastload.sources.huggingface import source as huggingface
from fastload.sources.left_out import explain_file
from fastload.sources.listing import Listing
from fastload.sources.malformed import in_quotes, malformed, pack_command
from fastload.sources.masks import source as masks
from fastload.sources.protocol import Claim, Source
from fastload.sources.splits import SPLITS
from fastload.sources.table.cells import TABLE_SUFFIXES
from fastload.sources.table.columns import ColumnKind
from fastload.sources.table.source import list_table
from fastload.sources.voc import source as voc
from fastload.sources.webdataset import source as webdataset
from fastload.sources.yolo import source as yolo
from fastload.system.units import format_count

CLASSES, TABLE = "classes", "table"
"""The layouts of class folders and of tables; the others are named in the tables below."""


_RECOGNISERS: dict[str, Callable[[Listing], Claim | None]] = {
    "yolo": yolo.recognise,
    "coco": coco.recognise,
    "voc": voc.recognise,
    "masks": masks.recognise,
    "webdataset": webdataset.recognise,
    "huggingface": huggingface.recognise,
    "lmdb": databases.recognise,
}

SOURCES = (
    "a folder of class folders or of images, a .csv or .tsv table, a dataset of YOLO, COCO, Pascal VOC, "
    "images with masks, WebDataset, Hugging Face, LMDB or HDF5, or one with __len__ and __getitem__"
)
"""The things that can be packed, in words for messages."""

_TO_CHOOSE = "to take it for class folders, say --layout classes (in Python, layout='classes')"
_DEEPEST = 3


# The layouts whose datasets a file describes, and those whose records it holds.
_DESCRIBED: dict[str, Callable[[str], Claim | None]] = {
    "yolo": yolo.recognise_file,
    "coco": coco.recognise_file,
}
_FILES: dict[str, Callable[[str], Mapping[str, Source] | None]] = {
    "webdataset": webdataset.open_file,
    "huggingface": huggingface.open_file,
    "lmdb": databases.open_lmdb_file,
    "hdf5": databases.open_hdf5_file,
}


def check_layout(layout: str | None) -> None:
    """Raise OptionError unless a layout is one of those that can be asked for."""
    names = dict.fromkeys((CLASSES, TABLE, *_RECOGNISERS, *_DESCRIBED, *_FILES))
    if layout is not None and layout not in names:
        raise OptionError(f"layout must be one of {', '.join(names)}, got {layout!r}: choose one")


def open_file(path: str, columns: Mapping[str, ColumnKind] | None, layout: str | None) -> dict[str, Source]:
    """List the records of a file by split: of a description, a container, or a table of images.

    SourceError is raised for a file of no layout, or of another one than the one that is named.
    """
    if not columns:
        for name, recognise in _DESCRIBED.items():
            if layout in (None, name) and (claim := recognise(path)) is not None:
                return _undoubted(settled(claim.read()), layout)
        for name, opens in _FILES.items():
            if layout in (None, name) and (found := opens(path)) is not None:
                return _undoubted(dict(found), layout)
    if layout in (None, TABLE) and path.lower().endswith(TABLE_SUFFIXES):
        return {"": list_table(path, columns)}
    if layout is not None:
        raise malformed(path, f"be a file in the layout {layout!r}", "another one", "leave the layout out")
    raise SourceError(f"{path}: must be {SOURCES}, got {explain_file(path)}")


def open_folder(path: str, layout: str | None = None) -> dict[str, Source]:
    """List the records of a folder by split, in the layout that claims it or in the one that is named.

    SourceError is raised if several layouts claim it, if class folders are in doubt, or if the named layout
    does not fit.
    """
    listing = Listing.walk(path)
    if layout == CLASSES:
        return dict(list_classes(listing, by_content=True))
    claims = list(_claims(listing, layout))
    if len(claims) > 1:
        got = f"{claims[0].title} ({claims[0].evidence}) and {claims[1].title} ({claims[1].evidence})"
        names = " or ".join(f"--layout {claim.layout}" for claim in claims)
        raise malformed(listing.name, "be a dataset in one layout", got, f"choose with {names}")
    if claims:
        return _undoubted(settled(claims[0].read(), listing), layout)
    if layout is not None:
        must = f"be a dataset in the layout {layout!r}"
        raise malformed(listing.name, must, "none of its files in their places", "name another layout")
    _require_no_doubt(listing)
    return dict(list_classes(listing, by_content=True))


def open_class_folders(path: str, layout: str | None = None) -> dict[str, FileSource]:
    """List the images of class folders by split, selected by suffix as by torchvision's ImageFolder.

    SourceError is raised for every other layout, and for class folders in doubt unless `layout` is "classes".
    """
    if layout not in (None, CLASSES):
        raise OptionError(f"layout must be {CLASSES!r} or None for a folder of images, got {layout!r}")
    listing = Listing.walk(path)
    if layout is None:
        for claim in _claims(listing, None):
            raise _other_layout(listing, claim, listing)
        _require_no_doubt(listing)
    return list_classes(listing, by_content=False)


def _undoubted(sources: dict[str, Source], layout: str | None) -> dict[str, Source]:
    """Return the sources; raise SourceError if one could be something else, unless the layout is named."""
    for source in sources.values():
        if layout is not None:
            source.doubts = ()
        elif source.doubt:
            raise SourceError(source.doubt)
    return sources


def _claims(listing: Listing, layout: str | None) -> Iterator[Claim]:
    claimed: set[str] = set()
    for name, recognise in _RECOGNISERS.items():
        if name == "masks" and "yolo" in claimed:
            continue  # YOLO's reader takes the masks beside its labels
        if layout in (None, name) and (claim := recognise(listing)) is not None:
            claimed.add(name)
            yield claim


def _require_no_doubt(listing: Listing) -> None:
    for part in _parts(listing, _DEEPEST):
        if part is not listing:
            for claim in _claims(part, None):
                raise _other_layout(listing, claim, part)
    for doubt in doubts(listing, lambda part: _claims(part, None)):
        must, first, choice = "be class folders and nothing else", "classes", _TO_CHOOSE
        if not listing.top.visible:
            must, first = "be images and nothing else", "images without labels"
            choice = "to pack the images alone, say --layout classes (in Python, layout='classes')"
        got = f"two readings: {first}, or {doubt.reading}"
        raise malformed(listing.name, must, got, f"{doubt.step}; {choice}")


def _parts(listing: Listing, deepest: int) -> Iterator[Listing]:
    """Yield a listing, and those of the folders in it that hold all of its folders or a split of them."""
    yield listing
    visible = listing.top.visible
    if deepest:
        for name in visible:
            if len(visible) == 1 or name.lower() in SPLITS:
                yield from _parts(listing.view(name), deepest - 1)


def _other_layout(listing: Listing, claim: Claim, part: Listing) -> SourceError:
    place = part.name
    beside = [name for name in listing.top.visible if not f"{place}/".startswith(f"{listing.shown(name)}/")]
    lost = f", without {in_quotes(beside)}" if part is not listing and beside else ""
    with contextlib.suppress(FastloadError):  # packing the part reports it
        sources = claim.read().sources.values() if claim.layout == "masks" else ()
        sizes = [files.sizes_bytes for source in sources for files in source.record_files()]
        if lacking := sum(int((each == NOT_FOUND).sum()) for each in sizes):
            lost = f", with --on-error skip, but for {format_count(lacking, 'image')} without a mask{lost}"
    return SourceError(
        f"{listing.name}: must be a folder of images, by classes or not, got {claim.title} ({place}: "
        f"{claim.evidence}), whose annotations would be lost: {pack_command(place)} keeps them{lost}; "
        f"{_TO_CHOOSE}"
    )

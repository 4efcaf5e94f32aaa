"""Choice of a layout: the only claim on a path, or class folders where no layout claims a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

from fastload.errors import FastloadError, OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources.account import settled
from fastload.sources.classes.doubts import doubts
from fastload.sources.classes.source import list_classes
from fastload.sources.containers import expand_braces
from fastload.sources.dataset.source import DatasetSource, files_behind
from fastload.sources.file_source import FileSource
from fastload.sources.files import NOT_FOUND
from fastload.sources.layouts import CLASSES, LAYOUTS, TABLE, SourceLayout
from fastload.sources.left_out import explain_file
from fastload.sources.listing import Listing
from fastload.sources.malformed import in_quotes, malformed, pack_command
from fastload.sources.protocol import Claim, Source
from fastload.sources.splits import SPLITS
from fastload.sources.table.cells import TABLE_SUFFIXES
from fastload.sources.table.columns import ColumnKind
from fastload.sources.table.source import list_table
from fastload.system.units import format_count

_SOURCES = f"{', '.join(each.title for each in LAYOUTS)}, or a dataset with __len__ and __getitem__"
_TO_CHOOSE = "to take it for class folders, say --layout classes (in Python, layout='classes')"
_DEEPEST = 3


def open_source(
    source: object,
    fields: Sequence[Field] | None = None,
    columns: Mapping[str, ColumnKind] | None = None,
    layout: str | None = None,
) -> dict[str, Source]:
    """Return the sources of a path or a map-style dataset by split (`train`, `val`, `test`), or all under "".

    A `Source` is returned as it is. An ImageFolder without transforms, or torch's Subset of one, is read from
    its files. `fields` describes the samples of a dataset if they cannot be inferred; `columns` gives the
    kinds of a table's columns; `layout` names the layout of a path that can be read in two ways.
    SourceError is raised for a path that does not exist or cannot be read, for one of another layout than the
    one named, and for one that can be read in two ways; OptionError for options that do not apply to the
    source.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise OptionError(f"columns must map names to kinds, as {{'zip': 'text'}} does, got {columns!r}")
    names = [each.name for each in LAYOUTS]
    if layout is not None and layout not in names:
        raise OptionError(f"layout must be one of {', '.join(names)}, got {layout!r}: choose one")
    if isinstance(source, Source):
        return {"": source}
    path = os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else None
    if columns and not (path and path.lower().endswith(TABLE_SUFFIXES)):
        raise OptionError(f"columns are for a .csv or .tsv table, got them for {source!r}: leave them out")
    if path is not None:
        if fields is not None:
            raise OptionError(f"fields are for a dataset, got them for {source!r}: leave them out")
        path = os.path.expanduser(path)
        if not os.path.exists(path) and expand_braces(path) == [path]:
            raise SourceError(f"{path}: no such file or folder: check its spelling")
        if os.path.normpath(path).lower().endswith(".fl"):
            raise SourceError(
                f"{path}: must be {_SOURCES}, got a packed dataset: "
                f"unpack it first with 'fastload unpack {path} FOLDER'"
            )
        return _open_folder(path, layout) if os.path.isdir(path) else _open_file(path, columns, layout)
    if layout is not None:
        raise OptionError(f"layout is for a folder, got it for {source!r}: leave it out")
    if not hasattr(type(source), "__len__") or not hasattr(type(source), "__getitem__"):
        raise SourceError(f"a source must be {_SOURCES}, got {type(source).__name__}")
    files = files_behind(source) if fields is None else None
    return {"": files if files is not None else DatasetSource(source, fields)}


def _open_file(path: str, columns: Mapping[str, ColumnKind] | None, layout: str | None) -> dict[str, Source]:
    """List the records of a file by split; raise SourceError unless it is of the layout that is named."""
    for each in LAYOUTS if not columns else ():
        if layout in (None, each.name) and (claim := each.recognise_file(path)) is not None:
            return _undoubted(settled(claim.read()), layout)
    if layout in (None, TABLE.name) and path.lower().endswith(TABLE_SUFFIXES):
        return {"": list_table(path, columns)}
    if layout is not None:
        raise malformed(path, f"be a file in the layout {layout!r}", "another one", "leave the layout out")
    raise SourceError(f"{path}: must be {_SOURCES}, got {explain_file(path)}")


def _open_folder(path: str, layout: str | None) -> dict[str, Source]:
    """List the records of a folder by split, in the layout that claims it or in the one that is named.

    SourceError is raised if several layouts claim it, if class folders are in doubt, or if the named layout
    does not fit.
    """
    listing = Listing.walk(path)
    if layout == CLASSES.name:
        return dict(list_classes(listing, by_content=True))
    claims = list(_claims(listing, layout))
    if len(claims) > 1:
        got = " and ".join(f"{each.title} ({claim.evidence})" for each, claim in claims[:2])
        names = " or ".join(f"--layout {each.name}" for each, _ in claims)
        raise malformed(listing.name, "be a dataset in one layout", got, f"choose with {names}")
    for _, claim in claims:
        return _undoubted(settled(claim.read(), listing), layout)
    if layout is not None:
        must = f"be a dataset in the layout {layout!r}"
        raise malformed(listing.name, must, "none of its files in their places", "name another layout")
    _require_no_doubt(listing)
    return dict(list_classes(listing, by_content=True))


def open_class_folders(path: str, layout: str | None = None) -> dict[str, FileSource]:
    """List the images of class folders by split, selected by suffix as by torchvision's ImageFolder.

    If no file has such a suffix, they are selected by content.

    SourceError is raised for every other layout, and for class folders in doubt unless `layout` is "classes".
    """
    if layout not in (None, CLASSES.name):
        raise OptionError(f"layout must be {CLASSES.name!r} or None for a folder of images, got {layout!r}")
    listing = Listing.walk(path)
    if layout is None:
        for claim in _claims(listing):
            raise _other_layout(listing, claim, listing)
        _require_no_doubt(listing)
    return list_classes(listing, by_content=not any(each.images for each in listing.folders.values()))


def _undoubted(sources: dict[str, Source], layout: str | None) -> dict[str, Source]:
    """Return the sources; raise SourceError if one could be something else, unless the layout is named."""
    for source in sources.values():
        if layout is not None:
            source.doubts = ()
        elif source.doubt:
            raise SourceError(source.doubt)
    return sources


def _claims(listing: Listing, layout: str | None = None) -> Iterator[tuple[SourceLayout, Claim]]:
    claimed: set[str] = set()
    for each in LAYOUTS:
        if layout not in (None, each.name) or not claimed.isdisjoint(each.yields_to):
            continue
        if (claim := each.recognise(listing)) is not None:
            claimed.add(each.name)
            yield each, claim


def _require_no_doubt(listing: Listing) -> None:
    for part in _parts(listing, _DEEPEST):
        if part is not listing:
            for claim in _claims(part):
                raise _other_layout(listing, claim, part)
    for doubt in doubts(listing, lambda part: (each.title for each, _ in _claims(part))):
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


def _other_layout(listing: Listing, claimed: tuple[SourceLayout, Claim], part: Listing) -> SourceError:
    layout, claim = claimed
    place = part.name
    beside = [name for name in listing.top.visible if not f"{place}/".startswith(f"{listing.shown(name)}/")]
    lost = f", without {in_quotes(beside)}" if part is not listing and beside else ""
    with contextlib.suppress(FastloadError):  # packing the part reports it
        sources = claim.read().sources.values() if layout.may_lack else ()
        sizes = [files.sizes_bytes for source in sources for files in source.record_files()]
        if lacking := sum(int((each == NOT_FOUND).sum()) for each in sizes):
            images = f"{format_count(lacking, 'image')} without {layout.may_lack}"
            lost = f", with --on-error skip, but for {images}{lost}"
    return SourceError(
        f"{listing.name}: must be a folder of images, by classes or not, got {layout.title} ({place}: "
        f"{claim.evidence}), whose annotations would be lost: {pack_command(place)} keeps them{lost}; "
        f"{_TO_CHOOSE}"
    )

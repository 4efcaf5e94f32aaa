"""The account of a folder: every file holds records, was read with them, or is left out with a reason."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from fastload.errors import SourceError
from fastload.shards.manifest import LeftOut, Skipped
from fastload.sources.files import FileList, list_files
from fastload.sources.left_out import LeftOutFiles, clutter_reason
from fastload.sources.listing import Listing, is_image
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.protocol import Account, Reading, Source
from fastload.sources.splits import SPLITS

UNUSED_IMAGE = "an image of no record"
UNUSED = "not part of the dataset"
OF_NO_RECORD = "annotations of no record"

_OF_TRAINING = re.compile(r"train(ing)?([_ -]?(val(id(ation)?)?|test|extra|full|all))*[0-9]*", re.IGNORECASE)


def settled(reading: Reading, walked: Listing | None = None) -> dict[str, Source]:
    """Return the sources of a reading; the first one has the account and the files that are left out.

    A file that holds all records has no account.
    """
    listing, sources = reading.listing or walked, dict(reading.sources)
    if listing is None:
        return sources
    lists = [(each.record_files(), each.annotation_files()) for each in sources.values()]
    records = set(_listed(listing, (files for of_records, _ in lists for files in of_records)))
    annotations = set(_listed(listing, (files for _, others in lists for files in others)))
    annotations.update(reading.annotations)
    annotations -= records
    kinds = set(map(_kind, annotations))
    left_out = LeftOutFiles()
    unread: set[str] = set()  # folders of images of no record
    folders = listing.folders.values()
    for path in (folder.join(name) for folder in folders for name in chain(folder.images, folder.others)):
        if path not in records and path not in annotations:
            reason, is_clutter = reading.reasons.get(path) or _default_reason(path)
            if reason == UNUSED and path.endswith((".txt", ".xml")) and _kind(path) in kinds:
                reason = OF_NO_RECORD
            left_out.add(path, reason, is_clutter=is_clutter)
            unread.update(os.path.dirname(path).split("/") if reason == UNUSED_IMAGE else ())
    account = balanced(listing, len(records), len(annotations), left_out.finish())
    first = next(iter(sources.values()))
    attach(first, (*reading.outside, *map(listing.absolute, annotations)))
    # Members of containers may be left out too, but are no files of the folder.
    first.left_out = (*first.left_out, *left_out.finish())
    # In competitions, the annotations of a test are kept secret.
    tests = [lack for split, lack in reading.unlabelled if split == "test"]
    first.warnings = (*first.warnings, *reading.warnings, *tests)
    named = f"--layout {first.kind} (in Python, layout={first.kind!r})"
    step = f"add them; or if no image has objects, say {named}"
    first.doubts += tuple(f"{lack}: {step}" for split, lack in reading.unlabelled if split != "test")
    first.account = account
    is_described = any(path.endswith((".yaml", ".yml", ".data", ".json")) for path in annotations)
    if not is_described and not reading.outside:
        known = SPLITS if "" not in sources else ()
        first.doubt = first.doubt or _training_left_out(listing.name, unread, known)
    return sources


def _training_left_out(where: str, folders: Iterable[str], known: Container[str]) -> str:
    """Return the doubt about images for training in folders that are not `known` splits; "" for none."""
    named = sorted(name for name in folders if name.lower() not in known and _OF_TRAINING.fullmatch(name))
    if not named:
        return ""
    must, got = (
        "have splits named train, val and test",
        f"images in {in_quotes(named)} that would be left out",
    )
    step = "rename the folders; or name the layout (--layout) to pack without them"
    return str(malformed(where, must, got, step))


def attach(source: Source, paths: Iterable[str]) -> None:
    """Attach annotation files, by absolute paths, to the source of the first split."""
    lists, named = list(source.record_files()), sorted(paths)
    if lists and named:
        folder = lists[0].folder
        names = (os.path.relpath(path, folder).replace(os.sep, "/") for path in named)
        source.attached = list_files(folder, names)


def balanced(listing: Listing, records: int, annotations: int, left_out: Iterable[LeftOut]) -> Account:
    """Return the account of a listing; raise SourceError unless all of its files are accounted for."""
    account = Account(listing.files, records, annotations, sum(entry.files for entry in left_out))
    if account.files != account.records + account.annotations + account.left_out:
        raise SourceError(
            f"{listing.name}: must have each of its files in a record, read or left out, got {account}: "
            "this is a fault of fastload; please report it with the list of files"
        )
    return account


def without_skipped(
    sources: Mapping[str, Source], skipped: Mapping[str, Sequence[Skipped]]
) -> Account | None:
    """Return the account of some sources, in which the files of skipped records, by split, are left out."""
    account = next(iter(sources.values())).account
    if account is None:
        return None
    lost: set[str] = set()
    for split, keys in ((split, {each.key for each in found}) for split, found in skipped.items() if found):
        source = sources[split]
        indices = [index for index in range(len(source)) if source.key(index) in keys]
        for files in source.record_files():
            if len(files) == len(source):  # else containers, which hold further records
                lost.update(files.path(index) for index in indices if files.sizes_bytes[index] >= 0)
    records, left_out = account.records - len(lost), account.left_out + len(lost)
    return replace(account, records=records, left_out=left_out, skipped=len(lost))


def _listed(listing: Listing, lists: Iterable[FileList]) -> Iterator[str]:
    """Yield the files of some lists that lie in a listing, by their paths in it."""
    for files in lists:
        place = listing.place_of(files.folder)
        prefix = f"{place}/" if place else ""
        yield from (path for path in map(prefix.__add__, files.names) if listing.has_file(path))


def _kind(path: str) -> tuple[str, str]:
    return os.path.dirname(path), os.path.splitext(path)[1]


def _default_reason(path: str) -> tuple[str, bool]:
    if clutter := clutter_reason(path):
        return clutter, True
    return (UNUSED_IMAGE if is_image(path) else UNUSED), False

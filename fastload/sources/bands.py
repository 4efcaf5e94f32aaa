"""Images whose channels are files of their own, such as `field1_red.tif` and `field1_nir.tif`.

In a folder, files belong to one image if they lie beside each other and their names differ in the band alone,
which is the whole name or its end after `_`, `-`, `.` or a space. In a table, each band is a column of paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fastload.contracts import SourceRecord
from fastload.errors import DecodeError, OptionError, SourceError
from fastload.images.arrays import Pixels
from fastload.images.header import read_header
from fastload.images.unchanged import decode_as
from fastload.sources.file_source import FileSource, ListedSource
from fastload.sources.files import FileList, NameTable, digest_of, list_files, safe_key
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.malformed import malformed
from fastload.sources.protocol import Source

OTHER_BAND = "of no band that was named"


@dataclass(eq=False, kw_only=True)
class BandSource(ListedSource):
    """A source of images of one file for each channel; `bands` has the files by name."""

    keys: NameTable
    bands: Mapping[str, FileList]

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, index: int) -> str:
        return self.keys[index]

    def record_files(self) -> Iterator[FileList]:
        yield from self.bands.values()
        yield from (column for column in self.values.values() if isinstance(column, FileList))

    def sizes_bytes(self) -> npt.NDArray[np.int64]:
        sizes = [files.sizes_bytes.clip(min=0) for files in self.bands.values()]
        return np.asarray(np.sum(sizes, axis=0), np.int64)

    def read(self, index: int) -> SourceRecord:
        """Read all bands of an image; raise SourceError, naming the file, if they do not belong together."""
        planes: list[Pixels] = []
        for name, files in self.bands.items():
            if not files.names[index]:
                must, step = f"have a file for the band {name!r}", "add it, or leave the others out"
                raise malformed(f"{self.name}, {self.key(index)}", must, "none", step)
            plane = _plane(files.path(index), files.read(index))
            if planes and (plane.dtype, plane.shape) != (planes[0].dtype, planes[0].shape):
                must = f"have the size and dtype of the other bands, {planes[0].dtype} {planes[0].shape[:2]}"
                step = "resample or convert it before packing"
                raise malformed(files.path(index), must, f"{plane.dtype} {plane.shape[:2]}", step)
            planes.append(plane)
        return SourceRecord(self.key(index), np.concatenate(planes, axis=2), self.listed_values(index))

    def fingerprint(self) -> str:
        head = self.kind, self.classes, self.fields, self.details, tuple(self.bands)
        return digest_of(head, [self.keys, *self.bands.values(), *self.values.values()])


def _plane(path: str, data: bytes) -> Pixels:
    """Return the pixels of a band, (height, width, 1); raise SourceError if its file has more channels."""
    try:
        header = read_header(data)
        pixels = decode_as(data, header.pixel_type)
    except DecodeError as error:
        raise SourceError(f"{path}: {error}") from error
    if header.channels != 1:
        step = "name the bands that are files of their own"
        raise malformed(path, "have one channel to be a band", f"{header.channels}", step)
    return pixels[:, :, :1]


def joined_bands(sources: Mapping[str, Source], bands: Sequence[str] | None) -> Mapping[str, Source]:
    """Return sources of files with those of each image joined, its channels in the order of `bands`, if any.

    Raises OptionError if the source has no such files, and SourceError if no image has a band.
    """
    if bands is None:
        return sources
    if len(bands) < 2 or len({*bands}) < len(bands) or not all(bands):
        raise OptionError(f"bands must be two or more different names, got {list(bands)!r}")
    joined: dict[str, Source] = {}
    for split, source in sources.items():
        if not isinstance(source, FileSource):
            raise OptionError(
                f"{source.name}: bands are for folders of images and for tables, got the layout "
                f"{source.kind!r}: leave them out"
            )
        joined[split] = _of_table(source, bands) if source.table else _of_folder(source, bands)
    return joined


def _of_table(source: FileSource, bands: Sequence[str]) -> Source:
    columns = {name: column for name, column in source.values.items() if isinstance(column, FileList)}
    # The table's first column of images has become the image itself.
    missing = [name for name in bands if name not in columns]
    if len(missing) > 1:
        step = "name columns of paths"
        raise malformed(
            source.table, f"have the bands {', '.join(bands)}", ", ".join(columns) or "none", step
        )
    files = {name: columns.get(name, source.files) for name in bands}
    names = NameTable(safe_key(name) for name in source.files.names)
    return _source(source, names, files, {name: c for name, c in source.values.items() if name not in bands})


def _of_folder(source: FileSource, bands: Sequence[str]) -> Source:
    ends = re.compile(f"(.*[_. -])?({'|'.join(map(re.escape, bands))})", re.DOTALL)
    groups: dict[str, dict[str, int]] = {}
    left_out = LeftOutFiles()
    for index, name in enumerate(source.files.names):
        folder, base = os.path.split(name)
        found = ends.fullmatch(os.path.splitext(base)[0])
        if found is None:
            left_out.add(os.path.join(folder, base), OTHER_BAND)
            continue
        key = os.path.join(folder, (found[1] or "").rstrip("_. -")).rstrip("/")
        group = groups.setdefault(safe_key(key), {})
        if found[2] in group:
            step = "leave one of them out"
            must = f"be the only file of the band {found[2]!r} of its image"
            raise malformed(source.files.path(index), must, "another beside it", step)
        group[found[2]] = index
    if not groups:
        must, step = f"have files of the bands {', '.join(bands)}", "name the bands as the files do"
        raise malformed(source.name, must, f"{source.files.names[0]!r}", step)
    names = source.files.names
    files = {
        band: list_files(
            source.files.folder, [names[group[band]] if band in group else "" for group in groups.values()]
        )
        for band in bands
    }
    first = source.part([next(iter(group.values())) for group in groups.values()])
    joined = _source(source, NameTable(groups), files, first.values)
    joined.left_out = (*source.left_out, *(others := left_out.finish()))
    if (account := source.account) is not None:
        count = sum(entry.files for entry in others)
        joined.account = replace(account, records=account.records - count, left_out=account.left_out + count)
    return joined


def _source(
    source: FileSource, keys: NameTable, files: Mapping[str, FileList], values: Mapping[str, object]
) -> BandSource:
    return BandSource(
        kind=source.kind,
        name=source.name,
        classes=source.classes,
        fields=tuple(field for field in source.fields if field.name in values),
        warnings=source.warnings,
        doubts=source.doubts,
        columns=source.columns,
        left_out=source.left_out,
        details={**source.details, "bands": list(files)},
        account=source.account,
        attached=source.attached,
        files=next(iter(files.values())),
        values=values,  # type: ignore[arg-type]
        keys=keys,
        bands=files,
    )

"""Sources whose records are files that were listed, of images alone or with annotations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fastload.contracts import SourceRecord
from fastload.errors import FastloadError, SourceError
from fastload.images.arrays import Size
from fastload.images.header import read_header
from fastload.images.region import swaps_sides
from fastload.shards.schema import Field
from fastload.sources.files import NOT_FOUND, FileList, NameTable, Values, digest_of, safe_key, value_at
from fastload.sources.malformed import malformed, quoted
from fastload.sources.protocol import Source


@dataclass(eq=False, kw_only=True)
class ListedSource(Source):
    """A source of files that were listed with their sizes and times.

    `values` holds, by field, the values known from the listing; the other fields are read with each record.
    """

    files: FileList
    values: Mapping[str, Values] = field(default_factory=dict)

    def record_files(self) -> Iterator[FileList]:
        """See `Source`."""
        yield self.files
        yield from (column for column in self.values.values() if isinstance(column, FileList))

    def listed_values(self, index: int) -> dict[str, object]:
        """Return the values of a record that are known from the listing."""
        return {name: value_at(column, index) for name, column in self.values.items()}

    def fingerprint(self) -> str:
        """Return a digest of names, sizes, times and values; it does not change when the folder moves."""
        head = self.kind, self.classes, self.fields, self.details, len(self)
        return digest_of(head, [self.files, *self.values.values()])


@dataclass(eq=False, kw_only=True)
class ImageFileSource(ListedSource):
    """A source with one image file for each record."""

    def __len__(self) -> int:
        return len(self.files)

    def key(self, index: int) -> str:
        """Return the file's relative path, with `/` between its parts."""
        return safe_key(self.files.names[index])

    def sizes_bytes(self) -> npt.NDArray[np.int64]:
        """Return the size of each image's file; 0 for one that does not exist."""
        return self.files.sizes_bytes.clip(min=0)


@dataclass(eq=False, kw_only=True)
class FileSource(ImageFileSource):
    """A `Source` whose records are files.

    `table` is the path of the table that lists the records, for messages; empty if there is none.
    """

    table: str = ""

    def part(self, indices: Sequence[int]) -> FileSource:
        """Return the records at these indices in the order given; negative ones count from the end."""
        values = {name: _part(column, indices) for name, column in self.values.items()}
        return replace(self, files=self.files.part(indices), values=values)

    def read(self, index: int) -> SourceRecord:
        """Read one record; raise SourceError, naming the file and the table's row, if it cannot be read."""
        try:
            return SourceRecord(self.key(index), self.files.read(index), self.listed_values(index))
        except SourceError as error:
            if not self.table:
                raise
            raise SourceError(f"{self.table}, row {index + 1}: {error}") from error

    def size_bytes(self) -> int:
        """Return the total size of all files; a file listed twice counts twice."""
        return sum(int(files.sizes_bytes.clip(min=0).sum()) for files in self.record_files())


def _part(column: Values, indices: Sequence[int]) -> Values:
    if isinstance(column, FileList):
        return column.part(indices)
    if isinstance(column, NameTable):
        return NameTable(column[index] for index in indices)
    return column[np.array(indices, np.int64)]


ImageValues = dict[str, object]


class AnnotationReader(ABC):
    """Reader of one image's annotations; frozen, and picklable."""

    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """Return the fields of each image."""

    @abstractmethod
    def read(self, text: bytes, size: Size, where: str) -> tuple[ImageValues, tuple[str, ...]]:
        """Return the values of the fields, and notes on corrections.

        `text` is empty if the image has no annotation file; `size` is that of the image, in the frame of the
        coordinates. SourceError, naming `where` and the line or annotation, is raised for malformed text.
        """


def require_size(stated: Iterable[object], size: Size, where: str) -> None:
    """Raise SourceError if a stated height or width is not the image's; None and 0 are not checked."""
    step = "its boxes belong to another size of it, or to one turned by its EXIF orientation"
    for name, given, side in zip(("height", "width"), stated, size, strict=True):
        if (given or side) != side:
            found = int(given) if isinstance(given, float) and given.is_integer() else given
            raise malformed(where, f"have the {name} of its file, {side}", quoted(found), step)


@dataclass(eq=False, kw_only=True)
class AnnotatedFiles(ImageFileSource):
    """A source of image files with annotations."""

    texts: FileList | NameTable | None = None  # of each image: files, any of which may be missing, or texts
    origin: str = ""  # the file from which texts were taken, for messages
    reader: AnnotationReader | None = None  # None for images with only masks
    needs_masks: bool = False  # if False, a missing mask is stored as b""
    if_no_mask: str = ""  # what to do if a file is not the mask that it seems to be, for messages

    def read(self, index: int) -> SourceRecord:
        """Read an image and its annotations; raise SourceError, naming the file, if either is malformed."""
        image = self.files.read(index)
        size = self._size(image, self.files.path(index))
        values: ImageValues = {}
        notes: tuple[str, ...] = ()
        if self.reader is not None:
            text, where = self._text(index)
            values, notes = self.reader.read(text, size, where)
        for name, column in self.values.items():
            if isinstance(column, FileList):
                values[name] = self._mask(column, index, size)
            else:
                values[name] = value_at(column, index)
        return SourceRecord(self.key(index), image, values, notes)

    def _text(self, index: int) -> tuple[bytes, str]:
        """Return the annotations of an image, and their location for messages."""
        if isinstance(self.texts, FileList):
            is_missing = self.texts.sizes_bytes[index] == NOT_FOUND
            return b"" if is_missing else self.texts.read(index), self.texts.path(index)
        assert self.texts is not None
        return self.texts[index].encode(), f"{self.origin}, image {self.key(index)!r}"

    def _mask(self, files: FileList, index: int, size: Size) -> bytes:
        from fastload.images.masks import decode_mask  # not above: the loader lists folders without OpenCV

        path = files.path(index)
        if files.sizes_bytes[index] == NOT_FOUND:
            if self.needs_masks:
                raise malformed(self.files.path(index), "have a mask", "none", "add it, or leave it out")
            return b""
        data = files.read(index)
        height, width = self._size(data, path)
        if (height, width) != size:
            must = f"have the size {size[0]}x{size[1]} of its image"
            raise malformed(path, must, f"{height}x{width}", "it belongs to another image")
        try:
            decode_mask(data)
        except FastloadError as error:
            raise SourceError(f"{path}: {error}{self.if_no_mask}") from error
        return data

    def _size(self, data: bytes, path: str) -> Size:
        try:
            header = read_header(data)
        except FastloadError as error:
            raise SourceError(f"{path}: {error}") from error
        if self.is_upright and swaps_sides(header.orientation):
            return header.width, header.height
        return header.height, header.width

    def annotation_files(self) -> Iterator[FileList]:
        if isinstance(self.texts, FileList):
            yield self.texts

    def fingerprint(self) -> str:
        texts = [] if self.texts is None else [self.texts]
        return digest_of((super().fingerprint(), self.reader), texts)

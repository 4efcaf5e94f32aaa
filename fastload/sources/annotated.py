"""Images with annotations: a file or text for each image, parsed by the layout's reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastload.errors import FastloadError, SourceError
from fastload.images.arrays import Size
from fastload.images.header import read_header
from fastload.images.region import swaps_sides
from fastload.shards.schema import Field
from fastload.sources.file_source import ImageFileSource
from fastload.sources.files import NOT_FOUND, FileList, digest_of, value_at
from fastload.sources.malformed import malformed, quoted
from fastload.sources.names import NameTable
from fastload.sources.protocol import SourceRecord

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
            raise SourceError(f"{path}: {error}") from error
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

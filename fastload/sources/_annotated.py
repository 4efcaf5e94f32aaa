"""Images with annotations: a file, or a text, for each image, which a reader of the layout understands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastload.errors import FastloadError, SourceError
from fastload.images.header import read_header
from fastload.images.orientation import swaps_sides
from fastload.shards.schema import Field
from fastload.sources._malformed import malformed
from fastload.sources.files import NOT_FOUND, FileList, NameTable, digest_of, safe_key
from fastload.sources.protocol import Source, SourceRecord

Size = tuple[int, int]  # height, width
Values = dict[str, object]

HAS_FILE = Field("has_file", "scalar", "bool", internal=True)
"""True for an image with a file of annotations, in sources of which some have an empty one, and some none."""


class AnnotationReader(ABC):
    """Reader of one image's annotations; frozen, and picklable."""

    @abstractmethod
    def read(self, text: bytes, size: Size, where: str) -> tuple[Values, tuple[str, ...]]:
        """Return the values of the fields, and notes on what was put right.

        `text` is empty if the image has no file of annotations; `size` is the image's, in the frame of the
        coordinates. SourceError, naming `where` and the line or the annotation, is raised for all that is
        malformed.
        """


def require_size(stated: Iterable[object], size: Size, where: str) -> None:
    """Raise SourceError unless a stated height and width are the image's; some tools write none, or 0."""
    step = "its boxes belong to another size of it, or to one turned by its EXIF orientation"
    for name, given, side in zip(("height", "width"), stated, size, strict=True):
        if (given or side) != side:
            raise malformed(where, f"have the {name} of its file, {side}", given, step)


def upright_sides(image: bytes) -> tuple[int, int] | None:
    """Return the width and height of an image, the larger one for both of a turned one; None for no image.

    Its boxes may be those of the stored or of the upright image.
    """
    try:
        header = read_header(image)
    except FastloadError:
        return None  # packing says so
    sides = header.width, header.height
    return (max(sides), max(sides)) if swaps_sides(header.orientation) else sides


@dataclass(eq=False, kw_only=True)
class AnnotatedFiles(Source):
    """A source of image files with annotations.

    Attributes:
        files: The images.
        texts: The annotations of each image: files, of which any may be missing, or the texts themselves.
        origin: The file from which the texts were taken, for messages.
        reader: The reader of the annotations.
        further: Further images, such as masks, by field; one that is missing is stored as b"".
        mask_names: The paths of masks, for the field `mask_path`; None if other paths show them.
        needs_all: A further image that is missing is an error.
    """

    files: FileList
    texts: FileList | NameTable | None = None
    origin: str = ""
    reader: AnnotationReader | None = None
    further: Mapping[str, FileList] = field(default_factory=dict)
    mask_names: NameTable | None = None
    needs_all: bool = False

    def __len__(self) -> int:
        return len(self.files)

    def key(self, index: int) -> str:
        """Return the image's path relative to the dataset's folder."""
        return safe_key(self.files.names[index])

    def read(self, index: int) -> SourceRecord:
        """Read an image and its annotations; raise SourceError, naming the file, if either is malformed."""
        image = self.files.read(index)
        size = self._size(image, self.files.path(index))
        values: Values = {}
        notes: tuple[str, ...] = ()
        if self.reader is not None and self.texts is not None:
            values, notes = self.reader.read(*self._text(self.texts, index, size))
        if HAS_FILE in self.fields and isinstance(self.texts, FileList):
            values[HAS_FILE.name] = bool(self.texts.sizes_bytes[index] != NOT_FOUND)
        for name, files in self.further.items():
            values[name] = mask = self._further(files, index, size)
            if name == "mask" and mask:
                _require_classes(mask, files.path(index))
        if self.mask_names is not None:
            values["mask_path"] = safe_key(self.mask_names[index])
        return SourceRecord(self.key(index), image, values, notes)

    def _text(self, texts: FileList | NameTable, index: int, size: Size) -> tuple[bytes, Size, str]:
        if isinstance(texts, NameTable):
            return texts[index].encode(), size, f"{self.origin}, image {self.key(index)!r}"
        data = b"" if texts.sizes_bytes[index] == NOT_FOUND else texts.read(index)
        return data, size, texts.path(index)

    def _further(self, files: FileList, index: int, size: Size) -> bytes:
        if files.sizes_bytes[index] == NOT_FOUND:
            if self.needs_all:
                raise malformed(self.files.path(index), "have a mask", "none", "add it, or leave it out")
            return b""
        data = files.read(index)
        got = self._size(data, files.path(index))
        if got != size:
            must = f"have the size {size[0]}x{size[1]} of its image"
            raise malformed(files.path(index), must, f"{got[0]}x{got[1]}", "it belongs to another image")
        return data

    def _size(self, data: bytes, path: str) -> Size:
        try:
            header = read_header(data)
        except FastloadError as error:
            raise SourceError(f"{path}: {error}") from error
        if self.is_upright and swaps_sides(header.orientation):
            return header.width, header.height
        return header.height, header.width

    def sizes_bytes(self) -> npt.NDArray[np.int64]:
        """Return the size of each image's file; 0 for one that does not exist."""
        return self.files.sizes_bytes.clip(min=0)

    def fingerprint(self) -> str:
        """Return a digest of names, sizes, times and texts; it does not change when the folder moves."""
        head = self.kind, self.classes, self.fields, self.details, self.reader, [*self.further]
        texts = [] if self.texts is None else [self.texts]
        return digest_of(head, [self.files, *texts, *self.further.values()])


def _require_classes(mask: bytes, path: str) -> None:
    from fastload.images.masks import (
        decode_mask,  # only here: the loader lists folders, and runs without OpenCV
    )

    try:
        decode_mask(mask)
    except FastloadError as error:
        raise SourceError(f"{path}: {error}") from error

"""Fields of a packed dataset, and the columns that store them.

A *field* is what a user names (image, label, boxes). A *column* is one array of a shard. A field takes one or
more columns: an encoded image, for instance, also stores its height, width and channels. Containers
(hdf5.py, lmdb.py) handle only columns, and every column has one of two forms:

    fixed   every record has one row of one shape:        (n, *shape)
    ragged  a record has any number of rows:              data (total rows, *shape) and offsets (n + 1)

Boxes, polygons, keypoints and corners are stored in the source's own numbers, so that they can be written
back exactly; a field's `format` and `relative` define their meaning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from fastload.errors import FormatError, OptionError
from fastload.images.encoding_names import DTYPES as IMAGE_DTYPES
from fastload.images.encoding_names import ENCODING_NAMES
from fastload.images.pixel_types import MOST_CHANNELS, RGB, PixelType
from fastload.shards.json_values import JsonValue

FieldKind = Literal[
    "image", "scalar", "vector", "ragged", "text", "bytes", "texts",
    "boxes", "polygons", "keypoints", "corners",
]  # fmt: skip
BoxFormat = Literal["cxcywh", "xywh", "xyxy"]
MaskFormat = Literal["mask", "masks"]
Format = BoxFormat | MaskFormat
# NumPy's names of the element types that can be stored, and their codes in Python's `struct`.
DTYPES = {
    "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i",
    "uint64": "Q", "int64": "q", "float16": "e", "float32": "f", "float64": "d", "bool": "?",
}  # fmt: skip

# HDF5 allows 32 dimensions (H5S_MAX_RANK), and the records are one of them.
_MOST_DIMENSIONS = 31
_MOST_ROW_BYTES = 1 << 40

# The row shapes of float64 coordinates of objects; keypoints have (points, 2) or (points, 3).
_COORDINATES = {"boxes": (4,), "polygons": (2,), "corners": (4, 2)}
_COORDINATE_KINDS = (*_COORDINATES, "keypoints")

_FLAGS = ("relative", "per_object", "internal")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED = frozenset({"key", "crc32c", "records"})


@dataclass(frozen=True, slots=True)
class Column:
    """One array of a shard."""

    name: str  # `label`, `image`, `image/shape`: a plain path, readable in h5dump
    dtype: str  # NumPy's name of the element type; stored little-endian
    shape: tuple[int, ...] = ()  # of one row
    ragged: bool = False  # True if a record has any number of rows instead of exactly one

    @property
    def numpy_dtype(self) -> np.dtype[np.generic]:
        """The element type as stored: little-endian."""
        stored: np.dtype[np.generic] = np.dtype(self.dtype).newbyteorder("<")
        return stored

    @property
    def row_bytes(self) -> int:
        """The size of one row in bytes."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Field:
    """A named part of every record.

    Attributes:
        name: An identifier other than `key`, `crc32c` and `records`.
        kind: `image` (encoded pixels), `scalar` (one number), `vector` (an array of one shape),
            `ragged` (any number of rows of one shape), `text` (UTF-8), `bytes`; of objects: `boxes`,
            `polygons` (any number for each object), `keypoints`, `corners` (of oriented boxes); `texts`.
        dtype: The element type of a scalar, vector or ragged field; `float64` for coordinates; of an image's
            pixels, `uint8`, `uint16`, `int16`, `float16` or `float32`; `uint8` for the others.
        shape: The shape of a vector, or of one row of a ragged field or of coordinates; of an image, its
            number of channels, as in `(4,)`, unless it is RGB of 8 bits; `()` for the others.
        encoding: The encoding of an image: `keep`, `tiled`, `jpeg`, `yuv420`, `blosc` or `raw`.
        format: The numbers of a box: `cxcywh`, `xywh` or `xyxy`; `mask` for an image of classes,
            `masks` for the objects' masks below each other.
        relative: Coordinates are fractions of the image's width and height instead of pixels.
        per_object: There is one row, or text, for each object of the image.
        internal: The field is for `unpack` and not a part of a dataset's samples.

    Raises:
        OptionError: The name, dtype or shape is not one that can be stored.
    """

    name: str
    kind: FieldKind
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    encoding: str | None = None
    format: Format | None = None
    relative: bool = False
    per_object: bool = False
    internal: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in _RESERVED:
            raise OptionError(
                f"a field's name must be an identifier of at most 64 characters, other than "
                f"{', '.join(sorted(_RESERVED))}, got {self.name!r}: rename the column or key"
            )
        for defect in self._defects():
            raise OptionError(f"field {self.name!r}: {defect}")

    def _defects(self) -> Iterator[str]:
        """Yield each defect; a check assumes that those before it found none."""
        if self.kind not in get_args(FieldKind):
            yield f"kind must be one of {get_args(FieldKind)}, got {self.kind!r}"
        if self.dtype not in DTYPES:
            yield f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}"
        if self.kind == "vector" and not self.shape:
            yield "a vector needs a shape, such as (4,)"
        if self.kind in _COORDINATE_KINDS:
            is_shape = self.shape == _COORDINATES.get(self.kind)
            if self.kind == "keypoints":
                is_shape = len(self.shape) == 2 and self.shape[1] in (2, 3)
            if self.dtype != "float64" or not is_shape:
                wanted = _COORDINATES.get(self.kind, "(points, 2) or (points, 3)")
                yield f"{self.kind} must be float64 of shape {wanted}, got {self.dtype} of shape {self.shape}"
            formats = get_args(BoxFormat)
            if self.format not in (formats if self.kind == "boxes" else (None,)):
                must = f"boxes, and no other coordinates, have a format among {', '.join(formats)}"
                yield f"{must}, got {self.format!r}"
        elif self.format is not None and (self.kind != "image" or self.format not in get_args(MaskFormat)):
            yield f"{self.kind} has no format {self.format!r}: leave it out"
        elif self.kind == "image":
            is_stated = len(self.shape) == 1 or (not self.shape and self.dtype == RGB.dtype)
            if not is_stated or not self.pixel_type.is_possible:
                must = (
                    f"an image has a dtype among {', '.join(IMAGE_DTYPES)} and 1 to {MOST_CHANNELS} channels"
                )
                yield f"{must}, as in dtype='uint16', shape=(4,), got {self.dtype} and {self.shape}"
        elif self.shape and self.kind not in ("vector", "ragged"):
            yield f"{self.kind} has no shape, got {self.shape}: make it a vector"
        # Rows of zero bytes could not be counted.
        least = 1 if self.kind == "ragged" else 0
        if any(length < least for length in self.shape):
            yield f"every length must be at least {least}, got {self.shape}"
        row_bytes = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        if len(self.shape) > _MOST_DIMENSIONS or max(row_bytes, *self.shape, 0) > _MOST_ROW_BYTES:
            most = f"{_MOST_DIMENSIONS} dimensions and {_MOST_ROW_BYTES} bytes"
            yield f"a shape has at most {most}, got {self.shape}"
        if self.encoding not in (ENCODING_NAMES if self.kind == "image" else (None,)):
            must = f"an image, and no other field, has one of the encodings {', '.join(ENCODING_NAMES)}"
            yield f"{must}, got {self.encoding!r}"

    @property
    def pixel_type(self) -> PixelType:
        """The dtype and the number of channels of an image."""
        return PixelType(self.dtype, self.shape[0]) if self.shape else RGB

    @classmethod
    def image(cls, name: str, encoding: str, pixel_type: PixelType = RGB) -> Field:
        """Return the field of an image whose pixels have a type."""
        shape = () if pixel_type == RGB else (pixel_type.channels,)
        return cls(name, "image", pixel_type.dtype, shape, encoding=encoding)

    @property
    def is_of_objects(self) -> bool:
        """True if the value has one part for each object of the image."""
        return self.per_object or self.kind in _COORDINATE_KINDS

    @property
    def needs_image(self) -> bool:
        """True if the value describes the image of its record, or is a further image."""
        return self.kind == "image" or self.is_of_objects

    @property
    def least_version(self) -> int:
        """The lowest version of the format that has such a field."""
        if self.kind == "image" and (self.shape or self.encoding == "blosc"):
            return 5
        is_new = self.kind == "texts" or self.is_of_objects or self.internal or self.format
        return 3 if is_new else 2

    @classmethod
    def mask(cls) -> Field:
        """Return the field `mask`: a file whose levels, or indices of a palette, are classes."""
        return cls("mask", "image", encoding="keep", format="mask")

    @classmethod
    def boxes(cls, format: BoxFormat, *, relative: bool = False) -> Field:
        """Return the field `boxes`: (objects, 4) float64."""
        return cls("boxes", "boxes", "float64", (4,), format=format, relative=relative)

    @classmethod
    def polygons(cls, *, relative: bool = False) -> Field:
        """Return the field `polygons`: for each object a list of (points, 2) float64."""
        return cls("polygons", "polygons", "float64", (2,), relative=relative)

    @classmethod
    def keypoints(cls, shape: tuple[int, int], *, relative: bool = False) -> Field:
        """Return the field `keypoints`: (objects, points, 2 or 3) float64."""
        return cls("keypoints", "keypoints", "float64", shape, relative=relative)

    @classmethod
    def corners(cls, *, relative: bool = False) -> Field:
        """Return the field `corners` of oriented boxes: (objects, 4, 2) float64."""
        return cls("corners", "corners", "float64", (4, 2), relative=relative)

    @classmethod
    def labels(cls) -> Field:
        """Return the field `labels` of the objects' class indices: (objects,) int64."""
        return cls("labels", "ragged", "int64", per_object=True)

    @classmethod
    def label(cls) -> Field:
        """Return the field of class indices, as for class folders: int64, -1 without a label."""
        return cls("label", "scalar", "int64")

    def columns(self) -> tuple[Column, ...]:
        """Return the columns that store this field, in the order of a record's checksum."""
        if self.kind == "image":
            return (
                Column(self.name, "uint8", ragged=True),
                Column(f"{self.name}/shape", "uint32", (3,)),
                Column(f"{self.name}/grid", "uint32", (4,)),
                Column(f"{self.name}/tiles", "uint16", ragged=True),
            )
        if self.kind in ("text", "bytes"):
            return (Column(self.name, "uint8", ragged=True),)
        ends = Column(f"{self.name}/ends", "uint32", ragged=True)
        if self.kind == "texts":
            return Column(self.name, "uint8", ragged=True), ends
        column = Column(self.name, self.dtype, self.shape, ragged=self.kind not in ("scalar", "vector"))
        if self.kind == "polygons":
            return column, ends, Column(f"{self.name}/counts", "uint32", ragged=True)
        return (column,)

    def to_json(self) -> dict[str, object]:
        """Return the field as the manifest stores it."""
        optional = {"shape": list(self.shape), "encoding": self.encoding, "format": self.format}
        given = {name: value for name, value in optional.items() if value}
        flags = {name: True for name in _FLAGS if getattr(self, name)}
        return {"name": self.name, "kind": self.kind, "dtype": self.dtype, **given, **flags}

    @classmethod
    def from_json(cls, entry: object, name: str = "field") -> Field:
        """Read the result of `to_json`.

        Args:
            entry: The parsed JSON.
            name: Its path in the file, for messages.

        Raises:
            FormatError: The entry is not a field.
        """
        json = JsonValue(entry, name)
        try:
            shape, encoding = json.get("shape"), json.get("encoding")
            kind = cast(FieldKind, json["kind"].text())
            given = json.get("format")
            named = None if given is None else cast(Format, given.text())
            flags = {flag: value.flag() for flag in _FLAGS if (value := json.get(flag)) is not None}
            return cls(
                json["name"].text(),
                kind,
                json["dtype"].text(),
                () if shape is None else tuple(length.count() for length in shape.each()),
                None if encoding is None else encoding.text(),
                named,
                **flags,
            )
        except ValueError as error:
            raise FormatError(f"{name} describes no valid field: {error}") from error


def image_of(fields: Sequence[Field]) -> Field | None:
    """Return the field of the image, which is the first one; None if records have no image."""
    return fields[0] if fields and fields[0].kind == "image" else None


KEY = Column("key", "uint8", ragged=True)
CRC32C = Column("crc32c", "uint32")


def record_columns(fields: Sequence[Field]) -> tuple[Column, ...]:
    """Return the columns of a record in the order of its checksum: the key comes first."""
    return (KEY, *(column for field in fields for column in field.columns()))

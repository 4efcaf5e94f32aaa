"""What a user may ask of packing, checked before anything is read or written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fastload.errors import OptionError
from fastload.images.encodings import encoding_named
from fastload.images.resize import SizeLimit
from fastload.shards.schema import Field

OnError = Literal["fail", "skip", "keep"]
ENCODE_NAMES = ("auto", "keep", "tiled", "jpeg", "yuv420", "raw")
FORMAT_NAMES = ("hdf5", "lmdb")
_LOSSLESS_OF_SOURCE = ("keep", "tiled")

# One shard of 256 MB: large enough that opening shards costs nothing beside reading them, small enough
# that a killed pack, a damaged file or a copy to a bucket concerns little.
DEFAULT_SHARD_BYTES = 256_000_000
_MIN_SHARD_BYTES = 4_096

_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class PackOptions:
    """How a source is to be packed.

    Attributes:
        format: `hdf5` or `lmdb`.
        encode: `auto`, `keep`, `tiled`, `jpeg`, `yuv420` or `raw`.
        quality: Of `jpeg`, 1 to 100.
        shard_bytes: How much a shard holds before the next one begins.
        on_error: What becomes of a file that cannot be read as an image: `fail` stops, `skip` leaves
            it out and lists it, `keep` stores its bytes as they are and lists it.
        limit: The largest size that images are stored at, or None for their own.
        space_bytes: The space that `auto` may fill, or None for its own choice.

    Raises:
        OptionError: A value cannot be obeyed, or two contradict each other.
    """

    format: str = "hdf5"
    encode: str = "auto"
    quality: int = 90
    shard_bytes: int = DEFAULT_SHARD_BYTES
    on_error: OnError = "fail"
    limit: SizeLimit | None = None
    space_bytes: int | None = None

    def __post_init__(self) -> None:
        _require_one_of("format", self.format, FORMAT_NAMES)
        _require_one_of("encode", self.encode, ENCODE_NAMES)
        _require_one_of("on_error", self.on_error, get_args(OnError))
        if self.quality not in range(1, 101):
            raise OptionError(f"quality must be 1 to 100, got {self.quality!r}")
        if self.shard_bytes < _MIN_SHARD_BYTES:
            raise OptionError(f"shard_size must be at least 4096 bytes, got {self.shard_bytes}")
        if self.limit is not None and self.encode in _LOSSLESS_OF_SOURCE:
            raise OptionError(
                f"encode={self.encode} stores the source's own pixels and cannot resize them: "
                "use encode=jpeg, yuv420 or raw together with a size"
            )


def limit_of(
    max_side: int | None, shorter_side: int | None, size: tuple[int, int] | int | None
) -> SizeLimit | None:
    """The size at which images are stored, of what a user said of it; None where that is nothing.

    Raises:
        OptionError: It is no size, or more than one thing was said.
    """
    if max_side is None and shorter_side is None and size is None:
        return None
    square = (size, size) if isinstance(size, int) else size
    return SizeLimit(max_side=max_side, shorter_side=shorter_side, size=square)


def check_fields(fields: Sequence[Field]) -> None:
    """Checks the fields that a user gives for a dataset.

    Raises:
        OptionError: They are none, or two have one name.
    """
    if not all(isinstance(field, Field) for field in fields):
        raise OptionError(f"fields must be fastload.Field objects, got {fields!r}")
    names = [field.name for field in fields]
    if "image" in names or len(set(names)) < len(names):
        raise OptionError(
            f"fields must have names of their own, and none but the first image 'image', got {names}"
        )
    for field in fields:
        if field.encoding is not None:
            encoding_named(field.encoding)


def _require_one_of(name: str, got: str, allowed: tuple[str, ...]) -> None:
    if got not in allowed:
        raise OptionError(f"{name} must be one of {', '.join(allowed)}, got {got!r}")


def parse_size(size: str | int) -> int:
    """Bytes in a size as people write it: `256MB`, `1.5 GiB`, `4096`.

    Raises:
        OptionError: It is no such size.
    """
    text = str(size) if isinstance(size, int) else size
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2].upper() not in _UNITS:
        raise OptionError(f"a size must look like 256MB or 1.5GiB, got {size!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])

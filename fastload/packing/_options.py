"""Options of `pack`, checked before anything is read or written."""

from __future__ import annotations

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
_LOSSLESS_ENCODINGS = ("keep", "tiled")

# Large enough that opening a shard costs little compared with reading it, small enough that an interruption
# or a damaged file loses little.
DEFAULT_SHARD_BYTES = 256_000_000
_MIN_SHARD_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class PackOptions:
    """Checked options of `pack`; `limit` applies to the size of images."""

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
            raise OptionError(f"shard_size must be at least {_MIN_SHARD_BYTES} bytes, got {self.shard_bytes}")
        if self.limit is not None and self.encode in _LOSSLESS_ENCODINGS:
            raise OptionError(
                f"encode={self.encode} stores the source's own pixels and cannot resize them: "
                "use encode=jpeg, yuv420 or raw together with a size"
            )


def limit_of(
    max_side: int | None, shorter_side: int | None, size: tuple[int, int] | int | None
) -> SizeLimit | None:
    """Return the size limit that the options set, or None; raise OptionError for an invalid one."""
    if max_side is None and shorter_side is None and size is None:
        return None
    square = (size, size) if isinstance(size, int) else size
    return SizeLimit(max_side=max_side, shorter_side=shorter_side, size=square)


def check_fields(fields: Sequence[Field]) -> None:
    """Raise OptionError unless the `fields` given for a dataset are Field objects with different names."""
    if not all(isinstance(field, Field) for field in fields):
        raise OptionError(f"fields must be fastload.Field objects, got {fields!r}")
    names = [field.name for field in fields]
    if "image" in names or len(set(names)) < len(names):
        raise OptionError(f"fields must have different names other than 'image', got {names}")
    for field in fields:
        if field.encoding is not None:
            encoding_named(field.encoding)


def _require_one_of(name: str, got: str, allowed: tuple[str, ...]) -> None:
    if got not in allowed:
        raise OptionError(f"{name} must be one of {', '.join(allowed)}, got {got!r}")


def ray_address(on: str) -> str | None:
    """Return the address in `ray=ADDRESS`, None for `ray`; raise OptionError for anything else."""
    name, sign, address = on.partition("=")
    if name != "ray" or bool(sign) != bool(address):
        raise OptionError(f"on must be 'ray' or 'ray=ADDRESS', as in ray=10.0.0.1:6379, got {on!r}")
    return address or None


def check_part(part: tuple[int, int] | None, on: str | None) -> None:
    """Raise OptionError unless a part is (number, count), numbered from 1, and packed on this machine."""
    if part is None:
        return
    if on is not None:
        raise OptionError("part is for packing without Ray, which packs all parts: leave out part or on")
    is_pair = isinstance(part, tuple) and len(part) == 2 and all(type(each) is int for each in part)
    if not is_pair or not 1 <= part[0] <= part[1]:
        raise OptionError(f"part must be (number, count), as in (3, 16), numbered from 1, got {part!r}")

"""Shard contents for tests: records as stored rows, assembled as in packing."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from fastload.shards.container import Payload, Ragged, ShardContent, ShardEntry, ShardReader
from fastload.shards.schema import DTYPES, Column, Field, record_columns
from fastload.shards.shard import open_shard, writer_for

IDENTITY = bytes(range(16))

IMAGE = Field("image", "image", encoding="keep")

# One field of every kind, and of every dtype if the kind allows several.
EVERY_FIELD = (
    IMAGE,
    *(Field(f"scalar_{dtype}", "scalar", dtype) for dtype in DTYPES),
    *(Field(f"vector_{dtype}", "vector", dtype, (3,)) for dtype in DTYPES),
    *(Field(f"ragged_{dtype}", "ragged", dtype, (2, 2)) for dtype in DTYPES),
    Field("numbers", "ragged", "float32"),
    Field("text", "text"),
    Field("bytes", "bytes"),
    Field("second", "image", encoding="raw"),
    Field.boxes("cxcywh", relative=True),
    Field.polygons(),
    Field.keypoints((17, 3)),
    Field.corners(relative=True),
    Field.labels(),
    Field("texts", "texts", per_object=True, internal=True),
)

Rows = Sequence[dict[str, bytes]]
"""Each record's stored bytes by column."""


def random_rows(columns: Sequence[Column], count: int, seed: int = 0, longest: int = 5) -> Rows:
    """Make random bytes for every column; a third of ragged rows is empty, and booleans stay 0 or 1."""
    rng = np.random.default_rng(seed)

    def stored(column: Column) -> bytes:
        times = int(rng.integers(longest + 1)) * int(rng.integers(3) > 0) if column.ragged else 1
        limit = 2 if column.dtype == "bool" else 256
        return rng.integers(0, limit, times * column.row_bytes, dtype=np.uint8).tobytes()

    return [{column.name: stored(column) for column in columns} for _ in range(count)]


def content_of(
    columns: Sequence[Column],
    rows: Rows,
    payload_path: Path,
    payload_offset: int,
    row_shape: tuple[int, ...] | None = None,
    identity: bytes = IDENTITY,
) -> ShardContent:
    """Return the content of a shard with these records, and write the payload's file."""
    fixed, ragged = {}, {}
    for column in columns:
        data = b"".join(row[column.name] for row in rows)
        if not column.ragged:
            array = np.frombuffer(data, column.numpy_dtype)
            fixed[column.name] = array.reshape(len(rows), *column.shape)
            continue
        ends = np.cumsum([0, *(len(row[column.name]) // column.row_bytes for row in rows)], dtype="<u8")
        if column.name == "image":
            payload_path.write_bytes(bytes(payload_offset) + data)
            payload = Payload("image", payload_path, ends, row_shape)
        else:
            array = np.frombuffer(data, column.numpy_dtype).reshape(-1, *column.shape)
            ragged[column.name] = Ragged(array, ends)
    return ShardContent(len(rows), identity, fixed, ragged, payload)


def write_shard(container: str, folder: Path, columns: Sequence[Column], rows: Rows, **options) -> Path:
    """Write one shard of these records, and return its path."""
    writer = writer_for(container)
    path = folder / f"shard{writer.suffix}"
    content = content_of(columns, rows, folder / "payload", writer.payload_offset, **options)
    writer.write(path, columns, content)
    content.payload.path.unlink(missing_ok=True)
    return path


def entry_of(path: Path, count: int, identity: bytes = IDENTITY) -> ShardEntry:
    """Return a manifest entry with the values that opening a shard needs."""
    size = path.stat().st_size if path.is_file() else 0
    return ShardEntry(path.name, count, size, "00000000", {}, identity.hex())


def opened(container: str, path: Path, columns: Sequence[Column], count: int) -> ShardReader:
    """Open a shard like a dataset whose manifest matches the file."""
    return open_shard(container, path, columns, entry_of(path, count))


def read_rows(container: str, path: Path, columns: Sequence[Column], count: int) -> Rows:
    """Read all records of a shard one by one."""
    reader = opened(container, path, columns, count)
    return [{column.name: bytes(reader.row(column.name, i)) for column in columns} for i in range(count)]


@st.composite
def columns_and_rows(draw: st.DrawFn) -> tuple[tuple[Column, ...], Rows]:
    """Draw a few fields with a few records."""
    kinds = st.sampled_from(["scalar", "vector", "ragged", "text", "bytes", "image"])
    # Names that are critical for LMDB's order of keys: prefixes, and characters around "/".
    names = st.sampled_from(["a", "a0", "aa", "a_", "A", "image_", "imag", "image0", "tiles", "shape", "z"])
    fields = [IMAGE]
    for name in draw(st.lists(names, unique=True, max_size=5)):
        kind = draw(kinds)
        has_shape = kind in ("vector", "ragged")
        shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)) if has_shape else ()
        dtype = draw(st.sampled_from(list(DTYPES))) if has_shape or kind == "scalar" else "uint8"
        fields.append(Field(name, kind, dtype, tuple(shape), "keep" if kind == "image" else None))
    columns = record_columns(fields)
    count = draw(st.integers(1, 6))
    return columns, random_rows(columns, count, draw(st.integers(0, 2**32)), draw(st.integers(0, 9)))

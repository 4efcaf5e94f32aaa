"""Journal of the chunks written to unfinished shards, which a resumed packing takes over.

The folder of drafts holds the payload of each unfinished shard, and an entry for each of its chunks: the
small columns, the places of the payload, and the checksums of both. An entry that is incomplete, or whose
payload has changed, is ignored, and its records are packed again. Therefore no write has to be flushed.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from google_crc32c import extend

from fastload.packing._assemble import Assembler, FinishedShard
from fastload.packing._chunk import Chunk, Failure
from fastload.packing._payload import PayloadRange, write_payload

CHUNK_SUFFIX = ".chunk"

_CRC = struct.Struct("<I")


class Journal:
    """The journal of one split; `folder` is for finished shards."""

    def __init__(self, drafts: Path, split: str, folder: Path) -> None:
        self._drafts = drafts
        self._folder = folder
        self._prefix = f"{split or 'all'}-"
        self._noted: list[tuple[int, Path]] = []

    def note(self, chunk: Chunk, ranges: Sequence[PayloadRange], crcs: Sequence[int]) -> None:
        """Note that a chunk is written to these ranges, with these checksums."""
        path = self._drafts / f"{self._prefix}{chunk.start:012d}{CHUNK_SUFFIX}"
        write_atomically(path, _encode_entry(chunk, ranges, crcs))
        self._noted.append((chunk.stop, path))

    def forget(self, shard: FinishedShard) -> None:
        """Remove the entries and the payload that only this shard needed, once it is noted as finished."""
        for payload in self._drafts.glob(f"{Path(shard.entry.file).stem}.*.payload"):
            payload.unlink()
        for stop, path in self._noted:
            if stop <= shard.next_index:
                path.unlink()
        self._noted = [noted for noted in self._noted if noted[0] > shard.next_index]

    def clear(self, token: str) -> None:
        """Remove the files of earlier runs, except those with this run's token and the entries taken over."""
        noted = {path for _, path in self._noted}
        for path in self._drafts.iterdir():
            if path not in noted and token not in path.name:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def resume(self, assembler: Assembler, begin: int) -> Iterator[tuple[Chunk, list[FinishedShard]]]:
        """Place the consecutive chunks from `begin` on that an earlier run wrote; yield the shards finished.

        Their payload is copied to files of this run: a worker of the earlier one may still be alive.
        """
        for path in sorted(self._drafts.glob(f"{self._prefix}*{CHUNK_SUFFIX}")):
            found = self._read(path, begin)
            if found is None:
                continue
            chunk, first, payload = found
            ranges = assembler.place(chunk, begin)
            at = np.concatenate(([0], np.cumsum(chunk.sizes[first:])))
            crcs = [
                write_payload(each, [payload[at[each.first - first] : at[each.last - first]]])
                for each in ranges
            ]
            self.note(chunk, ranges, crcs)
            yield chunk, assembler.written(chunk.start)
            begin = chunk.stop

    def _read(self, path: Path, begin: int) -> tuple[Chunk, int, bytes] | None:
        """Return an entry's chunk if it continues at `begin`, its first record to take, and their payload."""
        try:
            chunk, ranges = _decode_entry(path.read_bytes())
            if not chunk.start <= begin < chunk.stop:
                return None
            first = int(np.searchsorted(chunk.indices, begin))
            payload = [
                self._payload(name, offset, int(chunk.sizes[start:stop].sum()), crc)
                for name, offset, start, stop, crc in ranges
                if start >= first
            ]
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return None
        return chunk, first, b"".join(payload)

    def _payload(self, name: str, offset: int, size_bytes: int, crc: int) -> bytes:
        """Return a range as it was written, from any file that the shard had until it was finished."""
        draft, number = Path(name).with_suffix(".h5"), name.partition(".")[0]
        for path in (self._drafts / name, self._drafts / draft, self._folder / f"{number}.h5"):
            try:
                with path.open("rb", buffering=0) as file:
                    file.seek(offset)
                    found = file.read(size_bytes)
            except OSError:
                continue
            if len(found) == size_bytes and extend(0, found) == crc:
                return found
        raise ValueError(f"{name}: holds something else at {offset}")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under another name, then rename it."""
    draft = path.with_name(path.name + ".draft")
    draft.write_bytes(data)
    os.replace(draft, path)


def _encode_entry(chunk: Chunk, ranges: Sequence[PayloadRange], crcs: Sequence[int]) -> bytes:
    """Return an entry: a checksum, and an npz archive of a JSON header and the columns."""
    header = {
        "start": chunk.start,
        "stop": chunk.stop,
        "failures": [asdict(failure) for failure in chunk.failures],
        "ranges": [
            (each.path.name, each.offset, each.first, each.last, crc)
            for each, crc in zip(ranges, crcs, strict=True)
        ],
    }
    columns = {"header": json.dumps(header).encode(), "crcs": chunk.crcs}
    columns |= {f"rows/{name}": rows for name, rows in chunk.rows.items()}
    arrays: dict[str, Any] = {name: np.frombuffer(column, np.uint8) for name, column in columns.items()}
    arrays |= {f"lengths/{name}": lengths for name, lengths in chunk.lengths.items()}
    archive = io.BytesIO()
    np.savez(archive, indices=chunk.indices, sizes=chunk.sizes, **arrays)
    return _CRC.pack(extend(0, archive.getvalue())) + archive.getvalue()


def _decode_entry(entry: bytes) -> tuple[Chunk, list[Any]]:
    """Return the chunk and the ranges of an entry; raise ValueError if it is incomplete."""
    [crc] = _CRC.unpack_from(entry)
    if extend(0, entry[_CRC.size :]) != crc:
        raise ValueError("the entry is incomplete")
    with np.load(io.BytesIO(entry[_CRC.size :]), allow_pickle=False) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes())
    chunk = Chunk(
        start=header["start"],
        stop=header["stop"],
        indices=arrays["indices"],
        sizes=arrays["sizes"],
        rows={name[5:]: column.tobytes() for name, column in arrays.items() if name.startswith("rows/")},
        lengths={name[8:]: column for name, column in arrays.items() if name.startswith("lengths/")},
        crcs=arrays["crcs"].tobytes(),
        failures=[Failure(**failure) for failure in header["failures"]],
    )
    return chunk, header["ranges"]

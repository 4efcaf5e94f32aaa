"""The pieces of unfinished shards that are written already: a resumed packing takes them over.

Beside the payload of an unfinished shard lies an entry for each of its pieces: its small columns, where in
the payload it was written, and the checksums of both. An entry that is torn, or whose payload is not there
as it was written, is worth nothing, and its records are packed again: so nothing need be waited for.
"""

from __future__ import annotations

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

from fastload.packing.assemble import Assembler, FinishedShard
from fastload.packing.payload import Stretch, write
from fastload.packing.piece import Failure, Piece

PIECE_SUFFIX = ".piece"

_PREFIX = struct.Struct("<II")  # the checksum of all that follows, and the length of the header


class Journal:
    """The written pieces of one split.

    Args:
        drafts: The folder of unfinished shards.
        split: The split's name.
        folder: Where finished shards go: one that was not noted as finished still holds its payload.
    """

    def __init__(self, drafts: Path, split: str, folder: Path) -> None:
        self._drafts = drafts
        self._folder = folder
        self._prefix = f"{split or 'all'}-"
        self._noted: list[tuple[int, Path]] = []

    def note(self, piece: Piece, stretches: Sequence[Stretch], crcs: Sequence[int]) -> None:
        """Notes that a piece is written.

        Args:
            piece: The piece.
            stretches: Where its payload lies.
            crcs: The checksum of each stretch.
        """
        path = self._drafts / f"{self._prefix}{piece.start:012d}{PIECE_SUFFIX}"
        draft = path.with_name(path.name + ".draft")
        draft.write_bytes(_packed(piece, stretches, crcs))
        os.replace(draft, path)
        self._noted.append((piece.stop, path))

    def forget(self, shard: FinishedShard) -> None:
        """Removes what only a shard needed that is noted as finished."""
        for payload in self._drafts.glob(f"{Path(shard.entry.file).stem}.*.payload"):
            payload.unlink()
        for stop, path in self._noted:
            if stop <= shard.next_index:
                path.unlink()
        self._noted = [noted for noted in self._noted if noted[0] > shard.next_index]

    def clear(self, token: str) -> None:
        """Removes all that an earlier run left and this one, which the token names, has not taken over."""
        kept = {path for _, path in self._noted}
        for path in self._drafts.iterdir():
            if path not in kept and token not in path.name:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def resume(self, assembler: Assembler, begin: int) -> Iterator[tuple[Piece, list[FinishedShard]]]:
        """Places the pieces that an earlier run wrote, as if they had just been written.

        Their payload is copied, to files of this run: a worker of the earlier one may still be alive.

        Args:
            assembler: Puts them into shards.
            begin: The first record that is in no finished shard.

        Returns:
            Each piece, and the shards that it finishes; they follow one another from `begin` on.
        """
        for path in sorted(self._drafts.glob(f"{self._prefix}*{PIECE_SUFFIX}")):
            found = self._read(path, begin)
            if found is None:
                continue
            piece, first, payload = found
            stretches = assembler.place(piece.start, piece, begin)
            at = np.concatenate(([0], np.cumsum(piece.sizes[first:])))
            crcs = [
                write(each, [payload[at[each.first - first] : at[each.last - first]]]) for each in stretches
            ]
            self.note(piece, stretches, crcs)
            yield piece, assembler.written(piece.start)
            begin = piece.stop

    def _read(self, path: Path, begin: int) -> tuple[Piece, int, bytes] | None:
        """An entry's piece, if it goes on from `begin`; its first record to take, and their payload."""
        try:
            piece, stretches = _unpacked(path.read_bytes())
            if not piece.start <= begin < piece.stop:
                return None
            first = int(np.searchsorted(piece.indices, begin))
            payload = [
                self._payload(name, offset, int(piece.sizes[start:stop].sum()), crc)
                for name, offset, start, stop, crc in stretches
                if start >= first
            ]
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return None
        return piece, first, b"".join(payload)

    def _payload(self, name: str, offset: int, size_bytes: int, crc: int) -> bytes:
        """A stretch as it was written, from wherever the shard was on its way to being finished."""
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


def _packed(piece: Piece, stretches: Sequence[Stretch], crcs: Sequence[int]) -> bytes:
    """An entry: the checksum, the length of the header, the header in JSON, the columns."""
    columns = {"indices": piece.indices.tobytes(), "sizes": piece.sizes.tobytes(), "crcs": piece.crcs}
    columns |= {f"rows/{name}": rows for name, rows in piece.rows.items()}
    columns |= {f"lengths/{name}": lengths.tobytes() for name, lengths in piece.lengths.items()}
    header = json.dumps(
        {
            "start": piece.start,
            "stop": piece.stop,
            "failures": [asdict(failure) for failure in piece.failures],
            "stretches": [
                (stretch.path.name, stretch.offset, stretch.first, stretch.last, crc)
                for stretch, crc in zip(stretches, crcs, strict=True)
            ],
            "columns": {name: len(column) for name, column in columns.items()},
        }
    ).encode()
    content = header + b"".join(columns.values())
    return _PREFIX.pack(extend(0, content), len(header)) + content


def _unpacked(entry: bytes) -> tuple[Piece, list[Any]]:
    """What `_packed` put in.

    Raises:
        ValueError: The entry is torn.
    """
    crc, size = _PREFIX.unpack_from(entry)
    content = entry[_PREFIX.size :]
    if extend(0, content) != crc:
        raise ValueError("the entry is torn")
    header = json.loads(content[:size])
    columns: dict[str, bytes] = {}
    for name, length in header["columns"].items():
        columns[name] = content[size : size + length]
        size += length
    piece = Piece(
        start=header["start"],
        stop=header["stop"],
        indices=np.frombuffer(columns.pop("indices"), np.int64),
        sizes=np.frombuffer(columns.pop("sizes"), np.int64),
        rows={name[5:]: column for name, column in columns.items() if name.startswith("rows/")},
        lengths={
            name[8:]: np.frombuffer(column, np.int64)
            for name, column in columns.items()
            if name.startswith("lengths/")
        },
        crcs=columns["crcs"],
        failures=[Failure(**failure) for failure in header["failures"]],
    )
    return piece, header["stretches"]

"""What a measurement reads: whole small files, and records at random places in large ones."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

# A file up to this size is taken for one record, where the caller does not say how large one is; a larger one
# for a shard of records of this size. The largest photos of cameras are smaller, packed shards are larger.
_LARGEST_RECORD = 16 << 20
_RECORD_BYTES = 128 << 10

# How many stretches are chosen at most, and of how many large files, each of which stays open meanwhile.
_MOST_STRETCHES = 4096
_MOST_SHARDS = 32

# Records are read one in each window, because the kernel keeps pages in runs of up to this size.
_WINDOW_BYTES = 2 << 20

# What is read in one piece out of a large file, to see how fast it is read in order.
_RUN_BYTES = 16 << 20

# So many files are looked at even when time presses.
_FEWEST_FILES = 16


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a file that is read at once.

    Attributes:
        path: The file.
        offset: The first byte.
        size: How many bytes.
        is_whole: Whether it is a file that is opened, read and closed; else the file stays open.
    """

    path: str
    offset: int
    size: int
    is_whole: bool

    def page(self) -> Stretch:
        """Its first 4 KiB, read without opening the file for it."""
        return Stretch(self.path, self.offset, min(4096, self.size), False)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a measurement may read.

    Attributes:
        random: Stretches in random order.
        in_order: Stretches in the order of the files, beginning anywhere; of large files long ones.
        unread: Why files were left out, a sentence for each.
        looked_at: How many files were considered.
    """

    random: list[Stretch]
    in_order: list[Stretch]
    unread: list[str]
    looked_at: int


def choose(
    paths: Sequence[str | os.PathLike[str]],
    record_bytes: int | None,
    seed: int,
    is_late: Callable[[], bool] = lambda: False,
) -> Chosen:
    """Draws what to read, the same for the same files and seed.

    Args:
        paths: Files; those that are missing, empty, or no files are left out.
        record_bytes: Files of more than twice this size are shards of such records, all others records. None:
            files up to 16 MiB are records, larger ones are shards of records of 128 KiB.
        seed: Of the choice.
        is_late: Says when to look at no more files, once there are some.
    """
    rng = random.Random(seed)
    largest = _LARGEST_RECORD if record_bytes is None else 2 * record_bytes
    looked_at = 0
    unread: list[str] = []
    records: list[tuple[int, Stretch]] = []
    shards: list[tuple[str, int]] = []
    for index in rng.sample(range(len(paths)), min(len(paths), _MOST_STRETCHES)):
        if looked_at >= _FEWEST_FILES and is_late():
            break
        looked_at += 1
        path = os.fspath(paths[index])
        size = _size(path, unread)
        if size > largest:
            shards.append((path, size))
        elif size:
            records.append((index, Stretch(path, 0, size, True)))
    found = [stretch for _, stretch in records]
    in_order = [stretch for _, stretch in sorted(records, key=itemgetter(0))]
    begin = rng.randrange(len(in_order) or 1)
    in_order = in_order[begin:] + in_order[:begin]
    shards = rng.sample(shards, min(len(shards), _MOST_SHARDS))
    for path, size in shards:
        most = _MOST_STRETCHES // len(shards)
        found += _records(path, size, record_bytes or _RECORD_BYTES, most, rng)
        runs = range(-(-size // _RUN_BYTES))
        for run in sorted(rng.sample(runs, min(len(runs), 4))):
            offset = run * _RUN_BYTES
            in_order.append(Stretch(path, offset, min(_RUN_BYTES, size - offset), False))
    rng.shuffle(found)
    return Chosen(found, in_order, unread, looked_at)


def _size(path: str, unread: list[str]) -> int:
    """The size of a file that can be read; 0, with the reason added to `unread`, of any other."""
    try:
        told = os.stat(path)
    except OSError as error:
        unread.append(f"{path}: {error.strerror}")
        return 0
    if not stat.S_ISREG(told.st_mode):
        unread.append(f"{path}: is not a file")
        return 0
    if not os.access(path, os.R_OK):
        unread.append(f"{path}: may not be read")
        return 0
    if not told.st_size:
        unread.append(f"{path}: is empty")
    return told.st_size


def _records(path: str, size: int, record_bytes: int, most: int, rng: random.Random) -> list[Stretch]:
    """Records at random places, no two in one window; where windows are few, in windows of their own size."""
    window = max(record_bytes, _WINDOW_BYTES)
    if size // window < 64:
        window = record_bytes
    windows = range(size // window)
    found = []
    for place in rng.sample(windows, min(len(windows), most)):
        offset = place * window + rng.randrange(window - record_bytes + 1)
        found.append(Stretch(path, offset, record_bytes, False))
    return found

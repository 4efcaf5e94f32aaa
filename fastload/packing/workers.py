"""The processes that encode pieces, and the conversation with them.

The main process says which records to encode and, once it is known how large every earlier piece is,
where in a shard the payload belongs. A worker encodes on while it waits for that answer, and writes
the payload itself. It ends when its pipe closes, so none outlives a packing that was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.packing.piece import PIECE_LIMIT_BYTES, Piece, PieceEncoder, Recipe

# Encoded pieces that one worker may hold while it waits to learn where they belong. Two keep it busy
# (measured with pieces of 8 MB: a third changes nothing), and bound its memory at three pieces.
_HELD_PIECES = 2

# malloc.h of glibc; musl has no mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

# How much goes to the kernel at once. It takes pages for its cache as large as the write, and large ones
# are dear where memory is scattered, or lent to a virtual machine as it is touched: 10 000 photos took 1.2 s
# by 32 KB, 2.5 s by 256 KB, 3 s by whole pieces (Linux 6.18, ext4, medians); tar took 2.1 s by 64 KB and
# 1.1 s by the 10 KB that it is used to.
_WRITE_BYTES = 32 << 10
_SMALL_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Encode:
    """To a worker: encode the source's records start … stop - 1."""

    number: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where records first … last - 1 of a piece belong."""

    path: Path
    offset: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Place:
    """To a worker: write the payload of a piece that it holds."""

    number: int
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Encoded:
    """From a worker: a piece is encoded, its payload held."""

    number: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class Written:
    """From a worker: a piece's payload is written."""

    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """From a worker: the packing cannot go on."""

    error: FastloadError
    trace: str


@dataclass(slots=True)
class _Worker:
    process: Any
    connection: Connection
    held: set[int] = field(default_factory=set)


class WorkerPool:
    """A fixed number of encoding processes.

    Args:
        recipe: What they do.
        count: How many they are.
        workdir: A folder in which each makes one of its own for temporary files.
    """

    def __init__(self, recipe: Recipe, count: int, workdir: Path) -> None:
        context = multiprocessing.get_context()
        self._workers: list[_Worker] = []
        for number in range(count):
            ours, theirs = context.Pipe()
            # A forked worker inherits the ends of the pipes that belong to us; it must close them, or
            # no worker would ever see that we are gone.
            inherited = [worker.connection for worker in self._workers] + [ours]
            forked = context.get_start_method() == "fork"
            process = context.Process(
                target=_work,
                args=(recipe, theirs, workdir / f"worker-{number}", inherited if forked else []),
                name=f"fastload-pack-{number}",
                daemon=True,
            )
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    @property
    def count(self) -> int:
        """The number of workers."""
        return len(self._workers)

    def has_room(self) -> bool:
        """Whether some worker can take another piece."""
        return any(len(worker.held) < _HELD_PIECES for worker in self._workers)

    def encode(self, task: Encode) -> None:
        """Gives a piece to the worker that has the fewest."""
        worker = min(self._workers, key=lambda worker: len(worker.held))
        worker.held.add(task.number)
        self._send(worker, task)

    def place(self, place: Place) -> None:
        """Tells the worker that holds the piece where it belongs."""
        worker = next(worker for worker in self._workers if place.number in worker.held)
        self._send(worker, place)

    def events(self) -> Iterator[Encoded | Written]:
        """Waits for news and yields what has come.

        Raises:
            FastloadError: A worker failed, with its own error.
            PackError: A worker died.
        """
        ready = wait([worker.connection for worker in self._workers])
        for worker in self._workers:
            if worker.connection in ready:
                yield self._receive(worker)

    def close(self) -> None:
        """Ends every worker and waits for it."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.terminate()
            worker.process.join()

    def _send(self, worker: _Worker, message: Encode | Place) -> None:
        try:
            worker.connection.send(message)
        except OSError as error:
            raise self._death(worker) from error

    def _receive(self, worker: _Worker) -> Encoded | Written:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError) as error:
            raise self._death(worker) from error
        if isinstance(message, Failed):
            raise message.error from RuntimeError(message.trace)
        if isinstance(message, Written):
            worker.held.discard(message.number)
        assert isinstance(message, Encoded | Written)
        return message

    def _death(self, worker: _Worker) -> FastloadError:
        """Why a worker is gone: what it said last, if it said anything."""
        with contextlib.suppress(EOFError, OSError):
            while worker.connection.poll():
                message = worker.connection.recv()
                if isinstance(message, Failed):
                    return message.error
        worker.process.join(timeout=5)
        code = worker.process.exitcode
        return PackError(
            f"packing process {worker.process.pid} died (exit code {code}"
            f"{', killed: perhaps for want of memory' if code == -9 else ''}): "
            "the same command resumes; fewer --workers take less memory"
        )


def _work(recipe: Recipe, connection: Connection, workdir: Path, inherited: Sequence[Connection]) -> None:
    """The life of one worker."""
    # Ctrl-C reaches the whole group; the main process alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in inherited:
        other.close()
    _use_one_thread()
    _keep_freed_memory()
    try:
        workdir.mkdir(exist_ok=True)
        _serve(PieceEncoder(recipe, workdir), connection)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        with contextlib.suppress(OSError):  # nobody listens any more
            connection.send(Failed(_explained(error, workdir), traceback.format_exc()))


def _serve(encoder: PieceEncoder, connection: Connection) -> None:
    """Does what the main process says, until its pipe closes."""
    held: dict[int, list[Any]] = {}
    while True:
        message = connection.recv()
        if isinstance(message, Encode):
            piece, held[message.number] = encoder.encode(message.start, message.stop)
            connection.send(Encoded(message.number, piece))
        else:
            payload = held.pop(message.number)
            for stretch in message.stretches:
                _write(stretch, payload[stretch.first : stretch.last])
            connection.send(Written(message.number))


def _use_one_thread() -> None:
    """One thread a worker: there are as many workers as cores, and pools of threads can hang after a fork."""
    import cv2

    cv2.setNumThreads(0)
    os.environ["OMP_NUM_THREADS"] = "1"  # for a torch that is imported later, by the first resize
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _keep_freed_memory() -> None:
    """Lets glibc keep what a piece frees for the next one, instead of giving it back to the kernel.

    Otherwise every piece of 8 MB is faulted in anew, page by page: with `keep`, 12 of 52 µs a photo.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 4 * PIECE_LIMIT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, PIECE_LIMIT_BYTES)


def _explained(error: Exception, workdir: Path) -> FastloadError:
    """The error in a form that says what to do, and that any process can unpickle."""
    if isinstance(error, FastloadError):
        return error
    if isinstance(error, OSError):
        return PackError(
            f"{error.filename or workdir}: cannot be written ({error.strerror or error}): "
            "what is finished is kept, and the same command resumes"
        )
    if isinstance(error, MemoryError):
        return PackError(
            "a packing process ran out of memory: store smaller images, or pack with fewer workers"
        )
    return PackError(
        f"a packing process failed with {type(error).__name__} ({error}), which is a defect of fastload or "
        "of the source's own code: --debug, or the cause of this error, shows where"
    )


def _write(stretch: Stretch, buffers: list[Any]) -> None:
    """Writes buffers one behind the other at the stretch's place."""
    try:
        with stretch.path.open("r+b", buffering=0) as file:
            file.seek(stretch.offset)
            for block in _blocks(buffers):
                written = file.write(block)
                while written < len(block):  # the last write before a full disk takes a part alone
                    written += file.write(block[written:])
    except OSError as error:
        error.filename = str(stretch.path)
        raise


def _blocks(buffers: list[Any]) -> Iterator[memoryview]:
    """The buffers' bytes in blocks of a good size: large ones are cut, small ones joined."""
    small: list[Any] = []
    small_bytes = 0
    for buffer in buffers:
        if len(buffer) < _SMALL_BYTES:
            small.append(buffer)
            small_bytes += len(buffer)
            if small_bytes < _WRITE_BYTES:
                continue
        yield memoryview(b"".join(small))
        small, small_bytes = [], 0
        if len(buffer) >= _SMALL_BYTES:
            view = memoryview(buffer)
            yield from (view[at : at + _WRITE_BYTES] for at in range(0, len(view), _WRITE_BYTES))
    yield memoryview(b"".join(small))

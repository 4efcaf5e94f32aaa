"""The processes that encode pieces, and the conversation with them.

The main process says which records to encode and, once it is known how large every earlier piece is,
where in a shard the payload belongs. A worker encodes on while it waits for that answer, and writes
the payload itself. It ends when its pipe closes, whatever it is doing, so none outlives a packing that was
killed. The main process kills its workers: one that is stopped would not hear anything milder.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.packing.payload import Stretch, write
from fastload.packing.piece import PIECE_LIMIT_BYTES, Piece, PieceEncoder, Recipe
from fastload.packing.stopping import explained
from fastload.system import signals

# Encoded pieces that one worker may hold while it waits to learn where they belong. Two keep it busy
# (measured with pieces of 8 MB: a third changes nothing), and bound its memory at three pieces.
_HELD_PIECES = 2

# How often silent workers are looked at: one that died is not told by its pipe where a process that it
# started holds the other end.
_LOOK_EVERY_S = 1.0

# How long killed workers are waited for. They end at once, except in a read of a disk or file server that
# does not answer; torch waits as long for its own (MP_STATUS_CHECK_INTERVAL).
_ENDING_S = 5.0

# malloc.h of glibc; musl has no mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@dataclass(frozen=True, slots=True)
class Encode:
    """To a worker: encode the source's records start … stop - 1."""

    number: int
    start: int
    stop: int


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
    """From a worker: a piece's payload is written; the checksum of each of its stretches."""

    number: int
    crcs: tuple[int, ...]


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
        self._workers: list[_Worker] = []
        try:
            for number in range(count):
                self._start(number, recipe, workdir / f"worker-{number}")
        except BaseException:
            self.close()
            raise

    def _start(self, number: int, recipe: Recipe, workdir: Path) -> None:
        context = multiprocessing.get_context()
        forks = context.get_start_method() == "fork"
        ours, theirs = context.Pipe()
        # A forked worker inherits the ends of the pipes that belong to us; it must close them, or
        # no worker would ever see that we are gone.
        inherited = [worker.connection for worker in self._workers] + [ours] if forks else []
        process = context.Process(
            target=_work,
            args=(recipe, theirs, workdir, inherited),
            name=f"fastload-pack-{number}",
            daemon=True,
        )
        # Forking takes no time. Another start sends the recipe, which must not hold up Ctrl-C.
        with signals.waiting() if forks else contextlib.nullcontext():
            process.start()
            self._workers.append(_Worker(process, ours))
        theirs.close()

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
        connections = [worker.connection for worker in self._workers]
        while not (ready := wait(connections, _LOOK_EVERY_S)):
            for worker in self._workers:
                if not worker.process.is_alive() and not worker.connection.poll():
                    raise self._death(worker)
        for worker in self._workers:
            if worker.connection in ready:
                yield self._receive(worker)

    def close(self) -> None:
        """Ends every worker, whatever it is doing, within `_ENDING_S`; a second Ctrl-C changes nothing."""
        with signals.waiting():
            for worker in self._workers:
                worker.process.kill()
                worker.connection.close()
            end_s = time.monotonic() + _ENDING_S
            for worker in self._workers:
                worker.process.join(max(0.0, end_s - time.monotonic()))
                if worker.process.is_alive():
                    # It dies once its read returns. multiprocessing has no way to say that the end of this
                    # process is not to wait for that.
                    getattr(multiprocessing.process, "_children", set()).discard(worker.process)

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
    signals.of_a_worker()
    for other in inherited:
        other.close()
    _use_one_thread()
    _keep_freed_memory()
    try:
        workdir.mkdir(exist_ok=True)
        _serve(PieceEncoder(recipe, workdir), connection)
    except (BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        with contextlib.suppress(OSError):  # nobody listens any more
            connection.send(Failed(explained(error, workdir), traceback.format_exc()))


def _serve(encoder: PieceEncoder, connection: Connection) -> None:
    """Does what the main process says, until its pipe closes."""
    messages: queue.SimpleQueue[Encode | Place] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, messages), daemon=True).start()
    held: dict[int, list[Any]] = {}
    while True:
        message = messages.get()
        if isinstance(message, Encode):
            piece, held[message.number] = encoder.encode(message.start, message.stop)
            connection.send(Encoded(message.number, piece))
        else:
            payload = held.pop(message.number)
            crcs = [write(stretch, payload[stretch.first : stretch.last]) for stretch in message.stretches]
            connection.send(Written(message.number, tuple(crcs)))


def _listen(connection: Connection, messages: queue.SimpleQueue[Encode | Place]) -> None:
    """Takes messages as they come, and ends the process when its pipe closes.

    Were they left in the pipe while a piece is encoded and sent, both sides could wait for ever, each for the
    other to empty a full one; and nobody would see that the main process is gone.
    """
    with contextlib.suppress(EOFError, OSError):
        while True:
            messages.put(connection.recv())
    os._exit(1)


def _use_one_thread() -> None:
    """One thread a worker: there are as many workers as cores, and pools of threads can hang after a fork."""
    from fastload.images.opencv import cv2

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

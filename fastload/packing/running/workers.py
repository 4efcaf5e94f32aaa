"""Worker processes that encode chunks, their schedule and their messages.

The main process tells a worker which records to encode and, once it knows the sizes of all earlier chunks,
where to write the payload. Meanwhile the worker encodes the next chunk. A worker ends when its pipe closes,
whatever it is doing, so none outlives a main process that was killed. The main process ends its workers with
SIGKILL: a stopped process would not react to anything else.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
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
from multiprocessing.process import BaseProcess
from pathlib import Path

from fastload.errors import FastloadError, PackError
from fastload.packing.encoding.chunk import Chunk, ChunkEncoder, Recipe, WriteTask, write_payload
from fastload.shards.checksum import StoredRow
from fastload.sources.files import OUT_OF_DESCRIPTORS
from fastload.system import signals
from fastload.system.memory import keep_freed_memory

# Encoded chunks that one worker may hold until they are assigned to shards. Two keep it busy (measured with
# chunks of 8 MB: a third changes nothing), and limit its memory to three chunks.
_HELD_CHUNKS = 2

# Target size and time of a run, the records that a worker encodes in one task: large enough that messages
# cost little in comparison, small enough that progress is smooth and memory use bounded.
_RUN_BYTES = 8 << 20
_RUN_SECONDS = 0.25
_FIRST_RUN = 16

# Interval at which silent workers are checked: a dead worker's pipe and sentinel stay open as long as a
# process that it started holds them.
_CHECK_INTERVAL_S = 1.0

# How long to wait for killed workers. They end at once, except while reading from a disk or file server that
# does not answer; torch waits as long for its workers (MP_STATUS_CHECK_INTERVAL).
_JOIN_LIMIT_S = 5.0

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

RecordRange = tuple[int, int]
"""The source's records that a worker is to encode, [begin, end)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """From a worker, instead of a chunk or the start of a written one: packing cannot continue."""

    error: FastloadError
    trace: str


class Schedule:
    """Schedule that divides ascending ranges of records, [begin, end), into runs, lowest first."""

    def __init__(self, ranges: Sequence[RecordRange], workers: int) -> None:
        self._ranges = [*ranges]  # ascending, and therefore a heap
        self._left = sum(end - begin for begin, end in ranges)
        self._workers = workers
        self._records = 0
        self._bytes = 0
        self._seconds = 0.0

    def take(self) -> RecordRange | None:
        """Return the next run, [begin, end), which lies within one range; None if nothing is left."""
        if not self._ranges:
            return None
        begin, range_end = heapq.heappop(self._ranges)
        end = min(range_end, begin + self._run_length())
        self._left -= range_end - begin
        self.give_back(end, range_end)
        return begin, end

    def give_back(self, begin: int, end: int) -> None:
        """Take back the rest of a run whose chunk ended early because it grew too large."""
        if begin < end:
            heapq.heappush(self._ranges, (begin, end))
            self._left += end - begin

    def learn(self, records: int, size_bytes: int, seconds: float) -> None:
        """Record the cost of encoded records, from which the length of later runs follows."""
        self._records += records
        self._bytes += size_bytes
        self._seconds += seconds

    def _run_length(self) -> int:
        if self._records == 0:
            return _FIRST_RUN
        by_bytes = _RUN_BYTES * self._records // max(self._bytes, 1)
        by_time = int(_RUN_SECONDS * self._records / max(self._seconds, 1e-9))
        # A fraction of the remaining records, so that all workers stay busy to the end.
        by_share = self._left // (3 * self._workers)
        return max(1, min(by_bytes, by_time, by_share))


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Connection
    unwritten: dict[int, int] = field(default_factory=dict)  # runs, of which no chunk is written yet


class WorkerPool(contextlib.AbstractContextManager["WorkerPool"]):
    """Pool of encoding processes, each with a folder in `temporary`, which is on the disk of that name."""

    def __init__(self, recipe: Recipe, count: int, temporary: Path, disk: str) -> None:
        self._workers: list[_Worker] = []
        try:
            for number in range(count):
                self._start(number, recipe, temporary / f"worker-{number}", disk)
        except BaseException:
            self.close()
            raise

    def _start(self, number: int, recipe: Recipe, temporary: Path, disk: str) -> None:
        context = multiprocessing.get_context()
        forks = context.get_start_method() == "fork"
        connection, worker_end = context.Pipe()
        # A forked worker inherits the main process's ends of the pipes. It must close them, or no worker
        # would ever notice that the main process is gone.
        inherited = [worker.connection for worker in self._workers] + [connection] if forks else []
        process = context.Process(
            target=_work,
            args=(recipe, worker_end, temporary, disk, inherited),
            name=f"fastload-pack-{number}",
            daemon=True,
        )
        # Forking takes no time. Other start methods send the recipe, and Ctrl-C must not wait for that.
        with signals.deferred_signals() if forks else contextlib.nullcontext():
            process.start()
            self._workers.append(_Worker(process, connection))
        worker_end.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def events(self, schedule: Schedule) -> Iterator[Chunk | int]:
        """Let the workers encode all records of a schedule, and write each chunk once `write` says where.

        Yields encoded chunks, and the starts of chunks whose payload is written, until all are. Raises the
        error of a failed or dead worker.
        """
        while True:
            while _held(worker := min(self._workers, key=_held)) < _HELD_CHUNKS:
                if (run := schedule.take()) is None:
                    break
                worker.unwritten[run[0]] = run[1]
                self._send(worker, run)
            if not any(map(_held, self._workers)):
                return
            for worker in self._ready():
                message = self._receive(worker)
                if isinstance(message, Chunk):
                    schedule.give_back(message.stop, worker.unwritten[message.start])
                    schedule.learn(message.stop - message.start, message.size_bytes, message.seconds)
                else:
                    del worker.unwritten[message]
                yield message

    def write(self, task: WriteTask) -> None:
        """Give a task to the worker that holds the chunk."""
        worker = next(worker for worker in self._workers if task.start in worker.unwritten)
        self._send(worker, task)

    def close(self) -> None:
        """End every worker, whatever it is doing, within a few seconds; Ctrl-C does not interrupt this."""
        with signals.deferred_signals():
            for worker in self._workers:
                worker.process.kill()
                worker.connection.close()
            end_s = time.monotonic() + _JOIN_LIMIT_S
            for worker in self._workers:
                worker.process.join(max(0.0, end_s - time.monotonic()))
                if worker.process.is_alive():
                    # It ends once its read returns. multiprocessing has no public way to exclude a child
                    # from those that this process joins when it exits.
                    getattr(multiprocessing.process, "_children", set()).discard(worker.process)

    def _ready(self) -> list[_Worker]:
        """Wait until some workers have sent messages, and return these workers."""
        while not (ready := wait([worker.connection for worker in self._workers], _CHECK_INTERVAL_S)):
            for worker in self._workers:
                if not worker.process.is_alive() and not worker.connection.poll():
                    raise _death_error(worker)
        return [worker for worker in self._workers if worker.connection in ready]

    def _send(self, worker: _Worker, message: RecordRange | WriteTask) -> None:
        try:
            worker.connection.send(message)
        except OSError as error:
            raise _death_error(worker) from error

    def _receive(self, worker: _Worker) -> Chunk | int:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError) as error:
            raise _death_error(worker) from error
        if isinstance(message, Failed):
            raise message.error from RuntimeError(message.trace)
        assert isinstance(message, Chunk | int)
        return message


def _held(worker: _Worker) -> int:
    return len(worker.unwritten)


def describe_failure(error: Exception, where: object) -> FastloadError:
    """Return an error that names a path or machine, and that any process can unpickle."""
    if isinstance(error, FastloadError):
        return error
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else error
        if error.errno in OUT_OF_DESCRIPTORS:
            return PackError(
                f"{error.filename or where}: cannot be opened ({reason}): raise the limit ('ulimit -n 4096')"
            )
        # The file that was being written does not matter then.
        named = where if error.errno in _FULL else error.filename or where
        return PackError(f"{named}: cannot be written ({reason})")
    if isinstance(error, MemoryError):
        return PackError(
            "a packing process ran out of memory: store smaller images, or pack with fewer workers"
        )
    return PackError(
        f"a packing process failed with {type(error).__name__} ({error}), which is a defect of fastload or "
        "of the source's own code: --debug, or the cause of this error, shows where"
    )


def _death_error(worker: _Worker) -> FastloadError:
    """Return the last error of a dead worker, else one with its exit code."""
    with contextlib.suppress(EOFError, OSError):
        while worker.connection.poll():
            message = worker.connection.recv()
            if isinstance(message, Failed):
                return message.error
    worker.process.join(timeout=5)
    code = worker.process.exitcode
    cause = ", killed: perhaps for lack of memory" if code == -9 else ""
    return PackError(
        f"packing process {worker.process.pid} died (exit code {code}{cause}; fewer --workers take less "
        "memory)"
    )


def _work(
    recipe: Recipe, connection: Connection, temporary: Path, disk: str, inherited: Sequence[Connection]
) -> None:
    signals.set_worker_signals()
    for other in inherited:
        other.close()
    set_up_process()
    try:
        temporary.mkdir(exist_ok=True)
        _serve(ChunkEncoder(recipe, temporary), connection)
    except (BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        with contextlib.suppress(OSError):  # the main process may be gone
            connection.send(Failed(describe_failure(error, disk), traceback.format_exc()))


def _serve(encoder: ChunkEncoder, connection: Connection) -> None:
    """Carry out tasks until the thread that receives them ends the process."""
    tasks: queue.SimpleQueue[RecordRange | WriteTask] = queue.SimpleQueue()
    threading.Thread(target=_receive_tasks, args=(connection, tasks), daemon=True).start()
    payloads: dict[int, list[StoredRow]] = {}
    while True:
        task = tasks.get()
        if isinstance(task, WriteTask):
            write_payload(task, payloads.pop(task.start))
            connection.send(task.start)
        else:
            chunk, payloads[task[0]] = encoder.encode(*task)
            connection.send(chunk)


def _receive_tasks(connection: Connection, tasks: queue.SimpleQueue[RecordRange | WriteTask]) -> None:
    """Receive tasks as soon as they are sent, and end the process when its pipe closes.

    If tasks stayed in the pipe while a chunk is encoded and sent, each side could wait forever for the other
    to empty a full pipe; and nothing would notice that the main process is gone.
    """
    with contextlib.suppress(EOFError, OSError):
        while True:
            tasks.put(connection.recv())
    os._exit(1)


def set_up_process() -> None:
    """Limit OpenCV, OpenMP and torch to one thread, and keep freed memory for the next chunk.

    There are as many workers as cores, and thread pools can hang after a fork. If freed memory went back to
    the system, 12 of 52 µs per photo with `keep` would be page faults.
    """
    from fastload.images.opencv import cv2

    cv2.setNumThreads(0)
    os.environ["OMP_NUM_THREADS"] = "1"  # for torch, which the first resize may import later
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    keep_freed_memory()

"""Folders at URLs, through fsspec: files are read and written with retries, and errors are the library's own.

Transient failures (a lost connection, a stall, a truncated body, a server error) are retried after pauses
that double, for at most `timeout_s` without progress. Final ones (a missing file, a refusal) are raised at
once. Credentials and endpoints come from fsspec's own configuration and `storage_options`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastload.errors import DamageError, RemoteError, RemoteMissingError, printable
from fastload.shards.container import ShardEntry
from fastload.shards.http_stream import HttpStream
from fastload.shards.remote_errors import final_error, open_system, reason_of, split_query, text_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


# The longest time without progress, retries included, that a request may take.
_TIMEOUT_S = 60.0

# The share of the timeout after which a request counts as stalled, so that others can follow it.
_STALL_SHARE = 1 / 4
_FIRST_PAUSE_S = 0.1
_SILENCE_S = 1.0  # a user who has waited so long is told why (Nielsen, "Usability Engineering", 1993)

# Object stores serve one connection at some 100 MB/s, and advise to read large objects by several ranges
# of 8 to 16 MB at once (Amazon S3, "Performance guidelines"). Less is requested at once if, at the last rate,
# that would take more than a share of the time of a stall, so that the server may become slower. With the
# default timeout, 1 MB in 15 s (70 kB/s) is the slowest that works.
_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4
_LEAST_BYTES = 1 << 20
_PARTS_SHARE = 1 / 4

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::|://)")

T = TypeVar("T")

_log = logging.getLogger(__name__)


def is_url(path: object) -> bool:
    """Return True for a URL such as `s3://bucket/photos.fl`; False for a path of this machine."""
    return isinstance(path, str) and _URL.match(path) is not None


class RemoteFolder:
    """A folder at a URL of any protocol that fsspec knows. It can be pickled, and used after a fork.

    Attributes:
        url: Its URL, without a slash at the end, and without a query, which may be secret.
        storage_options: Arguments of fsspec's file system, such as `key`, `secret` and `endpoint_url`.
        timeout_s: The longest time without progress, retries included, that a request may take.

    Raises:
        LibraryMissingError: fsspec, or the package for the protocol, is not installed.
        OptionError: fsspec does not know the protocol, or refuses an option; or the URL is one file's alone.
    """

    def __init__(
        self, url: str, storage_options: Mapping[str, object] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.url, self._query = split_query(_URL.sub(lambda found: found[0].lower(), url, count=1))
        self.storage_options = dict(storage_options or {})
        self.timeout_s = timeout_s
        self._opened: tuple[int, AbstractFileSystem, str] | None = None
        self._ignores_ranges: bool | None = None if self.url.startswith("http") else False  # None: unknown
        # Of the last parts; 0: unknown.
        self._bytes_per_s = 0.0
        self._stopped = threading.Event()
        self._requests: set[concurrent.futures.Future[Any]] = set()
        self._system()  # raises for a protocol that cannot be used

    def __getstate__(self) -> dict[str, object]:
        names = ("url", "_query", "storage_options", "timeout_s", "_ignores_ranges")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        RemoteFolder.__init__(self, state["url"], state["storage_options"], state["timeout_s"])
        self.__dict__.update(state)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"RemoteFolder({self.url!r})"  # without the options, which may hold secrets

    def __truediv__(self, name: str) -> str:
        """Return the URL of a file in the folder."""
        return f"{self.url}/{name}"

    def stoppable(self) -> RemoteFolder:
        """Return the same folder, with the same asynchronous client, whose own requests `stop` ends."""
        folder = copy.copy(self)
        if self._system()[0].async_impl:
            folder._opened = self._opened
        return folder

    def stop(self) -> None:
        """End all requests of other threads, and refuse later ones, with RemoteError."""
        self._stopped.set()
        for request in list(self._requests):
            request.cancel()

    def pause(self, seconds: float) -> None:
        """Wait; raise RemoteError once requests are stopped."""
        if self._stopped.wait(seconds):
            raise RemoteError(f"{self}: the requests were stopped")

    def read(self, name: str) -> bytes:
        """Return the content of a file that fits into memory easily."""
        return self._retried(name, lambda: bytes(self._call("cat_file", self._path(name))))

    def read_ranges(self, entry: ShardEntry, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of a shard from `begin` to `end`, for each (begin, end), by concurrent requests.

        Like `parts`, raises DamageError if the shard has become shorter.
        """
        return self._retried(entry.file, lambda: self._ranges(entry.file, ranges), entry)

    def parts(self, entry: ShardEntry) -> Generator[bytes, None, None]:
        """Yield a shard in parts of some MB; a retry requests only those that are missing."""
        name, size_bytes = entry.file, entry.size_bytes
        done = 0
        if self.ignores_ranges(entry):
            yield from self._streamed(entry)
            return
        while done < size_bytes:
            for part in self._retried(name, partial(self._parts, name, done, size_bytes), entry):
                done += len(part)
                yield part

    def ignores_ranges(self, entry: ShardEntry) -> bool:
        """Return True if the server sends a complete file instead of a range, as simple HTTP servers do.

        The first call asks it for the first byte of a shard, and reads no more.
        """
        if self._ignores_ranges is None:
            name = entry.file
            self._ignores_ranges = self._retried(name, lambda: self._is_range_ignored(name), entry)
        return self._ignores_ranges

    def size_of(self, name: str) -> int | None:
        """Return a file's size now; None if the server does not say."""
        return self._retried(name, lambda: self._size_of(name))

    def require_unchanged(self, entry: ShardEntry) -> None:
        """Raise DamageError if a shard has another size than the manifest lists, by one request.

        A failure of this request is ignored: it is made for a shard that could not be read.
        """
        found = None
        with contextlib.suppress(Exception):
            found = self._size_of(entry.file)
        if found not in (None, entry.size_bytes):
            raise changed(self, entry, f"{found:,} bytes")

    def _size_of(self, name: str) -> int | None:
        size = self._call("info", self._path(name)).get("size")
        return None if size is None else int(size)

    def names(self) -> list[str]:
        """Return the sorted names of the folder's entries; none if there is no such folder."""
        try:
            found: list[str] = self._retried("", lambda: self._call("ls", self._path(""), detail=False))
        except RemoteMissingError:
            return []
        return sorted({path.rstrip("/").rpartition("/")[2] for path in found} - {""})

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file; in an object store, in one step."""
        self._retried(name, lambda: self._call("pipe_file", self._path(name), data))

    def upload(self, name: str, path: str | os.PathLike[str]) -> None:
        """Copy a file of this machine to the folder, or replace one there."""
        # Progress may be reported only at the end (s3fs, up to 100 MB): allow the slowest rate of reading.
        limit_s = self.timeout_s * (1 + _STALL_SHARE * os.path.getsize(path) / _LEAST_BYTES)
        self._retried(
            name, lambda: self._call("put_file", os.fspath(path), self._path(name), limit_s=limit_s)
        )

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        try:
            self._retried(name, lambda: self._call("rm_file", self._path(name)))
        except RemoteMissingError:
            return

    def clear(self) -> None:
        """Remove all files of the folder, and the folder if it is then empty."""
        for name in self.names():
            self.remove(name)
        if not (system := self._system()[0]).async_impl:
            with contextlib.suppress(OSError):
                system.rmdir(self._path(""))

    def _path(self, name: str) -> str:
        return f"{self._system()[1]}/{name}".rstrip("/") + self._query

    def _system(self) -> tuple[AbstractFileSystem, str]:
        """Return fsspec's file system, which each process opens anew, and the folder's path in it."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), *open_system(self.url, self.storage_options))
        return self._opened[1:]

    def _ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        path = self._path(name)
        begins, ends = [begin for begin, _ in ranges], [end for _, end in ranges]
        found: list[Any] = self._call("cat_ranges", [path] * len(ranges), begins, ends, on_error="return")
        for position, (begin, end) in enumerate(ranges):
            part = found[position]
            if isinstance(part, BaseException):
                raise part
            if len(part) != end - begin:
                raise EOFError(f"{len(part):,} bytes came in place of {end - begin:,}")
        return found

    def _is_range_ignored(self, name: str) -> bool:
        stream = self._requested(name, {"Range": "bytes=0-0"})
        try:
            if stream.is_range:
                self._run(stream.read(1))  # so that the connection is used again
        finally:
            self._run(stream.close())
        return not stream.is_range

    def _streamed(self, entry: ShardEntry) -> Iterator[bytes]:
        """Yield a shard from one request; a retry drops what came before."""
        stream: HttpStream | None = None
        done = 0

        def next_part() -> bytes:
            nonlocal stream
            if stream is None:
                stream = self._requested(entry.file)
            try:
                while stream.done < done:
                    self._run(stream.read(min(_LEAST_BYTES, done - stream.done)))
                return self._run(stream.read(min(_LEAST_BYTES, entry.size_bytes - done)))
            except BaseException:
                self._run(stream.close())
                stream = None
                raise

        try:
            while done < entry.size_bytes:
                part = self._retried(entry.file, next_part, entry)
                done += len(part)
                yield part
        finally:
            if stream is not None:
                self._run(stream.close())

    def _requested(self, name: str, headers: Mapping[str, str] | None = None) -> HttpStream:
        return self._run(HttpStream.requested(self._system()[0], self._path(name), headers or {}))

    def _parts(self, name: str, begin: int, end: int) -> list[bytes]:
        """Return the next parts of a file, as many as the server is likely to send in a short time."""
        wanted = int(self._bytes_per_s * self.timeout_s * _STALL_SHARE * _PARTS_SHARE)
        end = min(end, begin + max(_LEAST_BYTES, min(wanted, _PART_BYTES * _PARTS_AT_ONCE)))
        bounds = range(begin, end, _PART_BYTES)
        begun = time.monotonic()
        found = self._ranges(name, [(each, min(end, each + _PART_BYTES)) for each in bounds])
        if end - begin >= _LEAST_BYTES:  # the end of a file may be too short to tell
            self._bytes_per_s = (end - begin) / max(time.monotonic() - begun, 1e-6)
        return found

    def _retried(self, name: str, attempt: Callable[[], T], entry: ShardEntry | None = None) -> T:
        """Return the result of `attempt()`, which is retried; raise an error that is final.

        For a shard, raise DamageError if it is found not to be that of the entry.
        """
        begun = time.monotonic()
        number, pause_s, is_told = 0, _FIRST_PAUSE_S, False
        while True:
            self.pause(0)
            try:
                return attempt()
            except (concurrent.futures.CancelledError, asyncio.CancelledError) as error:
                raise RemoteError(f"{self}: the requests were stopped") from error
            except Exception as error:
                reason = reason_of(error)
                refusal = final_error(self / name, reason, bool(self._query))
                if entry is not None and (refusal is not None or isinstance(reason, EOFError)):
                    self.require_unchanged(entry)
                if refusal is not None:
                    raise refusal from error
                self._bytes_per_s /= 4  # so that the next parts are smaller
                # Random, so that clients that failed together do not retry together.
                wait_s = pause_s * random.uniform(0.5, 1.5)
                spent_s = time.monotonic() - begun
                if spent_s + wait_s >= self.timeout_s:
                    raise RemoteError(
                        f"{self / name}: {number + 1} attempts failed in {spent_s:.0f} s, the last with "
                        f"{text_of(reason)}: check that the server can be reached from this machine, and "
                        "begin again: complete files are kept"
                    ) from error
                if spent_s >= _SILENCE_S and not is_told:
                    is_told, limit = True, f"for up to {self.timeout_s:.0f} s"
                    _log.warning(printable(f"{self / name}: {text_of(reason)}: trying again {limit}"))
            self.pause(wait_s)
            number, pause_s = number + 1, 2 * pause_s

    def _call(self, method: str, *args: Any, limit_s: float | None = None, **options: Any) -> Any:
        """Call a method of the file system; raise TimeoutError after `limit_s`, or the time of a stall."""
        system, _ = self._system()
        if method in ("info", "ls"):
            system.invalidate_cache()
        if not system.async_impl:
            # Of fsspec's file systems, those of object stores, which have no folders, are asynchronous.
            if method in ("pipe_file", "put_file"):
                system.makedirs(str(args[method == "put_file"]).rpartition("/")[0], exist_ok=True)
            return getattr(system, method)(*args, **options)  # with timeouts of its own, if any
        return self._run(getattr(system, f"_{method}")(*args, **options), limit_s)

    def _run(self, coroutine: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        """Return a coroutine's result; raise TimeoutError after `limit_s`, or the time of a stall."""
        limit_s = self.timeout_s * _STALL_SHARE if limit_s is None else limit_s
        loop = self._system()[0].loop
        request = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, limit_s), loop)
        self._requests.add(request)
        try:
            return request.result()
        finally:
            request.cancel()  # if this thread was interrupted
            self._requests.discard(request)


def changed(remote: RemoteFolder, entry: ShardEntry, found: str) -> DamageError:
    """Return the error for a remote shard that is not the one that the manifest lists."""
    return DamageError(
        f"{remote / entry.file}: the manifest says {entry.size_bytes:,} bytes and checksum {entry.crc32c}, "
        f"the server has {found}: the dataset was replaced or damaged since it was opened: open it again, or "
        "upload it again"
    )

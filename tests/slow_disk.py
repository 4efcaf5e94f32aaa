"""A slow disk for tests: a folder mounted again through FUSE, with a given bandwidth and latency.

    with slow_disk(folder, bytes_per_s=4e6, latency_s=0.02) as mount:
        (mount / "first.jpg").read_bytes()  # takes 20 ms, and its size / 4 MB/s

Only reads that reach the disk are slow. The kernel's page cache works as on any disk and survives the closing
of a file, so the second read of a file is fast, and posix_fadvise(DONTNEED) makes it slow again. Reads share
the bandwidth one after the other; their latencies overlap, as those of a file server do. Names and sizes cost
nothing. The kernel asks for at most 128 KiB at a time, and reads ahead as much: the first read of a file
without POSIX_FADV_RANDOM fetches up to 128 KiB, even for a single byte, and more follows in the background.
The mount is read-only.

The server is a process that ends with the test, however that ends.
"""

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools import require_tool, skip

_START_S = 20.0
_REQUEST_BYTES = 128 << 10
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@contextlib.contextmanager
def slow_disk(folder: str | os.PathLike[str], bytes_per_s: float, latency_s: float) -> Iterator[Path]:
    """Mount a folder as a slow disk, and unmount it at the end; skip the test if FUSE cannot be used.

    `bytes_per_s` is shared by all reads, `latency_s` is added to each. Files may be added to the folder and
    changed, not removed.
    """
    fusermount = require_tool("fusermount3")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs to open /dev/fuse")
    mount = tempfile.mkdtemp(prefix="fastload-slow-disk-")
    command = [sys.executable, __file__, os.path.abspath(folder), mount, str(bytes_per_s), str(latency_s)]
    with tempfile.TemporaryFile("w+") as output:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            end_s = time.monotonic() + _START_S
            while not os.path.ismount(mount):
                if server.poll() is not None or time.monotonic() > end_s:
                    output.seek(0)
                    skip(f"FUSE does not mount here: {output.read().strip()[-300:]}")
                time.sleep(0.01)
            yield Path(mount)
        finally:
            # Lazily: a file that a failed test left open must not keep the mount.
            subprocess.run([fusermount, "-u", "-z", "-q", mount], check=False, timeout=20)
            # Without a server, reads that still wait for it fail at once.
            server.kill()
            server.wait()
            os.rmdir(mount)


def _serve(folder: str, mount: str, bytes_per_s: float, latency_s: float) -> None:
    import mfusepy

    class SlowFolder(mfusepy.Operations):
        """The files of a folder, each read with a delay."""

        use_ns = True

        def __init__(self) -> None:
            self._lock = threading.Lock()
            self._free_at_s = 0.0

        def init_with_config(self, connection, config):
            connection.max_read = _REQUEST_BYTES  # libfuse 3 needs it here as well as when mounting

        def getattr(self, path, fh=None):
            found = os.lstat(folder + path)
            names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
            times = {name: getattr(found, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
            return {name: getattr(found, name) for name in names} | times

        def readdir(self, path, fh):
            return [".", "..", *os.listdir(folder + path)]

        def readlink(self, path):
            return os.readlink(folder + path)

        def open(self, path, flags):
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise mfusepy.FuseOSError(errno.EROFS)
            return os.open(folder + path, os.O_RDONLY)

        def release(self, path, fh):
            os.close(fh)
            return 0

        def read(self, path, size, offset, fh):
            data = os.pread(fh, size, offset)
            with self._lock:
                self._free_at_s = max(time.monotonic(), self._free_at_s) + len(data) / bytes_per_s
                ready_at_s = self._free_at_s + latency_s
            time.sleep(max(0.0, ready_at_s - time.monotonic()))
            return data

    # The server must not outlive a test run that is killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    mfusepy.FUSE(
        SlowFolder(),
        mount,
        foreground=True,
        fsname="slow_disk",
        subtype="slow_disk",
        ro=True,
        kernel_cache=True,
        attr_timeout=3600,
        entry_timeout=3600,
        max_read=_REQUEST_BYTES,
    )


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))

"""Windows' locks of ranges of bytes, by Linux's locks of open file descriptions."""

import fcntl
import os
import struct

LK_NBLCK = 2


def locking(descriptor: int, mode: int, size_bytes: int) -> None:
    """Lock bytes from the file's position on; raise OSError if another descriptor has locked any of them."""
    assert mode == LK_NBLCK
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    # Linux wants the right to write for a lock of writers; that of readers conflicts with these, too.
    is_read_only = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    kind = fcntl.F_RDLCK if is_read_only else fcntl.F_WRLCK
    fcntl.fcntl(
        descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, position, size_bytes, 0)
    )

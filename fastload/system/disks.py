"""File system of a path: in memory, on the network, in user space, or on a local disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fastload.system._proc import PROC_SELF, mounts

DiskKind: TypeAlias = Literal["memory", "network", "fuse", "unknown"]

_KINDS: dict[str, DiskKind] = {
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"), "memory"),
    **dict.fromkeys(("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs"), "network"),
    **dict.fromkeys(("nfs4", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"), "network"),
    **dict.fromkeys(("fuse", "fuseblk"), "fuse"),
}


@dataclass(frozen=True, slots=True)
class Disk:
    """The type of a file system ("ext4", "overlay", "nfs4", "unknown"), and its kind.

    A local disk is "unknown": only measuring shows how fast it is.
    """

    file_system: str
    kind: DiskKind


def disk_of(path: str | os.PathLike[str], proc_self: Path = PROC_SELF) -> Disk:
    """Return the disk of a path, which need not exist yet."""
    place = os.path.realpath(path)
    above = [each for each in mounts(proc_self) if os.path.commonpath((each.point, place)) == each.point]
    # The longest mount point; of two mounts on one point, the later hides the earlier.
    mount = max(reversed(above), key=lambda each: len(each.point), default=None)
    if mount is None:
        return Disk("unknown", "unknown")
    return Disk(mount.file_system, _KINDS.get(mount.file_system.partition(".")[0], "unknown"))

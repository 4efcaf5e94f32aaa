"""The kind of disk beneath a path: its file system and its device.

A network disk that is attached as a local device (a cloud volume) counts as that device: only its measured
speed shows the difference.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fastload.system._mounts import Mount, mounts

DiskKind: TypeAlias = Literal["memory", "nvme", "ssd", "hdd", "network", "fuse", "unknown"]

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_OVER_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs"}
    | {"pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"}
)


@dataclass(frozen=True, slots=True)
class Disk:
    """The type of a file system ("ext4", "overlay", "nfs4", "unknown") and the kind of disk beneath it."""

    file_system: str
    kind: DiskKind


def disk_of(
    path: str | os.PathLike[str],
    proc_self: Path = Path("/proc/self"),
    dev_block: Path = Path("/sys/dev/block"),
) -> Disk:
    """Return the disk beneath a path, which need not exist yet.

    The kind of a container's own file system (overlay) is "unknown": its layers are out of sight there.
    """
    place = os.path.realpath(path)
    above = [each for each in mounts(proc_self) if os.path.commonpath((each.point, place)) == each.point]
    # The longest mount point; of two mounts on one point, the later hides the earlier.
    mount = max(reversed(above), key=lambda each: len(each.point), default=None)
    if mount is None:
        return Disk("unknown", "unknown")
    return Disk(mount.file_system, _kind(mount, dev_block))


def _kind(mount: Mount, dev_block: Path) -> DiskKind:
    name = mount.file_system
    if name in _IN_MEMORY:
        return "memory"
    if name in _OVER_NETWORK:
        return "network"
    if name.partition(".")[0] in ("fuse", "fuseblk"):
        return "fuse"
    return _kind_of_device(dev_block / _device_number(mount))


def _device_number(mount: Mount) -> str:
    """Return the number of the device; btrfs gives its files another one, so the device itself is asked."""
    if not mount.number.startswith("0:"):
        return mount.number
    try:
        status = os.stat(mount.source)
    except OSError:
        return mount.number
    is_device = stat.S_ISBLK(status.st_mode)
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if is_device else mount.number


def _kind_of_device(link: Path) -> DiskKind:
    if not link.exists():
        return "unknown"
    device = link.resolve()
    if not (device / "queue").is_dir():  # a partition: the disk is the folder around it
        device = device.parent
    # LVM, LUKS and RAID use other devices, and are as slow as the slowest.
    beneath = sorted((device / "slaves").iterdir()) if (device / "slaves").is_dir() else []
    if beneath:
        kinds = {_kind_of_device(slave) for slave in beneath}
        slowest_first: tuple[DiskKind, ...] = ("unknown", "hdd", "ssd", "nvme", "memory")
        return next(kind for kind in slowest_first if kind in kinds)
    if device.name.startswith(("ram", "zram")):
        return "memory"
    if device.name.startswith("nvme"):
        return "nvme"
    try:
        is_rotational = (device / "queue" / "rotational").read_text().strip() != "0"
    except OSError:
        return "unknown"
    # virtio reports "rotational" for every disk unless the host knows better, so there it means nothing.
    return ("unknown" if device.name.startswith("vd") else "hdd") if is_rotational else "ssd"

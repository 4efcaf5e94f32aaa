"""What is known of the disk beneath a path: the file system, the device and its kind.

A network disk that the machine sees as a local one (a cloud's volumes) is told as what it pretends to be:
only its speed says what it is.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fastload.system.mounts import Mount, mounts

DiskKind: TypeAlias = Literal["memory", "nvme", "ssd", "hdd", "network", "fuse", "unknown"]

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_OVER_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs"}
    | {"pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"}
)


@dataclass(frozen=True, slots=True)
class Disk:
    """What lies beneath a path.

    Attributes:
        file_system: Its type ("ext4", "overlay", "nfs4", "fuse.sshfs"); "unknown" where not told.
        mount: Where it is mounted; "" where unknown.
        device: What is mounted there: a device, "server:/folder", or any word; "" where unknown.
        kind: "memory", "nvme", "ssd", "hdd", "network", "fuse" or "unknown".
    """

    file_system: str
    mount: str
    device: str
    kind: DiskKind


def disk_of(
    path: str | os.PathLike[str],
    proc_self: Path = Path("/proc/self"),
    dev_block: Path = Path("/sys/dev/block"),
) -> Disk:
    """Says on what a path lies; of a path that does not exist yet, the nearest folder above it tells.

    In a container's own file system (overlay) the kind is that of the layer in which the path lies, where
    that can be seen from here, as it usually cannot.

    Args:
        path: A file or a folder.
        proc_self: The folder `/proc/self`, or one like it, that lists what is mounted.
        dev_block: The folder `/sys/dev/block`, or one like it, that describes devices by number.
    """
    place = os.path.realpath(path)
    mounted = mounts(proc_self)
    mount = _mount_of(place, mounted)
    if mount is None:
        return Disk("unknown", "", "", "unknown")
    kind = _kind(place, mount, mounted, dev_block)
    return Disk(mount.file_system, mount.point, mount.source, kind)


def _mount_of(place: str, mounted: list[Mount]) -> Mount | None:
    """The mount with the longest point above a path; of two on one point, the later hides the earlier."""
    above = [mount for mount in mounted if os.path.commonpath((mount.point, place)) == mount.point]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def _kind(place: str, mount: Mount, mounted: list[Mount], dev_block: Path) -> DiskKind:
    name = mount.file_system
    if name in _IN_MEMORY:
        return "memory"
    if name in _OVER_NETWORK:
        return "network"
    if name.partition(".")[0] in ("fuse", "fuseblk"):
        return "fuse"
    if name == "overlay":
        layer = _layer(place, mount)
        beneath = None if layer is None else _mount_of(layer, mounted)
        # An overlay on an overlay is left alone: one that names itself would never end.
        if layer is None or beneath is None or beneath.file_system == "overlay":
            return "unknown"
        return _kind(layer, beneath, mounted, dev_block)
    return _kind_of_device(dev_block / _number(mount))


def _layer(place: str, mount: Mount) -> str | None:
    """The folder beneath an overlay that holds a path, else the writable one; None if out of sight."""
    options = [option.partition("=") for option in mount.options.split(",")]
    upper = [value for name, _, value in options if name == "upperdir"]
    lower = [part for name, _, value in options if name == "lowerdir" for part in value.split(":")]
    lower += [value for name, _, value in options if name == "lowerdir+"]
    layers = [os.path.realpath(layer) for layer in upper + lower if os.path.isdir(layer)]
    inside = os.path.relpath(place, mount.point)
    holding = (layer for layer in layers if os.path.lexists(os.path.join(layer, inside)))
    return next(holding, layers[0] if layers else None)


def _number(mount: Mount) -> str:
    """A device's number; btrfs gives its files another, so there the device itself is asked."""
    if not mount.number.startswith("0:"):
        return mount.number
    try:
        told = os.stat(mount.source)
    except OSError:
        return mount.number
    is_device = stat.S_ISBLK(told.st_mode)
    return f"{os.major(told.st_rdev)}:{os.minor(told.st_rdev)}" if is_device else mount.number


def _kind_of_device(link: Path) -> DiskKind:
    if not link.exists():
        return "unknown"
    device = link.resolve()
    if not (device / "queue").is_dir():  # A partition: the disk is the folder around it.
        device = device.parent
    # LVM, LUKS and RAID lie on other devices, and are as slow as the slowest.
    beneath = sorted((device / "slaves").iterdir()) if (device / "slaves").is_dir() else []
    if beneath:
        kinds = {_kind_of_device(slave) for slave in beneath}
        worst: tuple[DiskKind, ...] = ("unknown", "hdd", "ssd", "nvme", "memory")
        return next(kind for kind in worst if kind in kinds)
    if device.name.startswith(("ram", "zram")):
        return "memory"
    if device.name.startswith("nvme"):
        return "nvme"
    try:
        is_rotational = (device / "queue" / "rotational").read_text().strip() != "0"
    except OSError:
        return "unknown"
    # virtio says "rotational" unless the host knows better: there it means nothing.
    return ("unknown" if device.name.startswith("vd") else "hdd") if is_rotational else "ssd"

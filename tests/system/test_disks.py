"""The kind of disk beneath a path is what the kernel lists: a file system, a device."""

import sys
from pathlib import Path

import pytest

from fastload.system.disks import Disk, disk_of
from tests.slow_disk import slow_disk


class System:
    """A `/proc/self/mountinfo` and a `/sys` of block devices, as the kernel lays them out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc, self.dev_block = root / "proc", root / "sys" / "dev" / "block"
        self.proc.mkdir()
        self.dev_block.mkdir(parents=True)
        self.mount("/", "ext4", "8:1", "/dev/root")

    def mount(self, point, kind, number="0:40", source="none", options="rw"):
        shown = str(point).replace(" ", "\\040")
        with (self.proc / "mountinfo").open("a") as file:
            file.write(f"31 23 {number} / {shown} rw,nosuid shared:9 - {kind} {source} {options}\n")

    def device(self, number, name, rotational, slaves=()):
        folder = self.root / "sys" / "devices" / name
        (folder / "queue").mkdir(parents=True)
        (folder / "queue" / "rotational").write_text(f"{rotational}\n")
        (folder / "slaves").mkdir()
        for slave in slaves:
            (folder / "slaves" / slave.name).symlink_to(slave)
        (self.dev_block / number).symlink_to(folder)
        return folder

    def partition(self, number, disk):
        folder = disk / f"{disk.name}1"
        folder.mkdir()
        (folder / "partition").write_text("1\n")
        (self.dev_block / number).symlink_to(folder)

    def disk_of(self, path):
        return disk_of(path, self.proc, self.dev_block)


@pytest.fixture
def system(tmp_path):
    return System(tmp_path)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data" / "photos").mkdir(parents=True)
    return tmp_path / "data"


class TestMounts:
    def test_unknown_without_a_list_of_mounts(self, tmp_path):
        assert disk_of(tmp_path, tmp_path / "missing") == Disk("unknown", "unknown")

    def test_nearest_mount_above_counts(self, system, data):
        system.mount(data, "nfs4", source="server:/data")
        assert system.disk_of(data / "photos") == Disk("nfs4", "network")
        assert system.disk_of(data.parent).file_system == "ext4"

    def test_mount_with_a_similar_name_does_not_count(self, system, data):
        system.mount(f"{data}/pho", "nfs4")
        assert system.disk_of(data / "photos").file_system == "ext4"

    def test_later_mount_hides_an_earlier_one(self, system, data):
        system.mount(data, "nfs4")
        system.mount(data, "tmpfs")
        assert system.disk_of(data).file_system == "tmpfs"

    def test_path_that_does_not_exist_yet_has_the_disk_of_the_folder_above(self, system, data):
        system.mount(data, "tmpfs")
        assert system.disk_of(data / "not" / "yet").kind == "memory"

    def test_link_is_followed(self, system, data, tmp_path):
        system.mount(data, "tmpfs")
        (tmp_path / "link").symlink_to(data / "photos")
        assert system.disk_of(tmp_path / "link").kind == "memory"

    def test_mount_point_with_a_space_is_found(self, system, tmp_path):
        (tmp_path / "my data").mkdir()
        system.mount(tmp_path / "my data", "tmpfs")
        assert system.disk_of(tmp_path / "my data").kind == "memory"


class TestKind:
    @pytest.mark.parametrize(
        ("file_system", "kind"),
        [
            ("tmpfs", "memory"),
            ("ramfs", "memory"),
            ("nfs", "network"),
            ("cifs", "network"),
            ("lustre", "network"),
            ("ceph", "network"),
            ("9p", "network"),
            ("fuse.sshfs", "fuse"),
            ("fuseblk", "fuse"),
            ("zfs", "unknown"),
            ("overlay", "unknown"),
        ],
    )
    def test_file_system_without_a_device_is_known_by_its_name(self, system, data, file_system, kind):
        system.mount(data, file_system)
        assert system.disk_of(data).kind == kind

    @pytest.mark.parametrize(
        ("name", "rotational", "kind"),
        [
            ("nvme0n1", 0, "nvme"),
            ("sda", 0, "ssd"),
            ("sda", 1, "hdd"),
            ("vda", 1, "unknown"),  # virtio reports so for every disk
            ("vda", 0, "ssd"),
            ("zram0", 0, "memory"),
        ],
    )
    def test_device_is_known_by_its_name_and_whether_it_rotates(self, system, data, name, rotational, kind):
        system.mount(data, "ext4", "259:5", "/dev/x")
        system.device("259:5", name, rotational)
        assert system.disk_of(data).kind == kind

    def test_partition_has_the_kind_of_its_disk(self, system, data):
        system.mount(data, "xfs", "8:2", "/dev/sda1")
        system.partition("8:2", system.device("8:0", "sda", 1))
        assert system.disk_of(data) == Disk("xfs", "hdd")

    def test_device_on_several_others_is_as_slow_as_the_slowest(self, system, data):
        fast, slow = system.device("259:0", "nvme0n1", 0), system.device("8:0", "sda", 1)
        system.device("253:0", "dm-0", 0, [fast])
        system.device("9:0", "md0", 0, [fast, slow])
        system.mount(data, "ext4", "253:0")
        assert system.disk_of(data).kind == "nvme"
        system.mount(data, "ext4", "9:0")
        assert system.disk_of(data).kind == "hdd"

    def test_device_that_sysfs_does_not_know_is_unknown(self, system, data):
        system.mount(data, "ext4", "7:77")
        assert system.disk_of(data).kind == "unknown"


@pytest.mark.skipif(sys.platform != "linux", reason="mountinfo is Linux's")
class TestThisMachine:
    def test_file_system_is_known(self, tmp_path):
        assert disk_of(tmp_path).file_system != "unknown"

    def test_fuse_is_recognised(self, tmp_path):
        with slow_disk(tmp_path, bytes_per_s=1e6, latency_s=0.0) as mount:
            assert disk_of(mount) == Disk("fuse.slow_disk", "fuse")

"""The disk of a path is the file system that the kernel lists for it."""

import sys
from pathlib import Path

import pytest

from fastload.system.disks import Disk, disk_of
from tests.slow_disk import slow_disk


class System:
    """A `/proc/self/mountinfo` as the kernel lays it out."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.proc.mkdir()
        self.mount("/", "ext4")

    def mount(self, point, kind):
        shown = str(point).replace(" ", "\\040")
        with (self.proc / "mountinfo").open("a") as file:
            file.write(f"31 23 0:40 / {shown} rw,nosuid shared:9 - {kind} none rw\n")

    def disk_of(self, path):
        return disk_of(path, self.proc)


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
        system.mount(data, "nfs4")
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
            ("ext4", "unknown"),
        ],
    )
    def test_file_system_is_known_by_its_name(self, system, data, file_system, kind):
        system.mount(data, file_system)
        assert system.disk_of(data).kind == kind


@pytest.mark.skipif(sys.platform != "linux", reason="mountinfo is Linux's")
class TestThisMachine:
    def test_file_system_is_known(self, tmp_path):
        assert disk_of(tmp_path).file_system != "unknown"

    def test_fuse_is_recognised(self, tmp_path):
        with slow_disk(tmp_path, bytes_per_s=1e6, latency_s=0.0) as mount:
            assert disk_of(mount) == Disk("fuse.slow_disk", "fuse")

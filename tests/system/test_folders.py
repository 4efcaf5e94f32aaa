"""Folders are replaced completely, old or new at every moment, and nothing is left over."""

import os
import shutil
import sys
import threading

import pytest

from fastload.errors import DestinationError
from fastload.system import folders


def make_folder(path, word):
    path.mkdir(parents=True)
    (path / "first").write_text(word)
    (path / "deeper").mkdir()
    (path / "deeper" / "second").write_text(word)
    return path


def words(path):
    return {(path / "first").read_text(), (path / "deeper" / "second").read_text()}


def can_exchange(folder):
    one, two = make_folder(folder / "one", "1"), make_folder(folder / "two", "2")
    try:
        return folders._exchange(str(one), str(two))
    finally:
        shutil.rmtree(one)
        shutil.rmtree(two)


class TestReplaceFolder:
    def test_new_folder_takes_the_place_and_the_old_one_is_gone(self, tmp_path):
        new, target = make_folder(tmp_path / "new", "new"), make_folder(tmp_path / "target", "old")
        (target / "only-old").write_text("old")
        folders.replace_folder(new, target)
        assert words(target) == {"new"}
        assert sorted(os.listdir(target)) == ["deeper", "first"]
        assert os.listdir(tmp_path) == ["target"]

    def test_missing_target_is_made(self, tmp_path):
        new = make_folder(tmp_path / "new", "new")
        folders.replace_folder(str(new), str(tmp_path / "target"))
        assert words(tmp_path / "target") == {"new"}
        assert os.listdir(tmp_path) == ["target"]

    def test_relative_paths_are_taken(self, tmp_path, monkeypatch):
        make_folder(tmp_path / "new", "new"), make_folder(tmp_path / "target", "old")
        monkeypatch.chdir(tmp_path)
        folders.replace_folder("new", "target")
        assert words(tmp_path / "target") == {"new"}

    def test_target_that_is_a_link_stays_one(self, tmp_path):
        real = make_folder(tmp_path / "big-disk" / "real", "old")
        target = tmp_path / "target"
        target.symlink_to(real)
        folders.replace_folder(make_folder(tmp_path / "new", "new"), target)
        assert target.is_symlink()
        assert words(real) == {"new"}
        assert os.listdir(tmp_path / "big-disk") == ["real"]

    def test_target_that_is_a_file_is_refused_and_kept(self, tmp_path):
        new, target = make_folder(tmp_path / "new", "new"), tmp_path / "target"
        target.write_text("precious")
        with pytest.raises(DestinationError, match="target: must be a folder"):
            folders.replace_folder(new, target)
        assert target.read_text() == "precious"
        assert words(new) == {"new"}

    def test_folder_that_would_replace_itself_is_refused_and_kept(self, tmp_path):
        target = make_folder(tmp_path / "target", "old")
        (tmp_path / "link").symlink_to(target)
        with pytest.raises(DestinationError, match="itself"):
            folders.replace_folder(tmp_path / "link", target)
        assert words(target) == {"old"}

    @pytest.mark.parametrize("new", ["missing", "file", "target/deeper"])
    def test_new_folder_that_cannot_be_moved_leaves_the_target_unchanged(self, tmp_path, new):
        target = make_folder(tmp_path / "target", "old")
        (tmp_path / "file").write_text("a file")
        with pytest.raises(OSError, match=new):
            folders.replace_folder(tmp_path / new, target)
        assert words(target) == {"old"}
        assert sorted(os.listdir(tmp_path)) == ["file", "target"]

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges folders")
    def test_reader_finds_a_whole_folder_at_every_moment(self, tmp_path):
        if not can_exchange(tmp_path):
            pytest.skip(f"the filesystem of {tmp_path} does not exchange folders")
        target = make_folder(tmp_path / "target", "0")
        failures, readings, done = [], 0, threading.Event()

        def read():
            nonlocal readings
            while not done.is_set():
                readings += 1
                try:
                    os.stat(target / "first")
                except OSError as error:
                    failures.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(300):
                folders.replace_folder(make_folder(tmp_path / "new", str(number)), target)
        finally:
            done.set()
            reader.join()
        assert readings > 300
        assert not failures


class TestTwoRenames:
    """The replacement where a filesystem does not exchange folders."""

    def test_new_folder_takes_the_place_and_the_old_one_is_moved_aside(self, tmp_path):
        new, target = make_folder(tmp_path / "new", "new"), make_folder(tmp_path / "target", "old")
        aside = folders._rename_twice(str(new), str(target))
        assert words(target) == {"new"}
        assert words(tmp_path / aside / "target") == {"old"}
        assert not new.exists()

    def test_folder_of_an_earlier_crash_is_left_alone(self, tmp_path):
        left = make_folder(tmp_path / ".target.old", "left")
        make_folder(tmp_path / "new", "new"), make_folder(tmp_path / "target", "old")
        folders._rename_twice(str(tmp_path / "new"), str(tmp_path / "target"))
        assert words(left) == {"left"}

    def test_failed_second_rename_puts_the_old_folder_back(self, tmp_path):
        target = make_folder(tmp_path / "target", "old")
        with pytest.raises(FileNotFoundError):
            folders._rename_twice(str(tmp_path / "missing"), str(target))
        assert words(target) == {"old"}
        assert os.listdir(tmp_path) == ["target"]


class TestFsyncFolder:
    def test_folder_is_written(self, tmp_path):
        folders.fsync_folder(tmp_path)
        folders.fsync_folder(str(tmp_path))

    def test_missing_folder_is_an_error(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            folders.fsync_folder(tmp_path / "missing")

    def test_file_is_an_error(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(NotADirectoryError):
            folders.fsync_folder(tmp_path / "file")

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files by /proc")
    def test_no_file_stays_open(self, tmp_path):
        before = len(os.listdir("/proc/self/fd"))
        folders.fsync_folder(tmp_path)
        assert len(os.listdir("/proc/self/fd")) == before

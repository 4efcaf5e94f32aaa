"""The destination of `pack`: refused, replaced or left unchanged."""

import os
import shutil
import subprocess
import threading

import numpy as np
import pytest

from fastload import DestinationError, PackedDataset, SourceError, pack
from fastload.packing.staging.staging import Staging
from tests.commands import run, start_python
from tests.folders import class_folders, tree


@pytest.fixture
def source(tmp_path):
    return class_folders(tmp_path / "photos", 12)


@pytest.fixture
def packed(tmp_path, source):
    pack(source, tmp_path / "x.fl", encode="keep")
    return tmp_path / "x.fl"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["dataset", "folder", "file", "empty", "link", "dangling"])
def test_existing_destination_is_refused_and_not_changed(tmp_path, source, kind):
    dest = tmp_path / "y.fl"
    if kind == "dataset":
        pack(source, dest)
    elif kind == "folder":
        class_folders(dest, 3)
    elif kind == "file":
        dest.write_text("mine")
    elif kind == "empty":
        dest.mkdir()
    else:
        (tmp_path / "target").mkdir() if kind == "link" else None
        dest.symlink_to(tmp_path / "target")
    before = tree(tmp_path)
    with pytest.raises(DestinationError, match=r"y\.fl: exists already") as caught:
        pack(source, dest)
    assert isinstance(caught.value, FileExistsError)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("kind", ["folder", "file", "empty", "link", "other_manifest"])
def test_overwrite_refuses_anything_but_a_packed_dataset(tmp_path, source, packed, kind):
    dest = tmp_path / "y.fl"
    if kind == "folder":
        class_folders(dest, 3)
    elif kind == "file":
        dest.write_text("mine")
    elif kind == "link":
        dest.symlink_to(packed)
    elif kind == "other_manifest":
        dest.mkdir()
        (dest / "manifest.json").write_text('{"name": "a web app"}')
    else:
        dest.mkdir()
    before = tree(tmp_path)
    with pytest.raises(DestinationError, match="is not a packed dataset"):
        pack(source, dest, overwrite=True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "foreign", ["notes.txt", "shard-thesis.docx", "shard-00000.h5.bak", "photos/", ".git/", "shard-00001.h5/"]
)
def test_overwrite_refuses_a_dataset_that_holds_foreign_files(tmp_path, source, packed, foreign):
    if foreign.endswith("/"):
        (packed / foreign).mkdir()
    else:
        (packed / foreign).write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(DestinationError, match=f"{foreign.rstrip('/')}.*does not delete"):
        pack(source, packed, overwrite=True)
    assert tree(tmp_path) == before


def test_overwrite_refuses_splits_that_hold_foreign_files(tmp_path):
    for split in ("train", "val"):
        class_folders(tmp_path / "photos" / split, 3)
    pack(tmp_path / "photos", tmp_path / "both")
    pack(tmp_path / "photos", tmp_path / "both", overwrite=True)
    (tmp_path / "both" / "val.fl" / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(DestinationError, match=r"val\.fl/notes\.txt"):
        pack(tmp_path / "photos", tmp_path / "both", overwrite=True)
    assert tree(tmp_path) == before


def test_overwrite_replaces_and_leaves_nothing_else(tmp_path, source, packed):
    pack(source, tmp_path / "y.fl", encode="raw", format="lmdb")
    pack(source, packed, encode="raw", format="lmdb", overwrite=True)
    assert tree(packed) == tree(tmp_path / "y.fl")
    assert names(tmp_path) == ["photos", "x.fl", "y.fl"]


def test_overwrite_of_nothing_simply_packs(tmp_path, source):
    assert pack(source, tmp_path / "new.fl", overwrite=True).records == 12


def test_overwrite_replaces_a_damaged_dataset(tmp_path, source, packed):
    (packed / "manifest.json").write_bytes((packed / "manifest.json").read_bytes()[:-20])
    pack(source, packed, encode="keep", overwrite=True)
    assert len(PackedDataset(packed)) == 12


def test_overwrite_that_fails_leaves_the_old_dataset(tmp_path, source, packed):
    before = tree(packed)
    (source / "class0" / "bad.jpg").write_bytes(b"")
    with pytest.raises(SourceError):
        pack(source, packed, encode="keep", overwrite=True)
    assert tree(packed) == before
    assert len(PackedDataset(packed)) == 12


def test_readers_of_the_old_dataset_continue_while_it_is_replaced(tmp_path, source, packed):
    old = PackedDataset(packed, transform=np.asarray)
    first = old[0][0].copy()
    (source / "class0" / "0000.jpg").unlink()
    pack(source, packed, encode="keep", overwrite=True)
    assert np.array_equal(old[0][0], first)
    assert len(PackedDataset(packed)) == 11


def test_dataset_exists_at_every_moment_of_an_overwrite(tmp_path, source, packed):
    problems, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            try:
                PackedDataset(packed)
            except Exception as error:
                problems.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(5):
            pack(source, packed, overwrite=True)
    finally:
        stop.set()
        watcher.join()
    assert not problems


@pytest.mark.parametrize(
    "dest", ["photos/x.fl", "photos/class0/x.fl", "photos", "photos/../photos/x.fl", "link/x.fl"]
)
def test_destination_in_the_source_is_refused(tmp_path, source, dest):
    (tmp_path / "link").symlink_to(source)
    before = tree(tmp_path)
    with pytest.raises(DestinationError, match="is inside the source"):
        pack(source, tmp_path / dest)
    assert tree(tmp_path) == before


def test_source_in_the_destination_is_refused(tmp_path, source, packed):
    inside = packed / "photos"
    shutil.move(source, inside)
    before = tree(tmp_path)
    with pytest.raises(DestinationError, match="contains the source"):
        pack(inside, packed, overwrite=True)
    assert tree(tmp_path) == before


def test_a_table_may_lie_beside_its_destination(tmp_path, source):
    (tmp_path / "list.csv").write_text("path,label\nphotos/class0/0000.jpg,cat\n")
    assert pack(tmp_path / "list.csv", tmp_path / "list.fl").records == 1
    with pytest.raises(DestinationError):
        pack(tmp_path / "list.csv", tmp_path / "list.csv", overwrite=True)


def test_missing_folders_above_the_destination_are_made(tmp_path, source):
    pack(source, tmp_path / "a" / "b" / "x.fl")
    assert names(tmp_path / "a" / "b") == ["x.fl"]


def test_failing_before_anything_is_packed_leaves_nothing(tmp_path):
    with pytest.raises(SourceError):
        pack(tmp_path / "nowhere", tmp_path / "x.fl")
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(SourceError):
        pack(tmp_path / "file.txt", tmp_path / "x.fl")
    assert names(tmp_path) == ["file.txt"]


HOLD = """
import sys
from pathlib import Path
from fastload.packing.staging.staging import Staging
with Staging(Path(sys.argv[1]), False):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that packs to x.fl."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start_python("-c", HOLD, tmp_path / "x.fl", **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_second_packing_to_one_destination_is_refused(tmp_path, source, holder):
    before = tree(tmp_path / ".x.fl.partial")
    with pytest.raises(DestinationError, match="another process is packing to it"):
        pack(source, tmp_path / "x.fl")
    done = run("pack", source, tmp_path / "x.fl")
    assert done.returncode == 2
    assert "another process is packing to it" in done.stderr
    assert tree(tmp_path / ".x.fl.partial") == before


def test_lock_of_a_killed_process_is_free(tmp_path, source, holder):
    holder.kill()
    holder.wait()
    assert pack(source, tmp_path / "x.fl").records == 12
    assert names(tmp_path) == ["photos", "x.fl"]


def test_second_packing_in_one_process_is_refused(tmp_path, source):
    already = pytest.raises(DestinationError, match="this process is packing to it already")
    with Staging(tmp_path / "x.fl", False), already:
        pack(source, tmp_path / "x.fl")
    assert pack(source, tmp_path / "x.fl").records == 12


def test_one_of_many_that_start_at_once_packs_and_the_others_are_refused(tmp_path, source):
    results, barrier = [], threading.Barrier(4)

    def attempt():
        barrier.wait()
        try:
            results.append(pack(source, tmp_path / "x.fl", workers=1).records)
        except DestinationError as error:
            results.append(str(error))

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count(12) == 1
    assert sum("already" in str(result) for result in results) == 3
    assert names(tmp_path) == ["photos", "x.fl"]


def test_dataset_published_meanwhile_is_not_replaced(tmp_path, source):
    class Rival:
        """Meanwhile, publish another dataset at the destination, as is possible after `rm -r` of staging."""

        def __len__(self):
            return 3

        def __getitem__(self, index):
            if index == 2 and not os.path.lexists(tmp_path / "x.fl"):
                shutil.copytree(tmp_path / "y.fl", tmp_path / "x.fl")
            return np.zeros((4, 4, 3), np.uint8), index

    pack(source, tmp_path / "y.fl")
    with pytest.raises(DestinationError, match="exists already"):
        pack(Rival(), tmp_path / "x.fl", encode="raw", workers=1)
    assert tree(tmp_path / "x.fl") == tree(tmp_path / "y.fl")


def test_staging_that_could_not_be_made_does_not_stay_locked(tmp_path, source):
    (tmp_path / ".x.fl.partial").mkdir()
    (tmp_path / ".x.fl.partial" / "dataset").write_text("in the way")
    with pytest.raises(OSError, match="in a folder that can be written to"):
        pack(source, tmp_path / "x.fl")
    (tmp_path / ".x.fl.partial" / "dataset").unlink()
    assert pack(source, tmp_path / "x.fl").records == 12

"""A cache that another user could have made is never read, whatever it says about itself."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import fastload
from fastload import Cache, FolderDataset, OptionError
from fastload.system.cache_folder import CacheDescription, CacheFolder
from fastload.system.own_files import read_own, require_own
from tests.datasets.cache.programs import ROOT
from tests.folders import encoded

OTHER = 54321
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")


def images(root, value, count=4):
    """A folder of a class, of images of one colour."""
    (root / "a").mkdir(parents=True)
    for number in range(count):
        (root / "a" / f"{number}.png").write_bytes(encoded(np.full((24, 32, 3), value, np.uint8), ".png"))
    return root


@pytest.fixture
def photos(tmp_path):
    """The user's files: all pixels are 10."""
    return images(tmp_path / "photos", 10)


@pytest.fixture
def planted(tmp_path, photos, caches, on_disk):
    """The name of a complete cache in the place of that of `photos`, of another's files: all are 200."""
    evil = on_disk(FolderDataset(images(tmp_path / "evil", 200)))._cache
    made = caches / "fastload" / f"{evil.place.name}.fl"
    ours = on_disk(FolderDataset(photos))._cache.place.name
    shutil.rmtree(caches / "fastload" / f"{ours}.fl")
    shutil.copytree(made, caches / "fastload" / f"{ours}.fl")
    return ours


def give_away(path, user=OTHER):
    """Make a folder and all in it another user's."""
    for place, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.lchown(os.path.join(place, name), user, user)
    os.lchown(path, user, user)


def pixels_of(dataset):
    return np.unique(np.stack([dataset[index][0].numpy() for index in range(len(dataset))])).tolist()


def check_files_are_read(photos, caches, reason):
    """Check that the files are read instead of a cache, with one warning that says why."""
    dataset = FolderDataset(photos)
    with pytest.warns(RuntimeWarning, match=reason) as seen:
        dataset.use_cache(Cache("disk", caches))
    assert pixels_of(dataset) == [10]
    assert len(seen) == 1
    assert dataset.cached.hits == 0
    assert reason in dataset.cached.state
    for again in (pickle.loads(pickle.dumps(dataset)), dataset):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert pixels_of(again) == [10]
        assert again.cached.hits == 0


class TestContent:
    def test_a_copy_of_other_files_is_not_read_and_is_made_anew(self, photos, caches, planted, on_disk):
        check_files_are_read(photos, caches, "must be made of the files with the digest")
        again = FolderDataset(photos, cache=Cache("disk", caches))
        assert pixels_of(again) == [10]
        dataset = on_disk(FolderDataset(photos))
        assert pixels_of(dataset) == [10]
        assert dataset.cached.hits == 4

    def test_a_packed_dataset_of_the_same_files_is_none(self, tmp_path, photos, caches, planted):
        place = caches / "fastload" / f"{planted}.fl"
        shutil.rmtree(place)
        fastload.pack(photos, place, encode="keep", workers=1)
        check_files_are_read(photos, caches, "must be made of the files with the digest")


class TestOwner:
    @AS_ROOT
    @pytest.mark.parametrize("state", ["complete", "stopped", "unknown"])
    def test_a_folder_of_another_user_is_refused(self, photos, caches, planted, state):
        folder = caches / "fastload"
        if state != "complete":
            description = {"stopped": "all is well"} if state == "stopped" else {"samples": "x"}
            (folder / f"{planted}.json").write_text(json.dumps(description))
        give_away(folder)
        before = sorted(path.name for path in folder.rglob("*"))
        with pytest.raises(OptionError, match=f"it belongs to another user, {OTHER}") as caught:
            FolderDataset(photos, cache=Cache("disk", caches))
        assert str(folder) in str(caught.value)
        with pytest.raises(OptionError, match="it belongs to another user"):
            CacheFolder(caches).entries()
        assert sorted(path.name for path in folder.rglob("*")) == before

    @AS_ROOT
    def test_a_folder_that_becomes_another_users_is_not_read(self, photos, caches, on_disk):
        dataset = on_disk(FolderDataset(photos))
        again = pickle.dumps(dataset)
        give_away(caches / "fastload")
        found = pickle.loads(again)
        with pytest.warns(RuntimeWarning, match="it belongs to another user"):
            assert pixels_of(found) == [10]
        assert found.cached.hits == 0

    @AS_ROOT
    @pytest.mark.parametrize("part", ["", "manifest.json", "shard-00000.h5"])
    def test_a_part_of_another_user_in_our_folder_is_not_read(self, photos, caches, on_disk, part):
        name = on_disk(FolderDataset(photos))._cache.place.name
        path = caches / "fastload" / f"{name}.fl" / part
        os.chown(path, OTHER, OTHER)
        check_files_are_read(photos, caches, f"it belongs to another user, {OTHER}")
        assert path.exists()

    @AS_ROOT
    def test_a_description_of_another_user_is_not_believed(self, photos, caches, on_disk):
        dataset = on_disk(FolderDataset(photos))
        file = caches / "fastload" / f"{dataset._cache.place.name}.json"
        file.write_text(json.dumps({"stopped": "remove me", "dataset": "evil"}))
        os.chown(file, OTHER, OTHER)
        assert CacheFolder(caches).entry(dataset._cache.place.name).dataset == "?"
        again = FolderDataset(photos, cache=Cache("disk", caches))
        assert pixels_of(again) == [10]
        assert again.cached.hits == 4

    @AS_ROOT
    def test_the_list_of_caches_names_the_owner_and_shows_nothing(self, photos, caches, planted):
        give_away(caches / "fastload")
        command = [sys.executable, "-m", "fastload", "cache", "list", "--folder", str(caches)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"it belongs to another user, {OTHER}" in done.stderr


class TestMode:
    @pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777])
    def test_a_folder_that_others_may_write_to_is_refused(self, photos, caches, planted, mode):
        (caches / "fastload").chmod(mode)
        with pytest.raises(OptionError, match=f"others may write to it, its mode is {mode:o}"):
            FolderDataset(photos, cache=Cache("disk", caches))

    @pytest.mark.parametrize("mode", [0o700, 0o755, 0o500])
    def test_a_folder_that_others_may_only_read_is_used(self, photos, caches, on_disk, mode):
        on_disk(FolderDataset(photos))
        (caches / "fastload").chmod(mode)
        dataset = FolderDataset(photos, cache=Cache("disk", caches))
        assert pixels_of(dataset) == [10]
        assert dataset.cached.hits == 4
        (caches / "fastload").chmod(0o700)

    @pytest.mark.parametrize("part", ["", "manifest.json", "shard-00000.h5"])
    def test_a_part_that_others_may_write_to_is_not_read(self, photos, caches, on_disk, part):
        name = on_disk(FolderDataset(photos))._cache.place.name
        path = caches / "fastload" / f"{name}.fl" / part
        path.chmod(path.stat().st_mode | 0o020)
        check_files_are_read(photos, caches, "others may write to it")

    @pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
    def test_what_is_made_is_the_users_alone_whatever_the_umask(self, tmp_path, photos, umask):
        code = f"""
import os, sys, time, fastload
os.umask({umask})
dataset = fastload.FolderDataset({str(photos)!r}, cache=fastload.Cache("disk", {str(tmp_path / "caches")!r}))
while dataset.cached.state != "complete":
    assert not dataset.cached.stopped, dataset.cached
    time.sleep(0.1)
    dataset[0]
before = dataset.cached.hits
dataset[1]
print(dataset.cached.hits - before)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
        made = [tmp_path / "caches" / "fastload", *(tmp_path / "caches" / "fastload").rglob("*")]
        assert len(made) >= 5
        assert not [path for path in made if path.stat().st_mode & 0o022]


class TestLinks:
    def test_a_folder_that_is_a_link_is_refused(self, tmp_path, photos, caches, planted):
        (caches / "fastload").rename(tmp_path / "away")
        (caches / "fastload").symlink_to(tmp_path / "away")
        with pytest.raises(OptionError, match="it is a link"):
            FolderDataset(photos, cache=Cache("disk", caches))

    @pytest.mark.parametrize("part", ["", "manifest.json", "shard-00000.h5"])
    def test_a_part_that_is_a_link_is_not_followed(self, tmp_path, photos, caches, on_disk, part):
        name = on_disk(FolderDataset(photos))._cache.place.name
        path = caches / "fastload" / f"{name}.fl" / part
        path = path if part else path.with_name(f"{name}.fl")
        path.rename(tmp_path / "away")
        path.symlink_to(tmp_path / "away")
        check_files_are_read(photos, caches, "it is a link")

    def test_a_description_that_is_a_link_or_a_pipe_is_not_read(self, tmp_path):
        folder = CacheFolder(tmp_path)
        folder.make()
        (tmp_path / "outside").write_text('{"dataset": "secret"}')
        (folder.path / "a-0123456789ab.json").symlink_to(tmp_path / "outside")
        os.mkfifo(folder.path / "b-0123456789ab.json")
        assert folder.description("a-0123456789ab") == CacheDescription()
        assert folder.description("b-0123456789ab") == CacheDescription()
        folder.describe("a-0123456789ab", dataset="ours")
        assert folder.description("a-0123456789ab") == CacheDescription(dataset="ours")
        assert (tmp_path / "outside").read_text() == '{"dataset": "secret"}'

    def test_a_lock_that_is_a_pipe_does_not_hang(self, photos, caches, on_disk):
        name = on_disk(FolderDataset(photos))._cache.place.name
        (caches / "fastload" / f"{name}.lock").unlink()
        os.mkfifo(caches / "fastload" / f"{name}.lock")
        check_files_are_read(photos, caches, "it is of another kind")

    def test_the_named_folder_itself_may_be_a_link(self, tmp_path, photos, caches, on_disk):
        on_disk(FolderDataset(photos))
        (tmp_path / "link").symlink_to(caches)
        dataset = FolderDataset(photos, cache=Cache("disk", tmp_path / "link"))
        assert pixels_of(dataset) == [10]
        assert dataset.cached.hits == 4


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "missing", "writable"])
def test_only_a_regular_file_of_ours_is_read(tmp_path, kind):
    path = tmp_path / "file"
    if kind == "link":
        (tmp_path / "target").write_text("x")
        path.symlink_to(tmp_path / "target")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "writable":
        path.write_text("x")
        path.chmod(0o666)
    expected = FileNotFoundError if kind == "missing" else PermissionError
    with pytest.raises(expected):
        require_own(path)
    with pytest.raises(OSError):  # noqa: PT011 - the kernel's own for a link
        read_own(Path(path))

"""`fastload cache`: the caches on a disk, listed and removed."""

import contextlib
import json
import os
import sys

import pytest

from fastload import Cache, FolderDataset
from fastload.cli.cache import _ago
from fastload.cli.main import main
from fastload.datasets.cache.disk_filling import CopyPlace, fill_copy
from fastload.sources import open_source
from fastload.sources.cacheable import CacheableFiles
from fastload.system.cache_folder import CacheFolder
from tests.folders import class_folders


@pytest.fixture
def folder(tmp_path):
    """A folder with a complete cache of 12 samples and an unfinished one."""
    files = open_source(str(class_folders(tmp_path / "photos", count=12)))[""].files
    folder = CacheFolder(tmp_path / "caches")
    folder.make()
    source = CacheableFiles(files, files.folder, alike_only=False)
    for name, is_wanted in (("photos-aaaaaaaaaaaa", lambda: True), ("photos-bbbbbbbbbbbb", lambda: False)):
        lock = folder.lock(name)
        with contextlib.nullcontext() if is_wanted() else pytest.raises(SystemExit):
            fill_copy(source, CopyPlace(folder, name, "encoded"), is_wanted)
        lock.release()
    os.utime(folder.path / "photos-bbbbbbbbbbbb.lock", (1, 1))
    return folder


@pytest.fixture
def cli(folder, capsys):
    def cli(*words):
        code = main(["cache", *words, "--folder", str(folder.path.parent)])
        return code, *capsys.readouterr()

    return cli


def test_list_shows_every_cache(cli, folder):
    code, out, _ = cli("list")
    head, titles, first, second = out.splitlines()
    assert code == 0
    assert head.startswith(f"{folder.path}: ")
    assert titles.split() == ["name", "dataset", "samples", "size", "last", "used", "state"]
    assert first.split()[0] == "photos-aaaaaaaaaaaa"
    assert " just now " in first
    assert first.endswith("complete")
    assert " 12 " in first
    assert second.endswith("unfinished, 0%")
    assert " days ago" in second


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "just now"),
        (59.9, "just now"),
        (60, "1 minute ago"),
        (7100, "1 hour ago"),
        (3 * 86400, "3 days ago"),
    ],
)
def test_the_last_use_is_in_words(seconds, text):
    assert _ago(seconds) == text


def test_list_as_json(cli):
    found = json.loads(cli("list", "--json")[1])
    assert [(each["samples"], each["state"]) for each in found] == [(12, "complete"), (12, "unfinished")]


def test_a_filled_one_is_shown_as_filling(cli, folder):
    lock = folder.lock("photos-bbbbbbbbbbbb")
    assert "filling, 0%" in cli("list")[1]
    lock.release()


@pytest.mark.skipif(sys.platform != "linux", reason="caches in memory need Linux")
def test_caches_in_memory_are_shown_and_removed_once_nobody_uses_them(cli, folder, tmp_path):
    parent = folder.path.parent
    dataset = FolderDataset(tmp_path / "photos", cache=Cache("ram", parent))
    list(dataset)
    name, size = dataset._cache.store.opening.name, dataset.cached.used_bytes
    _, out, _ = cli("list")
    (line,) = [line for line in out.splitlines() if name in line]
    assert "12" in line
    assert "in memory, of 1 process" in line
    (entry,) = [each for each in json.loads(cli("list", "--json")[1]) if each["name"] == name]
    assert entry["users"] == [os.getpid()]
    assert size <= entry["size_bytes"] < size + 100_000
    code, _, err = cli("clear", name)
    assert code == 1
    assert "is in use by a running program" in err
    dataset.close_cache()
    assert name not in cli("list")[1]

    left = CacheFolder.of_memory(parent)  # by a process that was killed
    left.make()
    left.lock(name).release()
    assert cli("clear", name)[0] == 0
    assert os.listdir(left.path) == []
    left.sweep()
    assert not left.path.exists()


def test_clear_removes_what_is_named(cli, folder):
    code, out, _ = cli("clear", "photos-aaaaaaaaaaaa")
    assert (code, out.split(":")[0]) == (0, "removed photos-aaaaaaaaaaaa")
    assert [entry.name for entry in folder.entries()] == ["photos-bbbbbbbbbbbb"]


def test_clear_all_leaves_what_is_in_use(cli, folder):
    lock = folder.lock("photos-aaaaaaaaaaaa", shared=True)
    code, out, err = cli("clear", "--all")
    assert code == 1
    assert "removed photos-bbbbbbbbbbbb" in out
    assert "photos-aaaaaaaaaaaa is in use by a running program" in err
    lock.release()
    assert cli("clear", "--all")[0] == 0
    assert os.listdir(folder.path) == []
    assert "no caches" in cli("list")[1]


@pytest.mark.parametrize("words", [["clear"], ["clear", "x"], ["clear", "x", "--all"], ["list", "x"]])
def test_what_cannot_be_meant_is_refused(cli, folder, words):
    assert cli(*words)[0] == 2
    assert len(folder.entries()) == 2


def test_without_an_action_all_caches_are_listed(cli):
    assert cli() == cli("list")


def test_nothing_of_a_removed_cache_stays_or_comes_back(folder):
    (folder.path / "photos-aaaaaaaaaaaa.json.draft").write_text("of a process that was killed")
    for name in ("photos-aaaaaaaaaaaa", "photos-bbbbbbbbbbbb"):
        assert folder.remove(name)
        with pytest.raises(FileNotFoundError):
            folder.entry(name)  # as `entries` does with a name that another process has just removed
        assert folder.remove(name)
    assert os.listdir(folder.path) == []


@pytest.mark.parametrize(
    "text", ['{"samples": "x"}', '{"done": 1.5, "samples": 12}', "[1]", "{", '{"bytes": -1}']
)
def test_a_damaged_description_is_shown_with_the_command_that_removes_the_cache(cli, folder, text):
    name = "photos-bbbbbbbbbbbb"
    (folder.path / f"{name}.json").write_text(text)
    code, out, _ = cli("list")
    assert code == 0
    command = f"fastload cache clear {name} --folder {folder.path.parent}"
    assert f"{name}.json is damaged: '{command}' removes the cache" in out
    assert cli("clear", name)[0] == 0
    assert [entry.name for entry in folder.entries()] == ["photos-aaaaaaaaaaaa"]


@pytest.mark.parametrize("name", ["photos-aaaaaaaaaaaa", "photos-bbbbbbbbbbbb"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_lock_that_is_no_file_is_shown_and_blocks_nothing(cli, folder, name, kind):
    lock = folder.path / f"{name}.lock"
    lock.rename(folder.path / "moved")
    make = {
        "pipe": os.mkfifo,
        "link": lambda path: path.symlink_to(folder.path / "moved"),
        "folder": os.mkdir,
    }
    make[kind](lock)
    code, out, _ = cli("list")
    assert code == 0
    assert f"damaged: remove {lock} yourself" in out
    code, _, err = cli("clear", name)
    assert code == 1
    assert f"{name} was not removed: remove {lock} yourself" in err
    with pytest.raises(PermissionError):
        folder.lock(name, shared=True)

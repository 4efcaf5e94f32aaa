"""Paths of unpacked files: below the folder only, under valid names, for any keys."""

import dataclasses
import os

import pytest

import fastload
from fastload.packing.unpack import safe_path, unpack
from tests.commands import run
from tests.folders import class_folders, files_in, pixels, tree
from tests.packing.labelled import rows_of

EVIL_KEYS = [
    "../escape.png", "/etc/escape.png", "a/../../../escape.png", "//host/share.png", "..", "", ".", "/",
    "a/./b.png", "nul\0byte.png", "C:\\windows\\x.png", "~/home.png", "\n.png", "-rf", "a//b.png",
]  # fmt: skip


class KeyedSource:
    """Images under keys such as only a malicious source has."""

    def __init__(self, keys):
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return pixels(index, 8, 8), index


@pytest.fixture
def pack_keys(tmp_path, monkeypatch):
    """Pack one image under each key."""

    def pack_keys(keys, **options):
        from fastload.sources.dataset.source import DatasetSource

        monkeypatch.setattr(DatasetSource, "key", lambda self, index: keys[index])
        plain = DatasetSource.read

        def read(self, index):
            record = plain(self, index)
            record.key = keys[index]
            return record

        monkeypatch.setattr(DatasetSource, "read", read)
        fastload.pack(KeyedSource(keys), tmp_path / "keyed.fl", workers=1, **options)
        return tmp_path / "keyed.fl"

    return pack_keys


def test_no_key_is_written_outside_the_folder(pack_keys, tmp_path):
    packed = pack_keys(EVIL_KEYS, encode="keep")
    (tmp_path / "room").mkdir()
    before = tree(tmp_path)
    result = unpack(packed, tmp_path / "room" / "out")
    after = tree(tmp_path)
    assert result.files + len(result.refused) == len(EVIL_KEYS)
    changed = {path for path in after if after[path] != before.get(path, "new") and path not in before}
    assert changed
    assert all(path.startswith(b"room/out") for path in changed)


@pytest.mark.parametrize("key", EVIL_KEYS)
def test_a_safe_path_lies_below_its_root(key, tmp_path):
    place = safe_path(tmp_path, key)
    assert tmp_path in place.resolve().parents


def test_a_record_whose_name_is_taken_is_named_and_left_out(pack_keys, tmp_path):
    keys = ["a.png", "a.png", "a.png/b.png", "d/e.png/f.png", "d/e.png", "labels.csv"]
    packed = pack_keys(keys, encode="keep")
    result = unpack(packed, tmp_path / "out")
    assert {*files_in(tmp_path / "out")} == {b"a.png", b"d/e.png/f.png", b"labels.csv"}
    assert [row["path"] for row in rows_of(result.table)] == ["a.png", "d/e.png/f.png"]
    assert [message.split(":")[0] for message in result.refused] == [
        f"record {number} (key {keys[number]!r})" for number in (1, 2, 4, 5)
    ]
    assert "another record has this name" in result.refused[0]


def test_two_records_of_one_file_share_it(tmp_path):
    photos = class_folders(tmp_path / "photos", count=2)
    name = next(photos.rglob("*.jpg"))
    (tmp_path / "t.csv").write_text(f"{name},a\n{name},b\n")
    fastload.pack(tmp_path / "t.csv", tmp_path / "p.fl", encode="keep", workers=1)
    result = unpack(tmp_path / "p.fl", tmp_path / "out")
    assert (result.files, result.refused) == (1, ())
    assert [line[-2:] for line in result.table.read_text().splitlines()] == [",a", ",b"]


def test_unpacking_a_dataset_of_odd_class_names_stays_inside(tmp_path):
    from fastload.shards.manifest import read_manifest

    photos = class_folders(tmp_path / "photos", count=3)
    fastload.pack(photos, tmp_path / "p.fl", encode="keep", workers=1)
    manifest = dataclasses.replace(
        read_manifest(tmp_path / "p.fl"), classes=("../out", "/etc/x", "a/b/../c", "")
    )
    (tmp_path / "p.fl" / "manifest.json").write_bytes(manifest.to_bytes())
    (tmp_path / "room").mkdir()
    before = set(tree(tmp_path))
    unpack(tmp_path / "p.fl", tmp_path / "room" / "out")
    assert all(name.startswith(b"room/out") for name in set(tree(tmp_path)) - before)


def test_files_that_the_file_system_refuses_are_listed_and_all_others_written(pack_keys, tmp_path):
    too_long = "/".join(["d" * 200] * 30) + "/x.png"
    deep = "e/" * 300 + "x.png"
    packed = pack_keys(["a.png", too_long, "b/c.png", deep], encode="keep")
    result = unpack(packed, tmp_path / "out")
    assert result.files == 3
    [message] = result.refused
    assert message.startswith("record 1 (key 'dddd")
    assert "too long" in message
    files = files_in(tmp_path / "out")
    assert {b"a.png", b"b/c.png", deep.encode(), b"labels.csv"} == set(files)
    assert [row["path"] for row in rows_of(result.table)] == ["a.png", "b/c.png", deep]
    assert not (tmp_path / "out" / ("d" * 200)).exists()


def test_a_class_folder_with_too_long_a_path_does_not_affect_others(tmp_path):
    """A path on Linux has at most 4,096 bytes: one class fits below this folder, the other does not."""
    photos = class_folders(tmp_path / "photos", count=4)
    first, second = sorted(photos.iterdir())[:2]
    second.rename(second.with_name("z" * 200))
    fastload.pack(photos, tmp_path / "p.fl", workers=1, encode="keep")
    out = tmp_path / "out"
    while len(str(out)) < 3900:
        out /= "d" * min(200, 3930 - len(str(out)))
    result = unpack(tmp_path / "p.fl", out)
    assert result.files == len(rows_of(result.table)) > 0
    assert {row["path"].split("/")[0] for row in rows_of(result.table)} == {
        name for name in os.listdir(out) if (out / name).is_dir()
    }
    assert first.name in os.listdir(out)
    assert result.files + len(result.refused) == 4
    assert all("zzz" in message and "too long" in message for message in result.refused)


def test_the_command_names_the_refused_records_and_exits_with_1(pack_keys, tmp_path):
    packed = pack_keys(["a.png", "/".join(["d" * 200] * 30)], encode="keep")
    done = run("unpack", packed, tmp_path / "out")
    assert done.returncode == 1
    assert "left out: record 1 (key 'dddd" in done.stderr
    assert (tmp_path / "out" / "a.png").exists()


def test_a_path_that_cannot_be_written_does_not_affect_others(pack_keys, tmp_path):
    """Circular links stand for a folder that cannot be written to: root may write to any other."""
    packed = pack_keys(["a/x.png", "b/x.png"], encode="keep")

    def block(done, total):
        if done == 1:
            (tmp_path / "out" / "b").symlink_to("loop")
            (tmp_path / "out" / "loop").symlink_to("b")

    result = unpack(packed, tmp_path / "out", progress=block)
    assert len(result.refused) == 1
    assert (tmp_path / "out" / "a" / "x.png").exists()

"""Files that cannot be packed: on_error, the files listed and the bytes stored."""

import io
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from fastload import (
    DecodeError,
    DestinationError,
    Field,
    OptionError,
    PackedDataset,
    SourceError,
    ToolMissingError,
    pack,
    unpack,
    verify,
)
from fastload.images.encoding_names import ENCODING_NAMES
from fastload.shards.manifest import read_manifest
from tests.folders import class_folders, encoded, pixels

GOOD = encoded(pixels(0, 60, 80))
GOOD_PNG = encoded(pixels(0, 60, 80), ".png")
BAD = {
    "class0/empty.jpg": b"",
    "class0/text.jpg": b"<html>404 Not Found</html>",
    "class0/truncated.jpg": GOOD[: len(GOOD) // 2],
    "class1/half.png": GOOD_PNG[: len(GOOD_PNG) // 2],
    "class1/flipped.png": GOOD_PNG[:100] + bytes([GOOD_PNG[100] ^ 1]) + GOOD_PNG[101:],
    "class2/header_only.jpg": b"\xff\xd8\xff\xe0",
    "class2/zeros.bmp": bytes(100),
}


@pytest.fixture
def source(tmp_path):
    """A folder of 30 good files and seven bad ones."""
    root = class_folders(tmp_path / "photos", 30)
    for key, data in BAD.items():
        (root / key).write_bytes(data)
    return root


def test_fail_names_the_file_and_leaves_no_dataset(tmp_path, source):
    with pytest.raises(SourceError, match=r"class0/(empty|text|truncated)\.jpg.*--on-error skip"):
        pack(source, tmp_path / "x.fl", encode="keep", workers=1)
    assert not (tmp_path / "x.fl").exists()


def test_fail_resumes_after_the_files_were_repaired(tmp_path, source):
    with pytest.raises(SourceError):
        pack(source, tmp_path / "x.fl", encode="keep")
    for key in BAD:
        (source / key).unlink()
    assert pack(source, tmp_path / "x.fl", encode="keep").records == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "x.fl"]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("encode", ENCODING_NAMES)
def test_skip_lists_every_file_and_packs_the_others(tmp_path, source, encode, workers, require_tool):
    if encode == "tiled":
        require_tool("jpegtran")
    options = {"encode": encode, "on_error": "skip", "workers": workers, "shard_size": 20_000}
    [split] = pack(source, tmp_path / "x.fl", **options).splits
    assert split.records == 30
    assert split.kept == ()
    assert [failure.key for failure in split.skipped] == sorted(BAD)
    assert all(failure.reason for failure in split.skipped)
    manifest = read_manifest(tmp_path / "x.fl")
    assert (manifest.skipped, manifest.kept) == (split.skipped, ())
    assert not verify(tmp_path / "x.fl").damages
    keys = {PackedDataset(tmp_path / "x.fl").read(index).key for index in range(30)}
    assert len(keys) == 30
    assert not keys & set(BAD)


@pytest.mark.skipif(not shutil.which("prlimit"), reason="needs prlimit (util-linux)")
def test_too_few_descriptors_stop_packing_with_the_command_that_raises_the_limit(tmp_path, source):
    command = [sys.executable, "-m", "fastload", "pack", str(source), str(tmp_path / "x.fl")]
    command += ["--on-error", "skip", "--workers", "2"]
    done = subprocess.run(["prlimit", "--nofile=9:9", *command], capture_output=True, text=True)
    assert done.returncode == 3
    assert "Too many open files" in done.stderr
    assert "ulimit -n 4096" in done.stderr
    assert not (tmp_path / "x.fl").exists()


def test_sparse_file_of_a_terabyte_is_left_out_by_name(tmp_path, source):
    huge = source / "class0" / "huge.jpg"
    huge.touch()
    os.truncate(huge, 1 << 40)
    [split] = pack(source, tmp_path / "x.fl", on_error="skip").splits
    assert split.records == 30
    assert [failure.key for failure in split.skipped] == sorted({*BAD, "class0/huge.jpg"})


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
@pytest.mark.parametrize("encode", ["keep", "raw"])
def test_keep_stores_the_bytes_and_lists_them(tmp_path, source, encode, container):
    options = {"encode": encode, "on_error": "keep", "format": container, "shard_size": 20_000}
    [split] = pack(source, tmp_path / "x.fl", **options).splits
    assert split.records == 37
    assert [failure.key for failure in split.kept] == sorted(BAD)
    assert split.skipped == ()
    assert not verify(tmp_path / "x.fl").damages
    dataset = PackedDataset(tmp_path / "x.fl")
    for index in range(37):
        record = dataset.read(index)
        if record.key in BAD:
            assert record["image"] == BAD[record.key]
            assert record.image_shape() == (0, 0, 0)
            with pytest.raises(DecodeError, match=record.key):
                dataset[index]
        else:
            dataset[index]
    unpack(tmp_path / "x.fl", tmp_path / "back")
    for key, data in BAD.items():
        assert (tmp_path / "back" / key).read_bytes() == data


@pytest.mark.parametrize("beside", [0, 3])
def test_source_or_split_of_bad_files_alone_is_refused(tmp_path, beside):
    if beside:
        class_folders(tmp_path / "photos" / "train", beside)
    bad = tmp_path / "photos" / ("val" if beside else "") / "a"
    bad.mkdir(parents=True)
    for number in range(40):
        (bad / f"{number:02d}.jpg").write_bytes(b"nothing")
    with pytest.raises(SourceError, match=r"none of its 40 records can be packed; .*'a/00\.jpg'"):
        pack(tmp_path / "photos", tmp_path / "x.fl", on_error="skip", layout="classes")
    assert not (tmp_path / "x.fl").exists()


def test_empty_files_alone_are_kept(tmp_path):
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for number in range(40):
        (tmp_path / "photos" / "a" / f"{number:02d}.jpg").write_bytes(b"")
    for container in ("hdf5", "lmdb"):
        dest = tmp_path / f"{container}.fl"
        pack(tmp_path / "photos", dest, on_error="keep", format=container, encode="keep")
        dataset = PackedDataset(dest)
        assert [dataset.read(index)["image"] for index in range(40)] == [b""] * 40
        assert not verify(dest).damages


class Watcher:
    """Call a function once the first records are packed."""

    def __init__(self, action):
        self.action = action

    def __call__(self, progress):
        if self.action is not None:
            self.action()
            self.action = None


@pytest.mark.parametrize("on_error", ["skip", "keep"])
def test_file_that_vanishes_after_the_listing_is_skipped(tmp_path, on_error):
    source = class_folders(tmp_path / "photos", 400, classes=1)
    victim = source / "class0" / "0399.jpg"
    options = {"encode": "keep", "on_error": on_error, "workers": 1}
    [split] = pack(source, tmp_path / "x.fl", progress=Watcher(victim.unlink), **options).splits
    assert split.records == 399
    assert [failure.key for failure in split.skipped] == ["class0/0399.jpg"]
    assert "No such file" in split.skipped[0].reason


def test_file_that_vanishes_after_the_listing_fails_by_name(tmp_path):
    source = class_folders(tmp_path / "photos", 400, classes=1)
    victim = source / "class0" / "0399.jpg"
    with pytest.raises(SourceError, match=r"record 399.*class0/0399\.jpg.*No such file"):
        pack(source, tmp_path / "x.fl", encode="keep", workers=1, progress=Watcher(victim.unlink))


@pytest.mark.parametrize("change", ["grows", "shrinks"])
def test_file_that_changes_its_size_after_the_listing_fails_by_name(tmp_path, change):
    source = class_folders(tmp_path / "photos", 400, classes=1)
    victim = source / "class0" / "0399.jpg"
    new = victim.read_bytes() + b"more" if change == "grows" else victim.read_bytes()[:-1]
    with pytest.raises(SourceError, match=r"0399\.jpg.*when it was listed"):
        pack(source, tmp_path / "x.fl", workers=1, progress=Watcher(lambda: victim.write_bytes(new)))


def test_named_pipe_among_the_images_does_not_hang(tmp_path):
    source = class_folders(tmp_path / "photos", 5)
    os.mkfifo(source / "class0" / "pipe.jpg")
    [split] = pack(source, tmp_path / "x.fl", on_error="skip").splits
    assert split.records == 5
    assert [failure.key for failure in split.skipped] == ["class0/pipe.jpg"]


class Samples:
    """A dataset of the samples passed to it."""

    def __init__(self, *samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        if isinstance(sample, BaseException):
            raise sample
        return sample


class OddError(Exception):
    """An error that cannot be rebuilt from its own arguments, like those of many libraries."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize(
    "error", [OddError(1, 2), OSError(5, "I/O"), KeyError("x"), MemoryError(), EOFError()], ids=repr
)
def test_error_of_a_dataset_names_the_sample(tmp_path, error):
    dataset = Samples((pixels(0), 0), (pixels(1), 1), error)
    with pytest.raises(SourceError, match=f"sample 2: {type(error).__name__}"):
        pack(dataset, tmp_path / "x.fl", workers=1)
    [split] = pack(dataset, tmp_path / "x.fl", workers=1, on_error="skip").splits
    assert [failure.key for failure in split.skipped] == ["00000002"]


@pytest.mark.parametrize(
    "odd",
    [
        {"label": 1, "score": 0.5},  # a value short
        {"label": 1, "score": 0.5, "box": [[1, 2]]},  # another shape
        {"label": 0.5, "score": 0.5, "box": [1, 2]},  # no integer
        {"label": 1, "score": "high", "box": [1, 2]},
        {"label": 2**70, "score": 0.5, "box": [1, 2]},
        {"label": 1, "score": 0.5, "box": [1, 2], "more": 1},
    ],
    ids=str,
)
def test_sample_unlike_the_first_is_named(tmp_path, odd):
    dataset = Samples((pixels(0), {"label": 0, "score": 0.5, "box": [1, 2]}), (pixels(1), odd))
    with pytest.raises(SourceError, match="sample 1"):
        pack(dataset, tmp_path / "x.fl")


def test_kept_record_whose_values_do_not_fit_is_skipped_alone(tmp_path):
    dataset = Samples(
        (GOOD, {"label": 0, "boxes": np.zeros((1, 4))}),
        (b"bad", {"label": 0, "boxes": np.zeros((1, 4))}),
        (b"bad", {"label": "x", "boxes": np.zeros((1, 4))}),
    )
    [split] = pack(dataset, tmp_path / "x.fl", on_error="keep", encode="keep").splits
    assert split.records == 2
    assert [failure.key for failure in split.kept] == ["00000001"]
    assert [failure.key for failure in split.skipped] == ["00000002"]


def test_bad_second_image_is_kept_out_with_skip_and_keep(tmp_path):
    fields = [Field("mask", "image", encoding="keep")]
    dataset = Samples(*((GOOD, {"mask": mask}) for mask in (GOOD_PNG, b"bad")))
    for on_error in ("skip", "keep"):
        dest = tmp_path / f"{on_error}.fl"
        [split] = pack(dataset, dest, on_error=on_error, encode="keep", fields=fields).splits
        assert split.records == 1
        assert [failure.key for failure in split.skipped] == ["00000001"]
        assert not split.kept


def test_record_that_is_bad_twice_is_listed_once(tmp_path):
    fields = [Field("mask", "image", encoding="keep")]
    dataset = Samples((GOOD, {"mask": GOOD_PNG}), (b"bad", {"mask": b"bad"}))
    [split] = pack(dataset, tmp_path / "x.fl", on_error="keep", encode="keep", fields=fields).splits
    assert len(split.kept) + len(split.skipped) == 1
    assert split.records == 1 + len(split.kept)


@pytest.mark.parametrize(
    "fields",
    [
        [Field("label", "scalar", "int64"), Field("label", "text")],
        [Field("image", "text")],
        [Field("image", "image", encoding="keep")],
        ["label"],
    ],
    ids=str,
)
def test_fields_that_contradict_each_other_are_refused_at_once(tmp_path, fields):
    dataset = Samples((GOOD, {"label": 1}))
    with pytest.raises(OptionError, match=r"field|encoding"):
        pack(dataset, tmp_path / "x.fl", fields=fields)
    assert not list(tmp_path.iterdir())


def test_error_for_tiled_without_jpegtran_tells_how_to_get_it(tmp_path, monkeypatch):
    from fastload.images.jpegtran import find_jpegtran

    source = class_folders(tmp_path / "photos", 3)
    monkeypatch.setenv("PATH", str(tmp_path))
    find_jpegtran.cache_clear()
    try:
        with pytest.raises(ToolMissingError, match="libjpeg-turbo-progs"):
            pack(source, tmp_path / "x.fl", encode="tiled")
    finally:
        find_jpegtran.cache_clear()
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


class Closed(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_error_of_the_progress_callback_is_raised_unchanged(tmp_path):
    source = class_folders(tmp_path / "photos", 30)

    def fail(progress):
        raise ZeroDivisionError

    def leave(progress):
        Closed().write("x")

    with pytest.raises(ZeroDivisionError):
        pack(source, tmp_path / "x.fl", progress=fail)
    with pytest.raises(BrokenPipeError):
        pack(source, tmp_path / "x.fl", progress=leave)
    assert pack(source, tmp_path / "x.fl").records == 30


def test_a_destination_that_cannot_be_written_to_is_refused(tmp_path):
    source = class_folders(tmp_path / "photos", 3)
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError, match=r"file/.*choose a destination"):
        pack(source, tmp_path / "file" / "x.fl")
    with pytest.raises(DestinationError, match="File name too long"):
        pack(source, tmp_path / ("x" * 250))
    if os.path.isdir("/proc/self"):
        with pytest.raises(DestinationError, match="/proc/"):
            pack(source, "/proc/x.fl")

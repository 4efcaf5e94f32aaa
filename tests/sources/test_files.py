import os
import pickle
import posixpath

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastload.errors import AccessError, SourceError
from fastload.sources.files import list_files, safe_key
from fastload.sources.protocol import evenly_spaced


def listed(folder, names):
    return list_files(str(folder), names)


@pytest.mark.parametrize("size", [0, 1, 4096, 3_000_001])
def test_file_is_read_whole(tmp_path, size):
    data = np.random.default_rng(0).bytes(size)
    (tmp_path / "a.jpg").write_bytes(data)
    files = listed(tmp_path, ["a.jpg"])
    assert files.read(0) == data
    assert files.sizes_bytes.tolist() == [size]
    assert files.times_ns.tolist() == [(tmp_path / "a.jpg").stat().st_mtime_ns]


def test_missing_file_is_named(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"a")
    files = listed(tmp_path, ["a.jpg"])
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(SourceError, match=r"a\.jpg: must be a file .*No such file") as caught:
        files.read(0)
    assert str(tmp_path) in str(caught.value)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize(("now", "got"), [(b"12345", "got more"), (b"123", "got 3")])
def test_file_that_changed_after_listing_is_refused(tmp_path, now, got):
    (tmp_path / "a.jpg").write_bytes(b"1234")
    files = listed(tmp_path, ["a.jpg"])
    (tmp_path / "a.jpg").write_bytes(now)
    with pytest.raises(SourceError, match=rf"a\.jpg: must have the 4 bytes.*{got}"):
        files.read(0)


@pytest.mark.parametrize("name", ["gone.jpg", "a\0b.jpg", "n" * 300 + ".jpg"])
def test_name_without_a_file_is_an_error_only_when_it_is_read(tmp_path, name):
    files = listed(tmp_path, [name])
    assert len(files) == 1
    with pytest.raises(SourceError, match="must be a file that can be read"):
        files.read(0)


def test_folder_named_like_an_image_is_an_error_when_it_is_read(tmp_path):
    (tmp_path / "a.jpg").mkdir()
    with pytest.raises(SourceError, match="Is a directory"):
        listed(tmp_path, ["a.jpg"]).read(0)


@pytest.mark.timeout(10)
def test_pipe_named_like_an_image_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "a.jpg")
    assert listed(tmp_path, ["a.jpg"]).read(0) == b""


def test_file_too_large_for_any_decoder_is_refused_unread(tmp_path):
    (tmp_path / "a.jpg").touch()
    os.truncate(tmp_path / "a.jpg", 1 << 40)
    with pytest.raises(
        SourceError, match=r"a\.jpg: must have at most 2,147,483,647 bytes .*1,099,511,627,776"
    ):
        listed(tmp_path, ["a.jpg"]).read(0)


def test_too_few_descriptors_are_an_access_error(tmp_path):
    resource = pytest.importorskip("resource")
    (tmp_path / "a.jpg").write_bytes(b"a")
    files = listed(tmp_path, ["a.jpg"])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(AccessError, match="ulimit -n"):
            files.read(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="needs /dev/fd to count open files")
def test_reading_leaves_no_file_open(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"a")
    files = listed(tmp_path, ["a.jpg", "gone.jpg"])
    before = os.listdir("/dev/fd")
    files.read(0)
    with pytest.raises(SourceError):
        files.read(1)
    assert os.listdir("/dev/fd") == before


def test_absolute_names_are_not_relative_to_the_folder(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"a")
    files = listed(tmp_path / "elsewhere", [str(tmp_path / "a.jpg")])
    assert files.read(0) == b"a"


def test_listing_survives_a_pickle(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"a")
    files = pickle.loads(pickle.dumps(listed(tmp_path, ["a.jpg"])))
    assert files.read(0) == b"a"


@given(st.text(st.sampled_from("ab./\\\udcff")))
@example("/etc/passwd")
@example("..")
@example("a/../../b.jpg")
def test_key_stays_within_its_folder(path):
    key = safe_key(path)
    assert not key.startswith("/")
    assert ".." not in key.split("/")
    assert safe_key(key) == key
    inside = posixpath.normpath(posixpath.join("/folder", key))
    assert inside == "/folder" or inside.startswith("/folder/")


@pytest.mark.parametrize("path", ["a.jpg", "cat/a b.jpg", "..a/b..jpg", "ä/\udcff.jpg", "a\\b.jpg"])
def test_key_of_a_plain_relative_path_is_that_path(path):
    assert safe_key(path) == path


@given(st.integers(0, 10_000), st.integers(0, 300))
def test_spaced_indices_are_different_ascending_and_inside(length, count):
    indices = evenly_spaced(length, count)
    assert len(indices) == min(length, count)
    assert indices == sorted(set(indices))
    assert all(0 <= index < length for index in indices)


@given(st.integers(1, 10_000), st.integers(1, 300))
def test_spaced_indices_leave_equal_gaps(length, count):
    gaps = np.diff(evenly_spaced(length, count))
    assert gaps.size == 0 or gaps.max() - gaps.min() <= 1

"""Properties of every kind of source, and the choice of a source for a path."""

import collections
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import fastload.sources
from fastload.errors import SourceError
from fastload.sources import open_source


class Shades:
    """A dataset that a spawned process can import."""

    classes = ("dark", "light")

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return np.full((2, 2), index, np.uint8), index


@pytest.fixture(params=["folder", "flat", "table", "dataset"])
def source(request, make_tree):
    """One source of each kind, with five records."""
    if request.param == "dataset":
        return open_source(Shades())[""]
    place = "cat/" if request.param == "folder" else ""
    root = make_tree(f"{place}{number}\udcff.jpg" for number in range(5))
    if request.param == "table":
        rows = "".join(f"{number}\udcff.jpg,c{number},note\n" for number in range(5))
        (root / "table.csv").write_bytes(rows.encode("utf-8", "surrogateescape"))
        return open_source(root / "table.csv")[""]
    [source] = open_source(root).values()
    return source


def read_again(source, index):
    record = source.read(index)
    return record.key, np.asarray(record.image).tobytes(), record.values, source.fingerprint()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_records_read_in_another_process_are_the_same(source, method):
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        there = list(pool.map(read_again, [source] * 5, range(5)))
    assert there == [read_again(source, index) for index in range(5)]


def test_every_source_fulfils_the_protocol(source, request):
    assert source.kind == request.node.callspec.params["source"]
    assert source.name
    assert len(source) == 5
    assert [field.name for field in source.fields] == list(source.read(4).values)
    assert all(isinstance(name, str) for name in source.classes)
    assert all(isinstance(warning, str) for warning in source.warnings)
    fingerprint = source.fingerprint()
    assert fingerprint is None if source.kind == "dataset" else int(fingerprint, 16) >= 0
    assert source.key(3) == source.read(3).key


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "no such file or folder"),
        ("photos.fl", "got a packed dataset: unpack it first with 'fastload unpack"),
        ("photos.fl/", "got a packed dataset"),
        ("photos.zip", r"must be a folder of class folders.*\.csv.*got packed archives: unpack them first"),
        ("photo.jpg", "got a single image: name its folder"),
        ("data.mdb", "must be an LMDB database, got"),
        ("notes.odt", "got another kind of file: name the folder"),
    ],
)
def test_other_paths_are_refused_by_name(tmp_path, name, message):
    (tmp_path / "photos.fl").mkdir()
    for other in ("photos.zip", "photo.jpg", "data.mdb", "notes.odt"):
        (tmp_path / other).touch()
    with pytest.raises(SourceError, match=f"{name}: .*{message}"):
        open_source(f"{tmp_path}/{name}")


def test_path_that_cannot_be_followed_is_refused(tmp_path):
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    with pytest.raises(SourceError, match="no such file or folder"):
        open_source(tmp_path / "loop.csv")


def test_public_names_are_there():
    assert all(hasattr(fastload.sources, name) for name in fastload.sources.__all__)


def test_each_folder_is_listed_once(make_tree, monkeypatch):
    root = make_tree(f"{name}/{number}.jpg" for name in ("cat", "dog") for number in range(3))
    listed, scandir = collections.Counter(), os.scandir

    def counting(path):
        listed[os.path.normpath(path)] += 1
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    assert len(open_source(root)[""]) == 6
    (root / "cat" / "3.jpg").write_bytes((root / "cat" / "0.jpg").read_bytes())
    assert len(open_source(root)[""]) == 7
    assert set(listed.values()) == {2}

"""Malformed containers of other programs: an error that names file and record, never wrong data."""

import pickle
import re
import struct

import pytest

from fastload.errors import SourceError
from fastload.sources import open_source
from tests.layouts.containers import crnn, image, stylegan2, write_lmdb


def without(entries, key):
    return {name: value for name, value in entries.items() if name != key}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (crnn() | {b"num-samples": b"many"}, "key 'num-samples': must be the number of images, got b'many'"),
        (crnn() | {b"num-samples": b"9999"}, "key 'num-samples': must be the number"),
        (without(crnn(), b"image-000000002"), "key 'image-000000002': must exist"),
        (without(crnn(), b"label-000000001"), "key 'label-000000001': must exist"),
        (crnn() | {b"num-samples": b"0"}, "must hold at least one image"),
        ({b"0": pickle.dumps((image(0), 1)), b"__len__": pickle.dumps(1)}, "key '0': must be an image file"),
        (stylegan2() | {b"length": b"x"}, "key 'length': must be the number"),
        (crnn() | {b"num-samples": b"9" * 6000}, "key 'num-samples': must be the number"),
        ({b"length": b"1", b"other": b"x"}, "must have keys such as '256-00000'"),
        (without(stylegan2(), b"16-00000"), "key '16-00000': must exist"),
        ({b"a": b"no image"}, "key 'a': must be an image file, or the database one of CRNN"),
        ({}, "must hold at least one image"),
    ],
    ids=lambda value: re.sub(r"\W+", " ", value)[:40] if isinstance(value, str) else "",
)
def test_a_malformed_database_is_named_with_the_key(tmp_path, entries, message):
    path = write_lmdb(tmp_path / "base", entries)
    with pytest.raises(SourceError, match=rf"base.*{message}"):
        open_source(path)[""].read(0)


def test_a_database_that_was_cut_off_is_refused(tmp_path):
    path = write_lmdb(tmp_path / "base", crnn(40)) / "data.mdb"
    whole = path.read_bytes()
    for cut in (0, 100, 4096, 3 * 4096):
        path.write_bytes(whole[:cut])
        with pytest.raises(SourceError, match=r"base: must (have its .* bytes|be an LMDB database)"):
            open_source(path.parent)


def test_lines_beside_a_database_must_name_images(tmp_path):
    path = write_lmdb(tmp_path / "base", {b"a": image(0, ".png")})
    for line, message in [("a.png", "must have lines like"), ("b.png (16,20,3) 1", "key 'b': must exist")]:
        (path / "meta_info.txt").write_text(line + "\n")
        with pytest.raises(SourceError, match=message):
            open_source(path)


def test_entries_of_no_record_are_told(tmp_path):
    path = write_lmdb(tmp_path / "base", crnn() | {b"num-samples": b"2"})
    assert open_source(path)[""].warnings == (f"{path} has 4 entries of no record, which are left out",)


# --- Sizes that a header states and nothing bears out. ------------------------------------------------------


@pytest.mark.parametrize(("layout", "missing"), [(crnn, "image-000000005"), (stylegan2, "32-00003")])
def test_a_database_of_more_entries_than_it_has_is_refused_at_the_first(tmp_path, layout, missing):
    stated = b"%d" % 10**11
    entries = layout() | {b"num-samples" if layout is crnn else b"length": stated}
    data = write_lmdb(tmp_path / "x.lmdb", entries) / "data.mdb"
    content = bytearray(data.read_bytes())
    for page in (0, 4096):  # both have the number of entries of the main database at this place
        content[page + 120 : page + 128] = struct.pack("<Q", 2 * 10**11)
    data.write_bytes(content)
    with pytest.raises(SourceError, match=f"key '{missing}': must exist"):
        open_source(tmp_path / "x.lmdb")

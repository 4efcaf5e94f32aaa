"""Malformed containers of other programs: an error that names file and record, never wrong data."""

import contextlib
import os
import pickle
import re
import struct
import zlib

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload import pack
from fastload.errors import SourceError
from fastload.sources import open_source
from fastload.sources.databases.storage import read_plain
from tests.layouts.containers import crnn, image, pickled, stylegan2, write_biggan, write_lmdb


class Malicious:
    """An object whose unpickling runs a command."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


@settings(deadline=None)
@given(PLAIN, st.sampled_from(range(6)))
def test_plain_values_are_those_of_pickle(value, protocol):
    found = read_plain(pickle.dumps(value, protocol), "x")
    assert found == value
    assert repr(found) == repr(value)


@settings(deadline=None)
@given(PLAIN, st.integers(0, 200), st.integers(1, 255))
def test_a_damaged_pickle_is_a_value_or_an_error(value, at, flip):
    data = bytearray(pickle.dumps(value))
    data[at % len(data)] ^= flip
    for damaged in (bytes(data), bytes(data[: at % len(data)])):
        with contextlib.suppress(SourceError):
            read_plain(damaged, "x")


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value",
    [np.float64(1.0), {"a": 1}, {1}, Exception("x"), os.getcwd, complex(1), bytearray(b"x")],
    ids=["array scalar", "dict", "set", "exception", "function", "complex", "bytearray"],
)
def test_other_values_are_refused(value, protocol):
    with pytest.raises(SourceError, match=r"^x: must be a pickle of bytes, numbers, text"):
        read_plain(pickle.dumps((b"", value), protocol), "x")


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_is_never_run(tmp_path, protocol):
    sign = tmp_path / "run"
    evil = pickle.dumps((image(0), Malicious(sign)), protocol)
    path = write_lmdb(tmp_path / "evil", pickled() | {b"1": evil})
    source = open_source(path)[""]
    with pytest.raises(SourceError, match=r"evil, key '1': must be a pickle of bytes.*it could run code|old"):
        source.read(1)
    [split] = pack(path, tmp_path / "x.fl", on_error="skip", workers=1).splits
    assert [each.key for each in split.skipped] == ["1"]
    whole = write_lmdb(tmp_path / "worse", {b"__len__": evil, b"__keys__": evil})
    with pytest.raises(SourceError, match="key '__keys__': must be a pickle"):
        open_source(whole)
    assert not sign.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04N" + b"r" + struct.pack("<I", 2**32 - 1) + b".",
        b"Np" + b"9" * 18 + b"\n.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
        b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",
        b"\x80\x04B" + struct.pack("<I", 2**32 - 1) + b"x.",
        b"\x80\x02c__builtin__\nbytes\n\x8b\x05\0\0\0\0\xe4\x0bT\x02\x85R.",
        b"c_codecs\nencode\n(Vx\nVutf-16\ntR.",
        b"c_codecs\nencode\n(VX\nVlatin1\ntR}Vx\nNsb.",
        b"\x80\x02c_codecs\nencode\n)\x81.",
        b"Pid\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"cos\nsystem\n(Vtrue\ntR.",
        b"]q\x00h\x00a" * 2 + b"0h\x01.",
        b"(" * 1000 + b".",
        b"",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_hostile_pickles_are_refused_before_memory_is_taken(data):
    with pytest.raises(SourceError, match=r"^x: must be a pickle of bytes, numbers, text"):
        read_plain(data, "x")


def test_a_list_that_holds_itself_does_no_harm(tmp_path):
    endless = b"]q\x00h\x00a."
    path = write_lmdb(tmp_path / "base", pickled() | {b"__len__": endless})
    with pytest.raises(SourceError, match="must list its number of keys"):
        open_source(path)
    path = write_lmdb(tmp_path / "other", pickled() | {b"0": endless})
    with pytest.raises(SourceError, match=r"must be .bytes of an image, integer label., got"):
        open_source(path)[""].read(0)


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
        (without(pickled(), b"__keys__"), "key '__keys__': must exist"),
        (pickled() | {b"__len__": pickle.dumps(3)}, "must list its 3 keys"),
        (
            pickled() | {b"0": pickle.dumps(b"x")},
            "key '0': must be .bytes of an image, .*, got bytes",
        ),
        (pickled() | {b"0": pickle.dumps((b"x", "1"))}, r"key '0': must be .*got \['bytes', 'str'\]"),
        (pickled() | {b"0": b"\xff\xff\xff\xffARROW"}, "key '0': .*records of old releases of pyarrow"),
        (stylegan2() | {b"length": b"x"}, "key 'length': must be the number"),
        (crnn() | {b"num-samples": b"9" * 6000}, "key 'num-samples': must be the number"),
        (pickled() | {b"0": pickle.dumps((b"x", 2**63))}, "key '0': must be .bytes of an image, integer"),
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


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("imgs", np.zeros((5, 8, 8, 3), np.uint8)),
        ("imgs", np.zeros((5, 3, 8, 8), np.float32)),
        ("labels", np.zeros(4, np.int64)),
        ("labels", np.zeros(5, np.float32)),
    ],
    ids=["channels", "floats", "fewer labels", "labels of floats"],
)
def test_an_hdf5_file_of_another_layout_is_refused(tmp_path, name, array):
    path = write_biggan(tmp_path / "x.hdf5")
    with h5py.File(path, "a") as file:
        del file[name]
        file[name] = array
    with pytest.raises(SourceError, match=rf"x\.hdf5: must hold .*'{name}'"):
        open_source(path)


@pytest.mark.parametrize("kind", ["link", "storage", "virtual"])
def test_an_hdf5_file_gives_no_data_of_other_files(tmp_path, kind):
    path, shape = write_biggan(tmp_path / "x.hdf5"), (5, 3, 8, 8)
    with h5py.File(path, "a") as file:
        del file["imgs"]
        if kind == "link":
            h5py.File(tmp_path / "y.h5", "w").create_dataset("imgs", shape, np.uint8)
            file["imgs"] = h5py.ExternalLink("y.h5", "imgs")
        elif kind == "storage":
            file.create_dataset("imgs", shape, np.uint8, external=[(str(path), 0, h5py.h5f.UNLIMITED)])
        else:
            layout = h5py.VirtualLayout(shape, np.uint8)
            layout[:] = h5py.VirtualSource("y.h5", "imgs", shape)
            file.create_virtual_dataset("imgs", layout)
    with pytest.raises(SourceError, match=r"x\.hdf5: must hold its own 'imgs'"):
        open_source(path)


@pytest.mark.parametrize("shape", [(5, 3, 0, 8), (5, 3, 1 << 20, 1 << 20)])
def test_an_hdf5_file_of_impossible_images_is_refused(tmp_path, shape):
    path = write_biggan(tmp_path / "x.hdf5")
    with h5py.File(path, "a") as file:
        del file["imgs"]
        file.create_dataset("imgs", shape, np.uint8, chunks=(1, 1, 8, 8) if shape[2] else None)
    with pytest.raises(SourceError, match="images of at most"):
        open_source(path)


def test_entries_of_no_record_are_told(tmp_path):
    path = write_lmdb(tmp_path / "base", crnn() | {b"num-samples": b"2"})
    assert open_source(path)[""].warnings == (f"{path} has 4 entries of no record, which are left out",)


def test_a_truncated_hdf5_file_is_named(tmp_path):
    path = write_biggan(tmp_path / "x.hdf5")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"x\.hdf5: must be a complete HDF5 file"):
        open_source(path)


# --- Sizes that a header states and nothing bears out. ------------------------------------------------------


@pytest.mark.parametrize("hollow", ["imgs", "labels"])
@pytest.mark.parametrize("chunks", [True, False])
def test_an_hdf5_file_of_unwritten_data_is_refused_before_memory_is_taken(tmp_path, hollow, chunks):
    """A file of some KB states 10**9 images or labels; HDF5 would make them up."""
    count = 10**9 if hollow == "imgs" else 4
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        shapes = {"imgs": (count, 3, 16, 16), "labels": (count,)}
        for name, dtype in (("imgs", "u1"), ("labels", "i8")):
            layout = {"chunks": (1, 3, 16, 16) if name == "imgs" else (1,)} if chunks else {}
            dataset = file.create_dataset(name, shapes[name], dtype, **layout)
            if hollow == "labels" and name == "imgs":
                dataset[:] = 1
    assert os.path.getsize(tmp_path / "x.hdf5") < 20_000
    with pytest.raises(
        SourceError, match=rf"x\.hdf5: must hold all [\d,]+ (chunks|bytes) of '{hollow}', got 0"
    ):
        open_source(tmp_path / "x.hdf5")


def test_an_hdf5_file_that_lacks_some_of_its_chunks_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        images = file.create_dataset("imgs", (5, 3, 16, 16), "u1", chunks=(2, 3, 16, 16))
        images[:4] = 1  # the last chunk is missing
        file["labels"] = np.arange(5)
    with pytest.raises(SourceError, match="must hold all 3 chunks of 'imgs', got 2"):
        open_source(tmp_path / "x.hdf5")


def test_an_hdf5_file_of_labels_that_shrink_to_nothing_is_refused(tmp_path):
    count = 10**7
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        blank = {"compression": "gzip", "compression_opts": 9}
        images = file.create_dataset("imgs", (count, 3, 1, 1), "u1", chunks=(count, 3, 1, 1), **blank)
        images.id.write_direct_chunk((0, 0, 0, 0), zlib.compress(bytes(3 * count)))
        labels = file.create_dataset("labels", (count,), "i8", chunks=(count,), **blank)
        labels.id.write_direct_chunk((0,), zlib.compress(bytes(8)))
    with pytest.raises(SourceError, match="must hold at most an image a byte, got 10,000,000 in"):
        open_source(tmp_path / "x.hdf5")


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

"""The manifest: round trips, refusal of every damage, and errors for folders without a dataset."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.errors import FormatError
from fastload.shards.manifest import (
    FORMAT_VERSION,
    Manifest,
    ShardEntry,
    Skipped,
    is_packed,
    packed_datasets,
    packed_splits,
    read_manifest,
)
from fastload.shards.schema import Field

TINY = Manifest(
    container="hdf5",
    fields=(Field("image", "image", encoding="keep"), Field.label()),
    classes=("cat", "dög", "sha256\": \"00"),
    shards=(ShardEntry("shard-00000.h5", 3, 5000, "0a1b2c3d", {"label": "00c0ffee"}, "0f" * 16),),
    made={"fastload": "0.1.0"},
    skipped=(Skipped("cat/x\udcff.jpg", "empty"),),
)  # fmt: skip


def written(folder, manifest):
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


TEXTS = st.text(st.characters(codec=None), max_size=20)
CRCS = st.from_regex("[0-9a-f]{8}", fullmatch=True)
NAMES = st.from_regex(r"shard-[0-9]{5,7}\.lmdb", fullmatch=True)
IDENTITIES = st.from_regex("[0-9a-f]{32}", fullmatch=True)


@given(
    classes=st.lists(TEXTS),
    shards=st.lists(
        st.builds(
            ShardEntry,
            NAMES,
            st.integers(1, 2**40),
            st.integers(2**45, 2**50),
            CRCS,
            st.fixed_dictionaries({"area": CRCS}),
            IDENTITIES,
        ),
        unique_by=(lambda shard: shard.file, lambda shard: shard.identity),
    ),
    failures=st.lists(st.builds(Skipped, TEXTS, TEXTS)),
    shape=st.none() | st.tuples(*[st.integers(1, 2**31)] * 3),
)
def test_any_manifest_round_trips(classes, shards, failures, shape):
    fields = (
        Field("image", "image", encoding="raw"),
        Field("boxes", "ragged", "float32", (4,)),
        Field("area", "scalar", "float64"),
    )
    manifest = Manifest(
        "lmdb", fields, tuple(classes), tuple(shards), {"by": "test"}, shape, tuple(failures), tuple(failures)
    )
    assert Manifest.from_bytes(manifest.to_bytes(), "here") == manifest


def test_every_flipped_bit_is_refused():
    data = TINY.to_bytes()
    Manifest.from_bytes(data, "here")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError, match="here"):
            Manifest.from_bytes(bytes(flipped), "here")


def test_every_truncation_is_refused():
    data = TINY.to_bytes()
    for size in range(len(data)):
        with pytest.raises(FormatError, match="here"):
            Manifest.from_bytes(data[:size], "here")


@pytest.mark.parametrize("more", [b" ", b"\n", b"\0", b"{}", b"x"])
def test_appended_bytes_are_refused(more):
    with pytest.raises(FormatError):
        Manifest.from_bytes(TINY.to_bytes() + more, "here")


def test_digest_is_the_sha256_with_its_own_digits_as_zeros():
    data = TINY.to_bytes()
    digest = json.loads(data)["sha256"].encode()
    assert hashlib.sha256(data.replace(digest, b"0" * 64, 1)).hexdigest().encode() == digest


def test_manifest_is_ascii_json():
    data = TINY.to_bytes()
    assert data.isascii()
    assert json.loads(data)["records"] == 3


def test_newer_version_says_what_to_install():
    data = TINY.to_bytes().replace(b'"version": 2', b'"version": %d' % (FORMAT_VERSION + 1))
    with pytest.raises(FormatError, match=r"install a newer one \(pip install \. in a checkout"):
        Manifest.from_bytes(data, "here")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b'{"format": "webdataset"}', b"\xff\xfe\x00"])
def test_foreign_json_is_refused(data):
    with pytest.raises(FormatError, match="here"):
        Manifest.from_bytes(data, "here")


def resealed(**changes):
    """Return a manifest with changed content and a right digest."""
    content = json.loads(TINY.to_bytes()) | changes | {"sha256": "0" * 64}
    blank = json.dumps(content, indent=1).encode()
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"shards": [{"file": "x"}]},
        {"shards": 3},
        {"fields": [{"name": "image"}]},
        {"fields": [{"name": "key", "kind": "scalar", "dtype": "int8"}]},
        {"fields": [{"name": "x", "kind": "scalar", "dtype": "complex64"}]},
        {"fields": []},
        {"fields": [{"name": "label", "kind": "scalar", "dtype": "int64"}]},
        {"image_shape": [1]},
        {"image_shape": 5},
        {"container": "zip"},
        {"container": None},
        {"classes": None},
    ],
)
def test_malformed_manifest_with_a_right_digest_is_refused(changes):
    with pytest.raises(FormatError, match=r"here|describes a field"):
        Manifest.from_bytes(resealed(**changes), "here")


@pytest.mark.parametrize("name", ["../shard-00000.h5", "/etc/passwd", "a/b.h5", "..", "", "a\\b.h5"])
def test_a_shard_outside_of_the_folder_is_refused(name):
    shard = {"file": name, "records": 1, "size_bytes": 1, "crc32c": "00000000"}
    with pytest.raises(FormatError, match="here"):
        Manifest.from_bytes(resealed(shards=[shard]), "here")


def test_missing_folder_says_how_to_make_it(tmp_path):
    with pytest.raises(FormatError, match=r"no such folder; 'fastload pack SOURCE .*photos\.fl'"):
        read_manifest(tmp_path / "photos.fl")


def test_folder_of_images_says_how_to_pack_it(tmp_path):
    with pytest.raises(FormatError, match="is not a packed dataset"):
        read_manifest(tmp_path)


def test_folder_of_splits_names_them(tmp_path):
    for split in ("train", "val"):
        written(tmp_path / "both" / f"{split}.fl", TINY)
    with pytest.raises(FormatError, match=r"several.*train\.fl.*val\.fl"):
        read_manifest(tmp_path / "both")
    assert packed_datasets(tmp_path / "both") == packed_splits(tmp_path / "both")
    assert [path.name for path in packed_datasets(tmp_path / "both")] == ["train.fl", "val.fl"]


def test_a_split_with_a_damaged_manifest_is_still_listed(tmp_path):
    for split in ("train", "val"):
        written(tmp_path / f"{split}.fl", TINY)
    damaged = bytearray(TINY.to_bytes())
    damaged[5] ^= 1  # in "format", by which a manifest is recognised
    (tmp_path / "val.fl" / "manifest.json").write_bytes(damaged)
    assert [path.name for path in packed_datasets(tmp_path)] == ["train.fl", "val.fl"]


def test_other_programs_manifests_are_not_recognised(tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    assert not is_packed(tmp_path)


def test_folder_with_the_name_of_a_manifest_makes_no_dataset(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(FormatError):
        read_manifest(tmp_path)
    assert not is_packed(tmp_path)

"""Whatever a manifest or a shard says, reading it ends in a FormatError or a DamageError, and at once."""

import contextlib
import copy
import hashlib
import json
import os
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest

import fastload
from fastload.cli.main import main
from fastload.errors import DamageError, DecodeError, FormatError
from fastload.packing.verify import verify
from fastload.shards.checksum import file_crc32c
from fastload.shards.manifest import Manifest, read_manifest
from fastload.shards.records import RecordReader
from fastload.shards.schema import Field
from tests.folders import class_folders, encoded, pixels
from tests.shards.test_records import write_dataset


@pytest.fixture(scope="module", params=["hdf5", "lmdb"])
def original(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    class_folders(root / "photos", count=12, size=(8, 8))
    options = {"format": request.param, "encode": "jpeg", "workers": 1, "shard_size": 4096}
    fastload.pack(root / "photos", root / "photos.fl", **options)
    return root / "photos.fl"


@pytest.fixture
def dataset(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy.fl")


def sealed(content):
    """A manifest of any content, with a right digest."""
    content = content | {"sha256": "0" * 64}
    blank = json.dumps(content, indent=1).encode()
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(content, path, value):
    content = copy.deepcopy(content)
    target = content
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return content


def deep(levels):
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(2**70), 1.5, 1e300, float("nan"),
    "", "x", "0" * 8, "\ud800", "../x", "a" * 100_000, [], [[]], [None], [1, 2, 3], {}, {"a": 1}, deep(100),
]  # fmt: skip


def read_all(path):
    """Does with a dataset what users do; anything but our own refusals fails the test."""
    refusals = (FormatError, DamageError, DecodeError)
    try:
        dataset = fastload.PackedDataset(path)
    except refusals:
        return
    for read in (lambda: dataset.targets, lambda: dataset.fetch_into(range(len(dataset)), Memory())):
        with contextlib.suppress(refusals):
            read()
    for index in range(min(len(dataset), 8)):
        try:
            dataset[index]
            {field.name: dataset.read(index)[field.name] for field in read_manifest(path).fields}
        except refusals:
            pass


class Memory:
    finishes_on_device = False

    def empty(self, shape, dtype):
        import torch

        assert np.prod(shape) < 1e9
        return torch.empty(shape, dtype=dtype)


def test_every_value_of_a_manifest_replaced_by_any_other_is_refused_or_read(dataset):
    content = json.loads((dataset / "manifest.json").read_bytes())
    for path in places(content):
        if path in ((), ("sha256",)):
            continue
        for value in VALUES:
            (dataset / "manifest.json").write_bytes(sealed(changed(content, path, value)))
            try:
                manifest = read_manifest(dataset)
            except FormatError:
                continue
            assert Manifest.from_bytes(manifest.to_bytes(), "again") == manifest or "made" in path
            if path[0] != "made":
                read_all(dataset)


def test_every_member_of_a_manifest_that_is_missing_is_refused(dataset):
    content = json.loads((dataset / "manifest.json").read_bytes())
    for path in places(content):
        if not path or not isinstance(path[-1], str) or (path[0] == "made" and len(path) > 1):
            continue
        less = copy.deepcopy(content)
        target = less
        for key in path[:-1]:
            target = target[key]
        del target[path[-1]]
        (dataset / "manifest.json").write_bytes(
            sealed(less) if path != ("sha256",) else json.dumps(less).encode()
        )
        with pytest.raises(FormatError):
            read_manifest(dataset)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"format":' * 100_000,
        b'{"format": "fastload", "made": ' + b"[" * 900 + b"]" * 900 + b"}",
        b"\xff\xfe" + '{"format": "fastload"}'.encode("utf-16-le"),
        b'{"format": "fastload", "version": ' + b"9" * 5000 + b"}",
    ],
    ids=["lists", "objects", "made", "utf-16", "number"],
)
def test_json_without_end_is_refused(dataset, data):
    (dataset / "manifest.json").write_bytes(data)
    with pytest.raises(FormatError):
        read_manifest(dataset)
    assert verify(dataset).damages


def test_a_member_given_twice_is_refused(dataset):
    data = (dataset / "manifest.json").read_bytes()
    twice = data.replace(b'"container"', b'"kept": [],\n "container"', 1)
    digest = json.loads(data)["sha256"].encode()
    blank = twice.replace(digest, b"0" * 64, 1)
    sealed_again = blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)
    (dataset / "manifest.json").write_bytes(sealed_again)
    with pytest.raises(FormatError, match="'kept' is given twice"):
        read_manifest(dataset)


@pytest.mark.parametrize("name", ["shard", "manifest.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "device"])
def test_what_is_no_regular_file_is_refused_at_once(dataset, name, kind):
    path = min(dataset.glob("shard-*")) if name == "shard" else dataset / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if kind == "loop" else "/dev/zero")
    assert main(["verify", "--quiet", str(dataset)]) != 0
    assert main(["info", str(dataset)]) in ((0,) if name == "shard" else (2,))
    with pytest.raises((DamageError, FormatError), match=path.name):
        fastload.PackedDataset(dataset)[0]


def test_a_terabyte_that_is_a_hole_is_refused_at_once(dataset):
    shard = min(dataset.glob("shard-*"))
    os.truncate(shard, 1 << 40)
    [damage] = verify(dataset).damages
    assert "size must be" in damage.message
    with pytest.raises(DamageError, match="size must be"):
        fastload.PackedDataset(dataset)[0]
    os.truncate(dataset / "manifest.json", 1 << 40)
    with pytest.raises(FormatError):
        fastload.PackedDataset(dataset)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.98])
def test_a_shard_that_is_cut_short_under_a_manifest_that_says_so_is_damaged(dataset, share):
    shard = min(dataset.glob("shard-*"))
    os.truncate(shard, int(shard.stat().st_size * share))
    content = json.loads((dataset / "manifest.json").read_text())
    entry = content["shards"][0]
    entry["size_bytes"], entry["crc32c"] = shard.stat().st_size, file_crc32c(shard)
    (dataset / "manifest.json").write_bytes(sealed(content))
    said = said_by_a_process_of_its_own(lambda: fastload.PackedDataset(dataset)[0])
    assert said.startswith("DamageError: ")
    assert verify(dataset, workers=1).damages


def said_by_a_process_of_its_own(check):
    """What a check raises in a forked process."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            check()
            said = "nothing"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


def as_nobody(check):
    """What a check raises for a user who is not root, who may read all."""

    def checked():
        if os.geteuid() == 0:
            os.setuid(65534)
        check()

    return said_by_a_process_of_its_own(checked)


@pytest.mark.parametrize("name", ["shard", "manifest.json", "."])
def test_a_file_that_may_not_be_read_is_not_called_damaged(original, name, tmp_path_factory):
    root = tmp_path_factory.mktemp("closed")
    for folder in (root, *root.parents):
        if folder.stat().st_uid == os.getuid() and folder != folder.parent and not folder.stat().st_mode & 1:
            folder.chmod(folder.stat().st_mode | 0o111)
    dataset = shutil.copytree(original, root / "copy.fl")
    dataset.chmod(0o755)
    for file in dataset.iterdir():
        file.chmod(0o644)
    path = min(dataset.glob("shard-*")) if name == "shard" else dataset / name
    path.chmod(0)
    try:
        said = as_nobody(lambda: fastload.PackedDataset(dataset)[0])
        assert said.startswith("AccessError")
        assert "Permission denied" in said
        assert str(path if name != "." else dataset) in said
        assert as_nobody(lambda: verify(dataset)).startswith("AccessError")
    finally:
        path.chmod(0o755)


def test_more_files_than_may_be_open_is_not_called_damage(dataset):
    import resource

    def check():
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        reader = RecordReader(dataset)
        lowest = os.open(os.devnull, os.O_RDONLY)  # what opens next would have this number
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        reader.read(0)

    assert said_by_a_process_of_its_own(check).startswith("AccessError")


def with_image(tmp_path, container, encoding, data, shape, **columns):
    """A dataset of one record, every checksum right."""
    row = {
        "key": b"a.jpg",
        "image": data,
        "image/shape": np.array(shape, "<u4").tobytes(),
        "image/grid": bytes(16),
        "image/tiles": b"",
    } | columns
    fields = (Field("image", "image", encoding=encoding),)
    return write_dataset(tmp_path / "x.fl", container, fields, [[row]])


JPEG, PNG, BMP = (encoded(pixels(0), suffix) for suffix in (".jpg", ".png", ".bmp"))
SHAPE = (24, 32, 3)


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
@pytest.mark.parametrize(
    ("encoding", "data", "shape", "said"),
    [
        ("keep", JPEG, (24, 33, 3), "header says"),
        ("keep", PNG, (24, 32, 1), "header says"),
        ("keep", BMP, (2**32 - 1, 32, 3), "header says"),
        ("keep", JPEG, (0, 0, 0), "no shape"),
        ("keep", JPEG, (24, 32, 7), "no image has"),
        ("jpeg", PNG, SHAPE, "no readable image"),
        ("raw", JPEG, SHAPE, "has 2,304 bytes"),
        ("yuv420", bytes(24 * 32 * 3), SHAPE, "has 1,152 bytes"),
        ("raw", bytes(24 * 32), (24, 32, 1), "3 channels"),
    ],
)
def test_what_is_falsely_said_of_an_image_is_found(tmp_path, container, encoding, data, shape, said):
    path = with_image(tmp_path, container, encoding, data, shape)
    [damage] = verify(path, workers=1).damages
    assert damage.record == 0
    assert said in damage.message
    assert "x.fl" in damage.message


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_tiles_that_lie_elsewhere_are_found(tmp_path, container):
    grid, tiles = np.array([20, 600, 16, 16], "<u4").tobytes(), np.array([50, 60], "<u2").tobytes()
    more = {"image/grid": grid, "image/tiles": tiles}
    path = with_image(tmp_path, container, "jpeg", JPEG, SHAPE, **more)
    [damage] = verify(path, workers=1).damages
    assert "tiles are not where" in damage.message


@pytest.mark.parametrize(
    "change",
    ["compressed", "chunked", "external file", "soft link", "external link", "virtual", "group", "dtype"],
)
def test_datasets_that_lie_elsewhere_or_otherwise_are_refused(tmp_path, change):
    path = with_image(tmp_path, "hdf5", "keep", JPEG, SHAPE)
    [shard] = path.glob("shard-*")
    os.mkfifo(tmp_path / "pipe")  # whoever opens it waits for ever
    with h5py.File(shard, "r+") as file:
        crcs = file["crc32c"][()]
        del file["crc32c"]
        if change == "compressed":
            file.create_dataset("crc32c", data=crcs, chunks=(1,), compression="gzip")
        elif change == "chunked":
            file.create_dataset("crc32c", data=crcs, chunks=(1,))
        elif change == "external file":
            file.create_dataset("crc32c", (1,), "<u4", external=[(str(tmp_path / "pipe"), 0, 4)])
        elif change == "soft link":
            file["elsewhere"] = crcs
            file["crc32c"] = h5py.SoftLink("/elsewhere")
        elif change == "external link":
            file["crc32c"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/crc32c")
        elif change == "virtual":
            layout = h5py.VirtualLayout((1,), "<u4")
            layout[:] = h5py.VirtualSource(str(tmp_path / "pipe"), "crc32c", (1,))
            file.create_virtual_dataset("crc32c", layout)
        elif change == "group":
            file.create_group("crc32c")
        else:
            file["crc32c"] = crcs.astype(np.float32)
    manifest = read_manifest(path)
    entry = replace(manifest.shards[0], size_bytes=shard.stat().st_size, crc32c=file_crc32c(shard))
    (path / "manifest.json").write_bytes(replace(manifest, shards=(entry,)).to_bytes())
    with pytest.raises(DamageError, match="crc32c"):
        fastload.PackedDataset(path)[0]
    assert verify(path, workers=1).damages

"""verify finds every change, and a changed record is never read as data."""

import faulthandler
import json
import os
import random
import shutil
import struct
import traceback
import zlib

import pytest

import fastload
from fastload.images.encoding_names import ENCODING_NAMES
from fastload.packing.verify import verify
from tests.commands import run
from tests.folders import class_folders, tree
from tests.hostile.sealing import sealed
from tests.images.samples import exif, file_of, photo

FLIPS, SOAKED_FLIPS = 25, 2000


@pytest.fixture(scope="module", params=["hdf5", "lmdb"])
def packed(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("verify")
    class_folders(root / "photos", count=24, size=(12, 16))
    fastload.pack(root / "photos", root / "photos.fl", format=request.param, shard_size=8000, workers=1)
    return root / "photos.fl"


@pytest.fixture
def copy(packed, tmp_path):
    return shutil.copytree(packed, tmp_path / "copy.fl")


def everything(path, verify):
    """Every sample of a dataset, None for each that is refused; None alone if opening is refused."""
    try:
        dataset = fastload.PackedDataset(path, verify=verify)
    except fastload.FastloadError:
        return None
    samples = []
    for index in range(len(dataset)):
        try:
            record = dataset.read(index)
            image, label = dataset[index]
            samples.append((record.key, bytes(record.stored("image")), label, image.numpy().tobytes()))
        except fastload.FastloadError:
            samples.append(None)
    return samples, dataset.classes


def flipped(path, seed):
    """Flip one random bit of a dataset's files; return the file and its original bytes."""
    rng = random.Random(seed)
    files = sorted(path.iterdir())
    file = rng.choice([*files, path / "manifest.json"])
    data = bytearray(file.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    original = file.read_bytes()
    file.write_bytes(data)
    return file, original


def _hands_out_changes(path, original, classes):
    """Return True if a sample or a class differs with `once` or `always`.

    In another process: LMDB may crash on a damaged tree, which is a loud refusal, but a refusal.
    """
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os._exit(max(_compare(path, when, original, classes) for when in ("once", "always")))
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (0, 1), "an error that is not fastload's"
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1


def _compare(path, when, original, classes):
    try:
        got = everything(path, when)
    except BaseException:
        traceback.print_exc()
        return 2
    if got is None:
        return 0
    same = got[1] == classes and all(a is None or a == b for a, b in zip(got[0], original, strict=True))
    return 0 if same else 1


def test_a_new_dataset_has_no_damage(packed):
    result = verify(packed)
    assert result.records == 24
    assert result.damages == ()
    assert result.size_bytes == sum(path.stat().st_size for path in packed.glob("shard-*"))


def test_a_flipped_bit_is_found_and_never_read_as_data(copy):
    _flip(copy, range(FLIPS))


@pytest.mark.soak
def test_each_of_many_flipped_bits_is_found_and_never_read_as_data(copy):
    _flip(copy, range(FLIPS, SOAKED_FLIPS))


def _flip(copy, seeds):
    original, classes = everything(copy, "always")
    assert None not in original
    for seed in seeds:
        file, content = flipped(copy, seed)
        result = verify(copy, workers=1)
        assert result.damages, f"flip {seed} in {file.name} was not found"
        assert {damage.file for damage in result.damages} == {file.name}
        assert not _hands_out_changes(copy, original, classes), f"flip {seed} in {file.name}"
        file.write_bytes(content)
    assert verify(copy).damages == ()


def test_every_damaged_record_is_named_and_no_other(copy):
    dataset = fastload.PackedDataset(copy)
    wanted = {3, 4, 17}
    images = {index: bytes(dataset.read(index).stored("image")) for index in wanted}
    for shard in copy.glob("shard-*"):
        data = bytearray(shard.read_bytes())
        for image in images.values():
            if (place := data.find(image)) >= 0:
                data[place + len(image) // 2] ^= 16
        shard.write_bytes(data)
    damages = verify(copy).damages
    assert {damage.record for damage in damages if damage.record is not None} == wanted
    assert all("checksum" in damage.message for damage in damages)


def test_missing_truncated_and_unlisted_files_are_named(copy):
    first, second, *_ = sorted(copy.glob("shard-*"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1000])
    (copy / "notes.txt").write_text("mine")
    files = [damage.file for damage in verify(copy).damages]
    assert {first.name, second.name, "notes.txt"} <= set(files)


def test_a_manifest_that_was_edited_is_refused(copy):
    manifest = copy / "manifest.json"
    content = json.loads(manifest.read_text())
    content["classes"][0] = "other"
    manifest.write_text(json.dumps(content, indent=1) + "\n")
    assert [damage.file for damage in verify(copy).damages] == ["manifest.json"]
    with pytest.raises(fastload.FormatError, match="digest"):
        fastload.PackedDataset(copy)


def test_the_number_of_workers_changes_nothing(copy):
    shard = sorted(copy.glob("shard-*"))[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert verify(copy, workers=1) == verify(copy, workers=3)


def test_a_path_without_a_dataset_is_an_error_not_damage(tmp_path):
    with pytest.raises(fastload.FormatError):
        verify(tmp_path)


def test_a_shard_that_cannot_be_opened_is_reported_once(copy):
    shard = min(copy.glob("shard-*"))
    shard.write_bytes(bytes(shard.stat().st_size))
    damages = verify(copy).damages
    assert [(damage.file, damage.record) for damage in damages] == [(shard.name, None)] * 2
    assert "cannot be opened" in damages[1].message


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_a_structure_that_would_crash_its_library_is_reported_as_damage(tmp_path, container):
    photos = class_folders(tmp_path / "photos", count=12, size=(8, 8))
    path = tmp_path / "p.fl"
    fastload.pack(photos, path, format=container, encode="keep", workers=1)
    [shard] = path.glob("shard-*")
    original, classes = everything(path, "always")
    data = shard.read_bytes()
    for page in range(0, len(data), 4096):
        for place in (page + 12, page + 17, page + 21, page + 1000):
            damaged = bytearray(data)
            damaged[place % len(data)] ^= 0x80  # in LMDB, the high half of a node's offset in its page
            shard.write_bytes(damaged)
            damages = verify(path, workers=1).damages
            assert damages
            assert {damage.file for damage in damages} == {shard.name}
            assert not _hands_out_changes(path, original, classes)


@pytest.mark.parametrize("kind", ["zeroed", "random", "swapped"])
def test_wrong_pages_are_found_and_never_read_as_data(copy, kind):
    original, classes = everything(copy, "always")
    rng = random.Random(kind)
    shard = min(copy.glob("shard-*"))
    data = shard.read_bytes()
    for page in range(0, len(data), 4096):
        end = min(page + 4096, len(data))
        other = rng.randrange(0, len(data) - (end - page))
        block = {
            "zeroed": bytes(end - page),
            "random": rng.randbytes(end - page),
            "swapped": data[other : other + end - page],
        }[kind]
        if block == data[page:end]:
            continue
        shard.write_bytes(data[:page] + block + data[end:])
        assert verify(copy, workers=1).damages
        assert not _hands_out_changes(copy, original, classes), page


def test_progress_ends_with_every_byte(packed):
    seen = []
    result = verify(packed, progress=lambda *state: seen.append(state))
    assert seen[-1] == (result.size_bytes, result.size_bytes)
    assert seen == sorted(seen)


def test_verifying_writes_nothing(copy):
    before = tree(copy)
    verify(copy)
    assert tree(copy) == before
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def undecodable_png():
    """A PNG whose chunks are all in place, and which lacks the last rows of many."""
    whole = file_of(photo(300, 300), "PNG")
    start = whole.index(b"IDAT")
    (length,) = struct.unpack_from(">I", whole, start - 4)
    body = b"IDAT" + whole[start + 4 : start + 4 + length - 1000]
    rows = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return whole[: start - 4] + rows + whole[start + 8 + length :]


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_images_that_cannot_be_decoded_are_found_by_the_check_of_pixels(tmp_path, container):
    photos = class_folders(tmp_path / "photos", count=6)
    (photos / "class1" / "damaged.png").write_bytes(undecodable_png())
    (photos / "class2" / "no-image.jpg").write_bytes(b"nothing")
    options = {"encode": "keep", "format": container, "workers": 1, "on_error": "keep"}
    fastload.pack(photos, tmp_path / "p.fl", **options)
    assert verify(tmp_path / "p.fl").damages == ()
    [damage] = verify(tmp_path / "p.fl", check="pixels").damages
    assert "class1/damaged.png" in damage.message
    assert fastload.PackedDataset(tmp_path / "p.fl").read(damage.record).key == "class1/damaged.png"


@pytest.mark.parametrize("encode", ENCODING_NAMES)
def test_pixels_of_a_new_dataset_have_no_damage(tmp_path, encode, require_tool):
    if encode == "tiled":
        require_tool("jpegtran")
    photos = class_folders(tmp_path / "photos", count=6)
    (photos / "class0" / "grey.png").write_bytes(file_of(photo(20, 30), "PNG", "LA"))
    (photos / "class0" / "turned.jpg").write_bytes(file_of(photo(20, 30), exif=exif(6)))
    (photos / "class0" / "turned.tif").write_bytes(file_of(photo(20, 30), "TIFF", exif=exif(6)))
    fastload.pack(photos, tmp_path / "p.fl", encode=encode, workers=1)
    assert verify(tmp_path / "p.fl", check="pixels").damages == ()


def test_a_second_image_is_decoded_too(tmp_path):
    class Masked:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            mask = undecodable_png() if index == 1 else file_of(photo(8, 9), "PNG", "L")
            return photo(8, 9), {"mask": mask}

    fields = [fastload.Field("mask", "image", encoding="keep")]
    fastload.pack(Masked(), tmp_path / "p.fl", fields=fields, workers=1)
    [damage] = verify(tmp_path / "p.fl", check="pixels").damages
    assert damage.record == 1
    assert "mask cannot be decoded" in damage.message


class Objects:
    """Images with an object each, whose labels have no names."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return {"image": photo(8, 9), "boxes": [[0, 1, 2, 3]], "labels": [7]}


def test_labels_without_names_of_classes_may_be_any_numbers(tmp_path):
    fields = [fastload.Field.boxes("xyxy"), fastload.Field.labels()]
    fastload.pack(Objects(), tmp_path / "out.fl", fields=fields, workers=1)
    assert not verify(tmp_path / "out.fl").damages


def test_a_check_of_another_kind_is_an_option_error(packed):
    with pytest.raises(fastload.OptionError, match="checksums, pixels"):
        verify(packed, check="everything")


def test_the_command_checks_pixels(tmp_path):
    photos = class_folders(tmp_path / "photos", count=3)
    (photos / "class1" / "damaged.png").write_bytes(undecodable_png())
    fastload.pack(photos, tmp_path / "p.fl", encode="keep", workers=1)
    assert run("verify", tmp_path / "p.fl").returncode == 0
    done = run("verify", tmp_path / "p.fl", "--check", "pixels")
    assert done.returncode == 1
    assert "damaged.png" in done.stderr


@pytest.mark.parametrize("number", [0, -1])
def test_a_wrong_checksum_of_a_column_is_found(copy, number):
    """Labels are read by columns, whose checksums only the manifest has."""
    content = json.loads((copy / "manifest.json").read_bytes())
    shard = content["shards"][number]
    shard["columns"]["label"] = "00000000"
    (copy / "manifest.json").write_bytes(sealed(content))
    with pytest.raises(fastload.DamageError, match="column label: checksum is"):
        fastload.PackedDataset(copy).targets  # noqa: B018
    [damage] = verify(copy, workers=1).damages
    assert (damage.file, damage.record) == (shard["file"], None)
    assert "column label: checksum is" in damage.message

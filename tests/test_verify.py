"""verify finds every change, and a changed record is never handed out as data."""

import faulthandler
import json
import os
import random
import shutil
import traceback

import pytest

import fastload
from fastload.verifying import verify
from tests.folders import class_folders

FLIPS = 200


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
    """Every sample of a dataset, None for one that was refused; None at all where opening was refused."""
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
    """Flips one random bit of a dataset's files; returns which file, and puts it back when told."""
    rng = random.Random(seed)
    files = sorted(path.iterdir())
    file = rng.choice([*files, path / "manifest.json"])
    data = bytearray(file.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    original = file.read_bytes()
    file.write_bytes(data)
    return file, original


def _hands_out_changes(path, when, original, classes):
    """Whether a sample or a class differs. In a process of its own: LMDB may crash on a damaged tree,
    which is a loud way to refuse, but a refusal.
    """
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os._exit(_compare(path, when, original, classes))
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


def test_all_is_well_with_what_was_just_packed(packed):
    result = verify(packed)
    assert result.records == 24
    assert result.damages == ()
    assert result.size_bytes == sum(path.stat().st_size for path in packed.glob("shard-*"))


def test_every_flipped_bit_is_found_and_never_handed_out(copy):
    original, classes = everything(copy, "always")
    assert None not in original
    for seed in range(FLIPS):
        file, content = flipped(copy, seed)
        result = verify(copy, workers=1)
        assert result.damages, f"flip {seed} in {file.name} was not found"
        assert {damage.file for damage in result.damages} == {file.name}
        for when in ("once", "always"):
            assert not _hands_out_changes(copy, when, original, classes), f"flip {seed} in {file.name}"
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


def test_a_missing_a_cut_and_a_foreign_file_are_named(copy):
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


def test_what_is_no_dataset_is_an_error_not_a_finding(tmp_path):
    with pytest.raises(fastload.FormatError):
        verify(tmp_path)

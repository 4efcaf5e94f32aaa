"""Files that are damaged, special or not permitted are refused with the proper error, and at once."""

import json
import os
import shutil

import pytest

import fastload
from fastload.cli.main import main
from fastload.errors import DamageError, FormatError
from fastload.packing.verify import verify
from fastload.shards.checksum import file_crc32c
from fastload.shards.records import RecordReader
from tests.hostile.sealing import sealed


def error_in_a_forked_process(check):
    """The error that a check raises in a forked process, as text."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            check()
            message = "nothing"
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        os.write(writer, message.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        message = file.read()
    os.waitpid(child, 0)
    return message


def as_nobody(check):
    """The error that a check raises for a user other than root, who may read everything."""

    def checked():
        if os.geteuid() == 0:
            os.setuid(65534)
        check()

    return error_in_a_forked_process(checked)


@pytest.mark.parametrize("name", ["shard", "manifest.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "device"])
def test_special_files_are_refused_at_once(dataset, name, kind):
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
def test_a_truncated_shard_is_damaged_although_the_manifest_matches(dataset, share):
    shard = min(dataset.glob("shard-*"))
    os.truncate(shard, int(shard.stat().st_size * share))
    content = json.loads((dataset / "manifest.json").read_text())
    entry = content["shards"][0]
    entry["size_bytes"], entry["crc32c"] = shard.stat().st_size, file_crc32c(shard)
    (dataset / "manifest.json").write_bytes(sealed(content))
    message = error_in_a_forked_process(lambda: fastload.PackedDataset(dataset)[0])
    assert message.startswith("DamageError: ")
    assert verify(dataset, workers=1).damages


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
        message = as_nobody(lambda: fastload.PackedDataset(dataset)[0])
        assert message.startswith("AccessError")
        assert "Permission denied" in message
        assert str(path if name != "." else dataset) in message
        assert as_nobody(lambda: verify(dataset)).startswith("AccessError")
    finally:
        path.chmod(0o755)


def test_too_many_open_files_are_not_called_damage(dataset):
    import resource

    def check():
        reader = RecordReader(dataset)
        lowest = os.open(os.devnull, os.O_RDONLY)  # what opens next would have this number
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))  # a higher hard limit would be used
        reader.read(0)

    assert error_in_a_forked_process(check).startswith("AccessError")


def outcomes(dataset, tmp_path):
    """What reading gives, on this machine and through a URL, and what unpacking and `verify` say."""
    cache = fastload.Cache("disk", folder=tmp_path / "caches")
    found = []
    for opened in (
        lambda: fastload.PackedDataset(dataset),
        lambda: fastload.PackedDataset(f"file://{dataset}", cache=cache),
    ):
        try:
            found.append([(opened().read(index).key, int(opened()[index][1])) for index in range(12)])
        except fastload.FastloadError as error:
            found.append(type(error))
    verified = [verify(path, workers=1).damages for path in (dataset, f"file://{dataset}")]
    return found, [bool(damages) for damages in verified]


def test_shards_in_a_content_addressed_store_are_read_through_links(dataset, tmp_path):
    """Hugging Face's cache, DVC and git-annex keep files elsewhere, and link to them."""
    before = outcomes(dataset, tmp_path)
    assert before == ([before[0][0]] * 2, [False, False])
    for number, path in enumerate(sorted(dataset.iterdir())):
        (tmp_path / "blobs").mkdir(exist_ok=True)
        path.rename(tmp_path / "blobs" / str(number))
        path.symlink_to(tmp_path / "blobs" / str(number))
    assert outcomes(dataset, tmp_path) == before
    assert fastload.unpack(dataset, tmp_path / "out").files == 12


@pytest.mark.parametrize("target", ["another", "missing", "of the same size"])
def test_a_link_to_another_file_hands_out_nothing_of_it(dataset, tmp_path, target):
    shard = min(dataset.glob("shard-*"))
    data = b"secret" * (shard.stat().st_size // 6 + 1)
    secret = tmp_path / "secret"
    if target != "missing":
        secret.write_bytes(data[: shard.stat().st_size] if target == "of the same size" else data)
    shard.unlink()
    shard.symlink_to(secret)
    found, are_damaged = outcomes(dataset, tmp_path)
    assert all(isinstance(each, type) and issubclass(each, OSError) for each in found)
    assert are_damaged == [True, True]
    assert not any("secretsecret" in damage.message for damage in verify(dataset, workers=1).damages)

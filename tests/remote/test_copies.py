"""The copies of shards on this machine: killed fetchers, full disks, several users, a small bound."""

import hashlib
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import fastload
from fastload.shards.manifest import read_manifest
from fastload.system.cache_folder import CacheFolder
from tests.commands import start_python
from tests.remote.conftest import make_dataset
from tests.remote.server import serving

# For programs: `digest` reads every n-th sample, each shard from a copy if there is room.
READ = """
import ctypes, hashlib, json, os, subprocess, sys, tempfile
import fastload

def digest(url, folder, size=None, step=1):
    dataset = fastload.PackedDataset(url, cache=fastload.Cache("disk", folder=folder, size=size))
    dataset._records.remote._requested.fill(1 << 20)
    found = hashlib.sha256()
    for index in range(0, len(dataset), step):
        image, label = dataset[index]
        found.update(image.contiguous().numpy().tobytes() + bytes([label]))
    return found.hexdigest()

"""


def reading(program, *arguments, **options):
    """Start a program with these functions."""
    words = map(json.dumps, arguments)
    return start_python(
        "-c", READ + program, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def output_of(process):
    """Return the JSON that a program prints, and what it writes to standard error."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out), err


def digest_of(packed, step=1):
    """Return the result of `digest` for a dataset."""
    dataset = fastload.PackedDataset(packed)
    found = hashlib.sha256()
    for image, label in map(dataset.__getitem__, range(0, len(dataset), step)):
        found.update(image.contiguous().numpy().tobytes() + bytes([label]))
    return found.hexdigest()


ONE = "print(json.dumps(digest(*map(json.loads, sys.argv[1:]))))"


@pytest.mark.parametrize("shards", [pytest.param(0, marks=pytest.mark.soak), 4])
def test_a_run_goes_on_where_a_killed_one_was_fetching(server, url, packed, tmp_path, shards):
    server.stall_s = 60.0
    server.faults.extend([None] * (1 + shards) + ["stall"])  # the manifest comes first
    process = reading(ONE, url, str(tmp_path))
    while server.faults:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert list((tmp_path / "fastload").glob(".*.partial"))
    assert output_of(reading(ONE, url, str(tmp_path)))[0] == digest_of(packed)
    assert server.sent(".h5") == read_manifest(packed).size_bytes
    assert not list((tmp_path / "fastload").glob(".*"))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A packed dataset with shards that are fetched in several rounds, of 32 MB."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    samples = [(rng.integers(0, 255, (1000, 1000, 3), np.uint8), number) for number in range(60)]
    fastload.pack(samples, folder / "photos.fl", encode="raw", shard_size="90MB", workers=1)
    return folder / "photos.fl"


@pytest.mark.soak
def test_twenty_kills_at_any_moment_of_fetching_lose_nothing(large, tmp_path):
    size_bytes, expected = read_manifest(large).size_bytes, digest_of(large)
    with serving(large.parent) as server:
        url = f"{server.url}/photos.fl"
        for number in range(20):
            folder = CacheFolder(tmp_path / str(number))
            process = reading(ONE, url, str(folder.path.parent))
            while process.poll() is None:
                if sum(entry.size_bytes for entry in folder.entries()) >= number / 20 * size_bytes:
                    process.kill()
                time.sleep(0.001)
            process.communicate()
            assert output_of(reading(ONE, url, str(folder.path.parent)))[0] == expected
            assert sum(entry.size_bytes for entry in folder.entries()) == size_bytes
            subprocess.run(["rm", "-r", folder.path], check=True)


FULL = """
url, lmdb_url, folder, limits = map(json.loads, sys.argv[1:])
digest(url, folder + "/first", step=8)  # with all that it imports
if ctypes.CDLL(None).unshare(0x20000):  # CLONE_NEWNS
    print("null")
    sys.exit()

def mounted(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)

subprocess.run(["mount", "--make-rprivate", "/"], check=True)
found = []
for limit in limits:
    mounted(limit)
    found.append(digest(url, folder, step=8))
kept = sum(os.path.getsize(os.path.join(place, name)) for place, _, all in os.walk(folder) for name in all)
mounted("size=300k")
with open(folder + "/other", "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
found.append(digest(url, folder, step=8))
try:
    digest(lmdb_url, folder)
except fastload.RemoteError as error:
    print(json.dumps([found, kept, str(error)]))
"""


# With each number of inodes, another step is the one that finds the disk full.
INODES = [f"size=10m,nr_inodes={count}" for count in range(2, 10)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
@pytest.mark.parametrize("limits", [INODES[:1], pytest.param(INODES, marks=pytest.mark.soak)])
def test_on_a_full_disk_records_are_read_by_ranges(url, packed, tmp_path, limits):
    make_dataset(tmp_path, format="lmdb")
    (tmp_path / "small").mkdir()
    with serving(tmp_path) as server:
        done, _ = output_of(
            reading(FULL, url, f"{server.url}/photos.fl", str(tmp_path / "small"), [*limits, "size=300k"])
        )
    if done is None:
        pytest.skip("needs a mount namespace, which this system does not permit")
    digests, kept, error = done
    assert set(digests) == {digest_of(packed, step=8)}
    assert 80_000 < kept < 300_000
    assert "there is no room for its" in error


AS_USER = """
url, scratch, folder, user = map(json.loads, sys.argv[1:])
digest(url, scratch)  # with all that it imports, which the user may not be able to read
os.setgroups([])
os.setgid(user)
os.setuid(user)
os.umask(0)
print(json.dumps(digest(url, folder)))
"""


@pytest.fixture
def public():
    """A folder in which every user may make files, as in the one for temporary files."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")
def test_users_keep_their_copies_apart(url, packed, tmp_path, public):
    def read(user):
        environment = os.environ | {"TMPDIR": str(public)}
        process = reading(AS_USER, url, str(tmp_path), str(public), user, env=environment)
        found, warnings = output_of(process)
        assert found == digest_of(packed)
        return warnings

    first, second = 65534, 65533
    assert "remote shards are kept" not in read(first)
    assert f"remote shards are cached in {public}/fastload-{second}/fastload" in read(second)
    assert "it belongs to another user" in read(0)
    assert "remote shards are kept" not in read(first)
    for folder, user in (
        (public, first),
        (public / f"fastload-{second}", second),
        (public / "fastload-0", 0),
    ):
        own = folder / "fastload"
        assert own.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_uid for path in (own, *own.rglob("*"))} == {user}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")
def test_a_folder_that_another_user_prepared_is_not_used(url, tmp_path, public):
    first, second = 65534, 65533
    for name in ("fastload", f"fastload-{second}"):
        (public / name).mkdir()
        os.chown(public / name, first, first)
        (public / name).chmod(0o777)
    environment = os.environ | {"TMPDIR": str(public)}
    process = reading(AS_USER, url, str(tmp_path), str(public), second, env=environment)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "OptionError" in err
    assert "it belongs to another user" in err


@pytest.mark.soak
def test_two_datasets_share_a_cache_that_is_smaller_than_each(url, packed, tmp_path):
    (tmp_path / "other").mkdir()
    other = make_dataset(tmp_path / "other", encode="jpeg", shard_size=30_000)
    entries = [*read_manifest(packed).shards, *read_manifest(other).shards]
    size = 3 * max(entry.size_bytes for entry in entries)
    folder = CacheFolder(tmp_path / "cache")
    with serving(other.parent) as server:
        urls = {url: packed, f"{server.url}/photos.fl": other}
        processes = [reading(ONE, each, str(folder.path.parent), size) for each in urls]
        most = 0
        while any(process.poll() is None for process in processes):
            most = max(most, sum(entry.size_bytes for entry in folder.entries()))
            time.sleep(0.005)
        assert [output_of(process)[0] for process in processes] == [digest_of(each) for each in urls.values()]
    assert 0 < most <= size


# Another thread forks while a descriptor is opened, locked and closed.
FORKS = """
import fcntl, os, sys, threading
from fastload.system.cache_folder import CacheFolder

folder = CacheFolder(sys.argv[1])
folder.make()
files, statuses = {}, []

STEPS = [("c_return", os.open), ("c_return", fcntl.flock), ("c_call", os.close)]

def fork(has_forked):
    if not (child := os.fork()):
        inodes = {path.stat().st_ino for path in folder.path.iterdir()}
        found = [each for each in map(int, os.listdir("/dev/fd")) if inode_of(each) in inodes]
        os._exit(len(found))
    statuses.append(os.waitpid(child, 0)[1])
    has_forked.set()

def inode_of(descriptor):
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None

def step(frame, event, function):
    if (event, function) in STEPS:
        has_forked = threading.Event()
        threading.Thread(target=fork, args=[has_forked]).start()
        has_forked.wait(0.02)  # for as long as a fork takes, unless it waits for this step

name = "photos-aaaaaaaaaaaa"
folder.lock(name).release()
sys.setprofile(step)
folder.lock(name, shared=True).release()
sys.setprofile(None)
for thread in threading.enumerate()[1:]:
    thread.join()
print(statuses)
"""


def test_a_child_forked_at_any_step_has_no_lock(tmp_path):
    out, err = start_python(
        "-c", FORKS, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ).communicate()
    assert not err
    assert json.loads(out) == [0, 0, 0]


@pytest.mark.parametrize("harm", ["owner", "mode", "link"])
@pytest.mark.parametrize("part", ["folder", "file"])
def test_a_copy_that_another_user_could_have_made_is_not_read(url, tmp_path, harm, part):
    if harm == "owner" and os.geteuid() != 0:
        pytest.skip("needs root, to make files of another user")
    options = {"cache": fastload.Cache("disk", folder=tmp_path)}
    dataset = fastload.PackedDataset(url, **options)
    dataset._records.remote._requested.fill(1 << 20)
    for index in range(len(dataset)):
        dataset[index]
    for file in (tmp_path / "fastload").glob("*.fl/shard-*"):
        path = file if part == "file" else file.parent
        if harm == "owner":
            os.chown(path, 54321, 54321)
        elif harm == "mode":
            path.chmod(0o772)
        else:
            path.rename(tmp_path / f"{path.parent.name} {path.name}")
            path.symlink_to(tmp_path / f"{path.parent.name} {path.name}")
    again = fastload.PackedDataset(url, **options)
    with pytest.raises(fastload.AccessError, match="must be a copy that only you can have made"):
        again[0]

"""Packing that was killed: the same command resumes it, and writes the same bytes."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

from fastload import PackError, pack
from tests.commands import run, session_members, start, wait_until_gone
from tests.folders import encoded, pixels, tree

SHARD_BYTES = 60_000
# When this many shards are finished, many others are not.
MANY_SHARDS = 12

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """300 photos, four of them damaged."""
    root = tmp_path_factory.mktemp("source") / "photos"
    for number in range(300):
        folder = root / f"class{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        data = encoded(pixels(number, 120 + number % 11, 150 + number % 7))
        (folder / f"{number:04d}.jpg").write_bytes(data[:1000] if number % 75 == 7 else data)
    return root


def arguments(source, dest, container):
    """The arguments of a packing command that takes about a second and writes dozens of shards."""
    options = ["--encode", "jpeg", "--on-error", "skip", "--format", container, "--workers", "2"]
    return ["pack", source, dest, "--shard-size", SHARD_BYTES, "--allow-errors", *options]


@pytest.fixture(scope="module", params=["hdf5", "lmdb"])
def reference(request, source, tmp_path_factory):
    """The files that an undisturbed run writes, and their container."""
    dest = tmp_path_factory.mktemp("reference") / "photos.fl"
    assert run(*arguments(source, dest, request.param)).returncode == 0
    found = tree(dest)
    assert len(found) > 2 * MANY_SHARDS
    return found, request.param


# What does not depend on the container; the soak repeats it with the other one.
ONE_CONTAINER = pytest.mark.parametrize(
    "reference", ["hdf5", pytest.param("lmdb", marks=pytest.mark.soak)], indirect=True
)


def finished_shards(dest):
    """Inode and time of every shard that counts as finished, by name."""
    partial = dest.with_name(f".{dest.name}.partial")
    found = {}
    for entry in (partial / "state").glob("all-*.json"):
        name = json.loads(entry.read_text())["entry"]["file"]
        status = (partial / "dataset" / name).stat()
        found[name] = status.st_ino, status.st_mtime_ns
    return found


def finished_count(dest, split="all"):
    """The number of finished shards of a split; 0 once the dataset is published."""
    try:
        names = os.listdir(dest.with_name(f".{dest.name}.partial") / "state")
    except FileNotFoundError:
        return 0
    return sum(name.startswith(f"{split}-") and name.endswith(".json") for name in names)


def start_until(command, dest, shards, then_s=0.0, split="all", **options):
    """Start a command, and wait until the given number of shards is finished, and a little longer."""
    process = start(command, **options)
    end = time.monotonic() + 60
    while process.poll() is None and finished_count(dest, split) < shards:
        assert time.monotonic() < end
        time.sleep(0.001)
    time.sleep(then_s)
    return process


def kill(process):
    """Kill only the main process of a run, and wait until its workers are gone too."""
    process.kill()
    process.communicate()
    wait_until_gone(process.pid)


def check_one_kill(source, reference, folder, shards, then_s):
    """Kill a run once, and check that the next resumes from the finished shards."""
    wanted, container = reference
    dest = folder / "photos.fl"
    command = arguments(source, dest, container)
    process = start_until(command, dest, shards, then_s)
    kill(process)
    if dest.exists():  # killed at its very end, or too late
        assert tree(dest) == wanted
        return process.returncode
    kept = finished_shards(dest)
    assert len(kept) >= shards
    resumed = run(*command)
    assert resumed.returncode == 0, resumed.stderr
    assert tree(dest) == wanted
    for name, identity in kept.items():
        status = (dest / name).stat()
        assert (status.st_ino, status.st_mtime_ns) == identity, f"{name} was rewritten"
    assert not kept or "resumed:" in resumed.stdout
    assert [path.name for path in folder.iterdir()] == ["photos.fl"]
    return process.returncode


def instant(seed, shards):
    """Draw a moment of a run: a number of finished shards, and a time after that."""
    chance = random.Random(seed)
    return chance.randrange(shards), chance.uniform(0, 0.06)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_packing_resumes_with_the_same_bytes(source, reference, tmp_path, seed):
    code = check_one_kill(source, reference, tmp_path, *instant(f"{seed} {reference[1]}", MANY_SHARDS))
    assert code == -signal.SIGKILL


@ONE_CONTAINER
@pytest.mark.parametrize("delay_s", [0.05, 0.25])
def test_packing_that_is_killed_while_starting_starts_over(source, reference, tmp_path, delay_s):
    assert check_one_kill(source, reference, tmp_path, 0, delay_s) == -signal.SIGKILL


def test_ctrl_c_before_a_shard_is_complete_says_that_packing_starts_over(source, tmp_path):
    dest = tmp_path / "photos.fl"
    command = ["pack", source, dest, "--on-error", "skip", "--workers", "1"]  # one shard
    process = start(command)
    end = time.monotonic() + 60
    while not list(tmp_path.glob(".photos.fl.partial/state/fastload-drafts-*/shard-*")):
        assert time.monotonic() < end
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "fastload: interrupted: packing again starts over\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_killed_packing_resumes_whenever_it_is_killed(source, reference, tmp_path):
    codes = []
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        codes.append(check_one_kill(source, reference, folder, *instant(seed, len(reference[0]))))
        shutil.rmtree(folder)
    assert codes.count(-signal.SIGKILL) > 20


@pytest.mark.soak
def test_packing_that_is_killed_repeatedly_finishes(source, reference, tmp_path):
    wanted, container = reference
    dest = tmp_path / "photos.fl"
    command = arguments(source, dest, container)
    for shards in range(1, len(wanted)):
        kill(start_until(command, dest, shards))
    assert run(*command).returncode in (0, 2)  # 2: the last kill came too late
    assert tree(dest) == wanted


def test_finished_shards_are_never_rewritten(source, reference, tmp_path):
    wanted, container = reference
    dest = tmp_path / "photos.fl"
    kill(start_until(arguments(source, dest, container), dest, MANY_SHARDS))
    kept = finished_shards(dest)
    done = run(*arguments(source, dest, container), "--json")
    result = json.loads(done.stdout)
    manifest = json.loads((dest / "manifest.json").read_text())
    records = sum(shard["records"] for shard in manifest["shards"] if shard["file"] in kept)
    assert records <= result["resumed"] < 300
    assert tree(dest) == wanted


@ONE_CONTAINER
def test_ctrl_c_exits_with_130_and_one_line_and_resumes(source, reference, tmp_path):
    wanted, container = reference
    dest = tmp_path / "photos.fl"
    process = start_until(arguments(source, dest, container), dest, 3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    kept = re.fullmatch(r"fastload: interrupted: (\d+) of 300 records are packed, .* resumes there\n", errors)
    assert kept, errors
    assert 0 < int(kept[1]) < 300
    wait_until_gone(process.pid, timeout_s=1)
    assert not dest.exists()
    assert run(*arguments(source, dest, container)).returncode == 0
    assert tree(dest) == wanted


@ONE_CONTAINER
def test_resuming_while_old_workers_are_still_ending(source, reference, tmp_path):
    wanted, container = reference
    dest = tmp_path / "photos.fl"
    for shards in (1, 3, 6):
        process = start_until(arguments(source, dest, container), dest, shards)
        process.kill()
        process.communicate()
    done = run(*arguments(source, dest, container))
    assert done.returncode == 0, done.stderr
    assert tree(dest) == wanted


@ONE_CONTAINER
def test_workers_that_outlive_their_run_do_not_disturb_the_next(source, reference, tmp_path):
    wanted, container = reference
    dest = tmp_path / "photos.fl"
    command = arguments(source, dest, container)
    silence = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start_until(command, dest, 2, **silence)
    workers = [member for member in session_members(process.pid) if member != process.pid]
    try:
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        process.kill()
        process.wait()
        following = start_until(command, dest, 6)
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    _, errors = following.communicate(timeout=280)
    assert following.returncode == 0, errors
    wait_until_gone(process.pid)
    assert tree(dest) == wanted


@ONE_CONTAINER
def test_finished_shard_that_was_damaged_meanwhile_is_rewritten(source, reference, tmp_path):
    wanted, container = reference
    dest = tmp_path / "photos.fl"
    kill(start_until(arguments(source, dest, container), dest, 3))
    shard = min((tmp_path / ".photos.fl.partial" / "dataset").glob("shard-*"))
    with shard.open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    assert run(*arguments(source, dest, container)).returncode == 0
    assert tree(dest) == wanted


@pytest.mark.parametrize("change", ["option", "added", "removed", "rewritten"])
def test_another_job_starts_over(source, tmp_path, change):
    photos = tmp_path / "photos"
    shutil.copytree(source, photos)
    dest = tmp_path / "photos.fl"
    command = arguments(photos, dest, "hdf5")
    kill(start_until(command, dest, 2))
    if change == "option":
        command[command.index("jpeg")] = "yuv420"
    elif change == "added":
        shutil.copy(photos / "class1" / "0001.jpg", photos / "class0" / "0000a.jpg")
    elif change == "removed":
        (photos / "class0" / "0000.jpg").unlink()
    else:
        (photos / "class0" / "0000.jpg").write_bytes((photos / "class1" / "0001.jpg").read_bytes())
    assert "resumed:" not in run(*command).stdout
    fresh = tmp_path / "fresh.fl"
    assert run(*[fresh if part == dest else part for part in command]).returncode == 0
    assert tree(dest) == tree(fresh)


@ONE_CONTAINER
def test_another_number_of_workers_resumes_the_same_job(source, reference, tmp_path):
    wanted, container = reference
    dest = tmp_path / "photos.fl"
    command = arguments(source, dest, container)
    kill(start_until(command, dest, 2))
    command[command.index("--workers") + 1] = 3
    assert "resumed:" in run(*command).stdout
    assert tree(dest) == wanted


@pytest.mark.parametrize("split", ["train", "val"])
def test_killed_packing_of_splits_resumes_in_the_split_it_reached(source, tmp_path, split):
    for name in ("train", "val"):
        shutil.copytree(source, tmp_path / "photos" / name)
    dest, fresh = tmp_path / "photos.fl", tmp_path / "fresh.fl"
    command = arguments(tmp_path / "photos", dest, "hdf5")
    kill(start_until(command, dest, MANY_SHARDS, split=split))
    assert not dest.exists()
    resumed = run(*command)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed:" in resumed.stdout
    assert run(*[fresh if part == dest else part for part in command]).returncode == 0
    assert tree(dest) == tree(fresh)


@ONE_CONTAINER
def test_killed_overwrite_leaves_the_old_dataset_and_resumes(source, reference, tmp_path):
    wanted, container = reference
    dest = tmp_path / "photos.fl"
    pack(Killer(tmp_path), dest, encode="raw", workers=1)
    before = tree(dest)
    command = [*arguments(source, dest, container), "--overwrite"]
    kill(start_until(command, dest, MANY_SHARDS))
    assert tree(dest) == before
    resumed = run(*command)
    assert "resumed:" in resumed.stdout
    assert tree(dest) == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["photos.fl"]


class Killer:
    """A dataset that kills the process that reads it, once."""

    def __init__(self, flag):
        self.flag = flag

    def __len__(self):
        return 200

    def __getitem__(self, index):
        if index == 150 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return pixels(index), index


@pytest.mark.parametrize("workers", [1, 3])
def test_killed_worker_is_an_error_with_the_next_step(tmp_path, workers):
    dataset, options = Killer(tmp_path / "flag"), {"encode": "raw", "workers": workers, "shard_size": 50_000}
    with pytest.raises(PackError, match=r"process \d+ died.*-9.*; packing again starts over"):
        pack(dataset, tmp_path / "x.fl", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["flag"]
    assert pack(dataset, tmp_path / "x.fl", **options).records == 200

"""Packing that is killed: the same command goes on, and gives the very same bytes."""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from fastload import PackError, pack
from tests.commands import run, session_members, start, wait_until_gone
from tests.folders import encoded, pixels, tree

SHARD_BYTES = 150_000

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
    """A packing of a second or so, with dozens of shards."""
    options = ["--encode", "jpeg", "--on-error", "skip", "--format", container, "--workers", "2"]
    return ["pack", source, dest, "--shard-size", SHARD_BYTES, "--allow-errors", *options]


@pytest.fixture(scope="module", params=["hdf5", "lmdb"])
def reference(request, source, tmp_path_factory):
    """What an undisturbed packing makes, how long it takes, and its container."""
    dest = tmp_path_factory.mktemp("reference") / "photos.fl"
    began = time.monotonic()
    assert run(*arguments(source, dest, request.param)).returncode == 0
    return tree(dest), time.monotonic() - began, request.param


def finished_shards(dest):
    """Inode and time of every shard that counts as finished, by name."""
    partial = dest.with_name(f".{dest.name}.partial")
    found = {}
    for entry in (partial / "state").glob("all-*.json"):
        name = json.loads(entry.read_text())["entry"]["file"]
        status = (partial / "dataset" / name).stat()
        found[name] = status.st_ino, status.st_mtime_ns
    return found


def kill_after(command, delay_s, number=signal.SIGKILL):
    """Starts a command and kills its main process alone; waits until its workers are gone too."""
    process = start(command)
    time.sleep(delay_s)
    process.send_signal(number)
    process.communicate()
    wait_until_gone(process.pid)
    return process.returncode


def check_one_kill(source, reference, folder, delay_s):
    wanted, _, container = reference
    dest = folder / "photos.fl"
    command = arguments(source, dest, container)
    code = kill_after(command, delay_s)
    if dest.exists():  # killed at its very end, or too late
        assert tree(dest) == wanted
        return code
    kept = finished_shards(dest)
    resumed = run(*command)
    assert resumed.returncode == 0, resumed.stderr
    assert tree(dest) == wanted
    for name, identity in kept.items():
        status = (dest / name).stat()
        assert (status.st_ino, status.st_mtime_ns) == identity, f"{name} was made again"
    assert ("resumed:" in resumed.stdout) == bool(kept)
    assert [path.name for path in folder.iterdir()] == ["photos.fl"]
    return code


@pytest.mark.parametrize("share", [0.45, 0.7, 0.9])
def test_killed_packing_resumes_with_the_same_bytes(source, reference, tmp_path, share):
    spread = random.Random(f"{share} {reference[2]}").uniform(-0.12, 0.12)
    check_one_kill(source, reference, tmp_path, (share + spread) * reference[1])


@pytest.mark.soak
def test_killed_packing_resumes_whenever_it_is_killed(source, reference, tmp_path):
    codes = []
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        codes.append(
            check_one_kill(source, reference, folder, random.Random(seed).uniform(0, 1) * reference[1])
        )
        shutil.rmtree(folder)
    assert codes.count(-signal.SIGKILL) > 20


@pytest.mark.soak
def test_packing_that_is_killed_again_and_again_ends(source, reference, tmp_path):
    wanted, seconds, container = reference
    dest = tmp_path / "photos.fl"
    for turn in range(100):
        if kill_after(arguments(source, dest, container), seconds * (0.4 + 0.02 * turn)) == 0:
            break
    assert tree(dest) == wanted


def test_redoing_costs_at_most_the_shards_in_flight(source, reference, tmp_path):
    wanted, seconds, container = reference
    dest = tmp_path / "photos.fl"
    kill_after(arguments(source, dest, container), 0.7 * seconds)
    if dest.exists():
        pytest.skip("the machine was too fast for this kill")
    kept = finished_shards(dest)
    done = run(*arguments(source, dest, container), "--json")
    result = json.loads(done.stdout)
    finished = {shard["file"]: shard["records"] for shard in manifest_of(dest)["shards"]}
    # Damaged files before the end of the last finished shard count as dealt with, too.
    assert 0 <= result["resumed"] - sum(finished[name] for name in kept) <= 4
    assert tree(dest) == wanted


def manifest_of(dest):
    return json.loads((dest / "manifest.json").read_text())


def test_ctrl_c_ends_with_130_says_one_line_and_resumes(source, reference, tmp_path):
    wanted, seconds, container = reference
    dest = tmp_path / "photos.fl"
    process = start(arguments(source, dest, container))
    time.sleep(0.6 * seconds)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group
    _, errors = process.communicate(timeout=30)
    if process.returncode == 0:
        pytest.skip("the machine was too fast for this interruption")
    assert process.returncode == 130
    assert errors == "fastload: interrupted\n"
    wait_until_gone(process.pid, timeout_s=1)
    assert not dest.exists()
    assert run(*arguments(source, dest, container)).returncode == 0
    assert tree(dest) == wanted


def test_resuming_at_once_while_old_workers_still_end(source, reference, tmp_path):
    wanted, seconds, container = reference
    dest = tmp_path / "photos.fl"
    for share in (0.5, 0.6, 0.7):
        process = start(arguments(source, dest, container))
        time.sleep(share * seconds)
        process.kill()
        process.communicate()
    done = run(*arguments(source, dest, container))
    assert done.returncode == 0 or "exists already" in done.stderr
    assert tree(dest) == wanted


def test_workers_that_outlive_their_packing_do_not_disturb_the_next(source, reference, tmp_path):
    wanted, seconds, container = reference
    dest = tmp_path / "photos.fl"
    process = start(arguments(source, dest, container), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.6 * seconds)
    workers = [member for member in session_members(process.pid) if member != process.pid]
    try:
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        process.kill()
        process.wait()
        following = start(arguments(source, dest, container))
        time.sleep(0.6 * seconds)
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    _, errors = following.communicate(timeout=60)
    assert following.returncode == 0, errors
    wait_until_gone(process.pid)
    assert tree(dest) == wanted


def test_finished_shard_that_was_damaged_meanwhile_is_made_again(source, reference, tmp_path):
    wanted, seconds, container = reference
    dest = tmp_path / "photos.fl"
    kill_after(arguments(source, dest, container), 0.7 * seconds)
    shards = sorted((tmp_path / ".photos.fl.partial" / "dataset").glob("shard-*"))
    if dest.exists() or not shards:
        pytest.skip("killed too early or too late")
    with shards[0].open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    assert run(*arguments(source, dest, container)).returncode == 0
    assert tree(dest) == wanted


@pytest.mark.parametrize("change", ["option", "added", "removed", "rewritten"])
def test_another_job_starts_anew(source, tmp_path, change):
    photos = tmp_path / "photos"
    shutil.copytree(source, photos)
    dest = tmp_path / "photos.fl"
    command = arguments(photos, dest, "hdf5")
    kill_after(command, 0.6)
    if change == "option":
        command[-1] = "3"  # the number of workers is no change
        command[command.index("jpeg")] = "yuv420"
    elif change == "added":
        shutil.copy(photos / "class1" / "0001.jpg", photos / "class0" / "0000a.jpg")
    elif change == "removed":
        (photos / "class0" / "0000.jpg").unlink()
    else:
        (photos / "class0" / "0000.jpg").write_bytes((photos / "class1" / "0001.jpg").read_bytes())
    assert run(*command).returncode == 0
    fresh = tmp_path / "fresh.fl"
    assert run(*[fresh if part == dest else part for part in command]).returncode == 0
    assert tree(dest) == tree(fresh)


class Killer:
    """A dataset during whose reading its process is killed, once."""

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
def test_killed_worker_is_an_error_that_says_what_to_do(tmp_path, workers):
    dataset, options = Killer(tmp_path / "flag"), {"encode": "raw", "workers": workers, "shard_size": 50_000}
    with pytest.raises(PackError, match=r"process \d+ died.*-9.*same command resumes"):
        pack(dataset, tmp_path / "x.fl", **options)
    assert not (tmp_path / "x.fl").exists()
    result = pack(dataset, tmp_path / "x.fl", **options)
    assert result.records == 200
    assert 0 < result.resumed < 200
    pack(dataset, tmp_path / "y.fl", **options)
    assert tree(tmp_path / "x.fl") == tree(tmp_path / "y.fl")

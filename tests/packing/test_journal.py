"""Reuse of the intact chunks of unfinished shards after a packing was killed."""

import random
import subprocess
import sys

import pytest

from fastload import pack, verify
from tests.folders import encoded, pixels, tree

# Kills itself once so many records are dealt with, and prints their number.
PROGRAM = """
import os, signal, sys, fastload

def kill(progress):
    if progress.records >= int(sys.argv[3]):
        print(progress.records, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

options = eval(sys.argv[4])
fastload.pack(sys.argv[1], sys.argv[2], progress=kill, **options)
"""
OPTIONS = {"encode": "keep", "on_error": "skip"}
COUNT = 400


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Files, some of them not images, including the first and the last."""
    root = tmp_path_factory.mktemp("source") / "photos"
    for number in range(COUNT):
        folder = root / f"class{number * 4 // COUNT}"
        folder.mkdir(parents=True, exist_ok=True)
        is_bad = number % 37 in (0, 1) or number == COUNT - 1
        data = b"nothing" if is_bad else encoded(pixels(number, 20 + number % 5, 30 + number % 11))
        (folder / f"{number:04d}.jpg").write_bytes(data)
    return root


def packed_until(source, dest, records, **options):
    """Pack until the given number of records is processed, then kill the packing; return their number."""
    command = [sys.executable, "-c", PROGRAM, source, dest, str(records), repr(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == -9, done.stderr
    assert not dest.exists()
    return int(done.stdout)


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
@pytest.mark.parametrize("shard_size", ["256MB", "100KB"])
def test_killed_packing_resumes_with_the_record_it_reached(source, tmp_path, container, shard_size):
    options = OPTIONS | {"format": container, "shard_size": shard_size}
    pack(source, tmp_path / "whole.fl", **options)
    at = 0
    for records in (1, 130, 300, COUNT):  # again and again; at last with all records written
        at = packed_until(source, tmp_path / "x.fl", max(records, at + 1), workers=1, **options)
    result = pack(source, tmp_path / "x.fl", **options)
    assert result.resumed == at == COUNT
    assert tree(tmp_path / "x.fl") == tree(tmp_path / "whole.fl")
    assert not verify(tmp_path / "x.fl").damages
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole.fl", "x.fl"]


@pytest.mark.parametrize("seed", range(4))
def test_torn_or_damaged_entries_are_packed_again(source, tmp_path, seed):
    """After a power loss, parts of the payload or of its entries are missing on the disk."""
    chance = random.Random(seed)
    options = OPTIONS | {"format": chance.choice(["hdf5", "lmdb"]), "shard_size": "150KB"}
    pack(source, tmp_path / "whole.fl", **options)
    packed_until(source, tmp_path / "x.fl", chance.randrange(200, COUNT), workers=2, **options)
    drafts = tmp_path / ".x.fl.partial" / "state" / "drafts"
    for path in [*drafts.glob("*.chunk"), *drafts.glob("*.payload")]:
        fate, data = chance.randrange(5), path.read_bytes()
        if fate == 0:
            path.write_bytes(data[: chance.randrange(len(data) + 1)])
        elif fate == 1:
            at = chance.randrange(len(data)) if data else 0
            path.write_bytes(data[:at] + bytes(len(data) - at))
        elif fate == 2:
            path.unlink()
    pack(source, tmp_path / "x.fl", **options)
    assert tree(tmp_path / "x.fl") == tree(tmp_path / "whole.fl")


def test_at_most_two_chunks_per_worker_are_packed_again(source, tmp_path):
    at = packed_until(source, tmp_path / "x.fl", 350, workers=2, **OPTIONS)
    # With images this small, the first runs of 16 are followed by a share of the rest.
    assert pack(source, tmp_path / "x.fl", **OPTIONS).resumed >= at - 4 * 62


def test_packing_with_another_encoding_starts_over(source, tmp_path):
    packed_until(source, tmp_path / "x.fl", 200, workers=1, **OPTIONS)
    assert pack(source, tmp_path / "x.fl", **OPTIONS | {"encode": "raw"}).resumed == 0

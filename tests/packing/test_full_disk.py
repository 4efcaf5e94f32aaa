"""A disk that fills up: one clear sentence, no incomplete dataset, and packing that can be resumed."""

import json
import shutil
import subprocess
import sys

import pytest

from fastload import DestinationError, pack, verify
from tests.folders import class_folders, tree

# Runs in its own mount namespace, with a small tmpfs mounted on the folder: packs onto it with
# little room, then again with enough, copies the result, and reports the outcome.
PROGRAM = """
import json, shutil, subprocess, sys
folder, source, out, container, encode, sizes = *sys.argv[1:6], json.loads(sys.argv[6])
def mount(*arguments):
    subprocess.run(["mount", "-t", "tmpfs", *arguments, "tmpfs", folder], check=True)
def pack(number):
    command = [sys.executable, "-m", "fastload", "pack", source, f"{folder}/{number}.fl", "--workers", "2"]
    command += ["--encode", encode, "--format", container, "--shard-size", "60KB"]
    done = subprocess.run(command, capture_output=True, text=True)
    return [done.returncode, done.stderr]
mount("-o", "size=100m")
results = []
for number, size in enumerate(sizes):
    mount("-o", f"remount,size={size}k")
    first = pack(number)
    mount("-o", "remount,size=100m")
    results.append([size, first, pack(number)])
    if results[-1][-1][0] not in (0, 2):  # done now, or done already
        break
    shutil.copytree(f"{folder}/{number}.fl", f"{out}/{number}.fl")
    shutil.rmtree(f"{folder}/{number}.fl")
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return class_folders(tmp_path_factory.mktemp("source") / "photos", 100, size=(40, 50))


def check(unshare, source, folder, container, encode, sizes_kb):
    (folder / "small").mkdir()
    (folder / "out").mkdir()
    program = [sys.executable, "-c", PROGRAM, folder / "small", source, folder / "out", container, encode]
    done = subprocess.run([*unshare, *program, json.dumps(sizes_kb)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pack(source, folder / "reference.fl", encode=encode, format=container, shard_size="60KB", workers=2)
    wanted = tree(folder / "reference.fl")
    codes = []
    for number, (size, (code, errors), (code_again, errors_again)) in enumerate(json.loads(done.stdout)):
        codes.append(code)
        if code:
            is_foreseen = code == 2
            assert code in (2, 3), errors
            assert "No space left on device" in errors or "its disk has" in errors, (size, errors)
            assert is_foreseen or "; packing again " in errors or " of 100 records are packed" in errors
            assert "draft" not in errors, (size, errors)
            assert "payload" not in errors, (size, errors)
            assert errors.startswith("fastload: "), (size, errors)
            assert errors.count("\n") == 1, (size, errors)
            assert "unexpected" not in errors, (size, errors)
            assert str(folder / "small") in errors, (size, errors)
            assert code_again == 0, (size, errors, errors_again)
        assert tree(folder / "out" / f"{number}.fl") == wanted
        assert not verify(folder / "out" / f"{number}.fl", workers=1).damages
    return codes


@pytest.mark.parametrize(
    ("container", "encode"),
    [
        ("hdf5", "keep"),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in [("lmdb", "keep"), ("hdf5", "tiled")]),
    ],
)
def test_packing_to_a_full_disk_fails_and_resumes(tmp_path, unshare, source, container, encode, require_tool):
    if encode == "tiled":
        require_tool("jpegtran")
    needed_kb = sum(path.stat().st_size for path in source.rglob("*.jpg")) // 1000
    sizes = [4, needed_kb // 3, needed_kb - 20]
    assert {2, 3} <= {*check(unshare, source, tmp_path, container, encode, sizes)}
    shutil.rmtree(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("encode", ["keep", "jpeg", "tiled", "raw"])
@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_disk_full_at_any_point_fails_and_resumes(tmp_path, unshare, source, container, encode):
    codes = check(unshare, source, tmp_path, container, encode, list(range(4, 1200, 12)))
    assert codes.count(2) > 10
    assert codes.count(3) > 3


@pytest.mark.parametrize(("free_share", "is_refused"), [(0.5, True), (0.95, False)])
def test_a_disk_that_lacks_space_is_refused_before_anything_is_packed(
    tmp_path, source, monkeypatch, free_share, is_refused
):
    size_bytes = sum(path.stat().st_size for path in source.rglob("*.jpg"))
    usage = (1 << 40, 0, int(free_share * size_bytes))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(*usage))
    if is_refused:
        with pytest.raises(
            DestinationError, match=r"x\.fl: about \d+\.\d KB are to be packed, .* free: free \d+\.\d KB,"
        ):
            pack(source, tmp_path / "x.fl", encode="keep")
        assert list(tmp_path.iterdir()) == []
    else:  # sizes are estimates
        assert pack(source, tmp_path / "x.fl", encode="keep").records == 100


def test_a_file_system_that_states_no_size_is_tried(tmp_path, source, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 0))
    assert pack(source, tmp_path / "x.fl", encode="keep").records == 100


MERGING = """
import os, shutil, subprocess, sys
folder, source, out = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
def fastload(*words):
    done = subprocess.run([sys.executable, "-m", "fastload", *words], capture_output=True, text=True)
    print(done.returncode, done.stderr.strip())
for part in ("1/2", "2/2"):
    options = "--workers", "1", "--encode", "keep", "--shard-size", "60KB"
    fastload("pack", source, f"{folder}/a.fl", "--part", part, *options)
with open(f"{folder}/filler", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
fastload("merge", f"{folder}/a.fl")
os.unlink(f"{folder}/filler")
fastload("merge", f"{folder}/a.fl")
shutil.copytree(f"{folder}/a.fl", out)
"""


def test_merging_on_a_full_disk_says_so_and_can_be_repeated(tmp_path, unshare, source):
    (tmp_path / "small").mkdir()
    program = [sys.executable, "-c", MERGING, tmp_path / "small", source, tmp_path / "out.fl"]
    done = subprocess.run([*unshare, *program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *parts, full, again = done.stdout.splitlines()
    assert [*parts, again] == ["0 ", "0 ", "0 "]
    place = tmp_path / "small"
    assert full.startswith(f"3 fastload: {place}/")
    assert "cannot be written (No space left on device): the parts are left as they are" in full
    pack(source, tmp_path / "whole.fl", encode="keep", shard_size="60KB", workers=1)
    assert tree(tmp_path / "out.fl") == tree(tmp_path / "whole.fl")

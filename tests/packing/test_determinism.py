"""The bytes of a packed dataset depend only on source and options."""

import os

import pytest

from fastload import pack
from fastload.images.encoding_names import ENCODING_NAMES
from tests.commands import run_python
from tests.folders import class_folders, tree

CONTAINERS = pytest.mark.parametrize("container", ["hdf5", "lmdb"])


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Three classes of 40 images, one of them truncated."""
    root = class_folders(tmp_path_factory.mktemp("source") / "photos", 120, size=(40, 50))
    victim = root / "class1" / "0040.jpg"
    os.truncate(victim, 500)
    return root


@CONTAINERS
@pytest.mark.parametrize("shard_size", [4096, "20KB", "64KB", "256MB"])
def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path, source, container, shard_size):
    trees = []
    for workers in (1, 2, 3):
        dest = tmp_path / f"{workers}.fl"
        options = {"encode": "keep", "on_error": "skip", "format": container, "workers": workers}
        pack(source, dest, shard_size=shard_size, **options)
        trees.append(tree(dest))
    assert trees[0] == trees[1] == trees[2]
    shards = [name for name in trees[0] if name.startswith(b"shard-")]
    assert len(shards) == 1 if shard_size == "256MB" else len(shards) > 3


@pytest.mark.parametrize("encode", [*ENCODING_NAMES, "auto"])
def test_bytes_of_every_encoding_do_not_depend_on_the_number_of_workers(
    tmp_path, source, encode, require_tool
):
    if encode == "tiled":
        require_tool("jpegtran")
    for workers in (1, 3):
        dest = tmp_path / f"{workers}.fl"
        pack(source, dest, encode=encode, on_error="skip", workers=workers, shard_size="50KB")
    assert tree(tmp_path / "1.fl") == tree(tmp_path / "3.fl")


@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.soak), "spawn"])
def test_bytes_do_not_depend_on_how_workers_start(tmp_path, source, method):
    pack(source, tmp_path / "here.fl", encode="raw", on_error="skip", workers=2, shard_size="100KB")
    # From a file with the usual guard, which spawn and forkserver require.
    (tmp_path / "program.py").write_text(
        "import multiprocessing, sys, fastload\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.set_start_method(sys.argv[1])\n"
        "    options = dict(encode='raw', on_error='skip', workers=2, shard_size='100KB')\n"
        "    fastload.pack(sys.argv[2], sys.argv[3], **options)\n"
    )
    done = run_python(tmp_path / "program.py", method, source, tmp_path / "there.fl")
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path / "here.fl") == tree(tmp_path / "there.fl")


def test_bytes_do_not_depend_on_the_location_of_the_source(tmp_path, source, monkeypatch):
    monkeypatch.chdir(source.parent)
    pack(source.name, tmp_path / "relative.fl", on_error="skip")
    pack(source.name, tmp_path / "again.fl", on_error="skip")
    assert tree(tmp_path / "relative.fl") == tree(tmp_path / "again.fl")


def test_resizing_after_torch_has_used_its_threads_does_not_hang(tmp_path, source):
    # A forked process cannot use OpenMP's threads of its parent: libgomp waits for them forever.
    code = (
        "import sys, torch, fastload\n"
        "torch.set_num_threads(2)\n"
        "(torch.ones(1500, 1500) @ torch.ones(1500, 1500)).sum()\n"
        "torch.ones(4_000_000).exp().sum()\n"
        "options = dict(encode='raw', on_error='skip', workers=2)\n"
        "fastload.pack(sys.argv[1], sys.argv[2], size=(700, 900), **options)\n"
    )
    done = run_python("-c", code, source, tmp_path / "x.fl")
    assert done.returncode == 0, done.stderr

"""An OpenCV that cannot be imported, such as opencv-python without libGL: only decoding needs it."""

import subprocess
import sys
from pathlib import Path

import pytest

import fastload
from tests.folders import class_folders

REMEDY = ("pip uninstall -y opencv-python", "pip install opencv-python-headless")
LOADING = """
import torch, fastload
from fastload import DataLoader
data = torch.utils.data.TensorDataset(torch.arange(24))
for options in ({}, {"num_workers": 0}, {"num_workers": 2, "persistent_workers": True}):
    loader = DataLoader(data, batch_size=4, shuffle=True, **options)
    for _ in range(2):
        assert sorted(torch.cat([batch for batch, in loader]).tolist()) == list(range(24))
"""
DECODING = """
import pickle, sys, fastload
import fastload.transforms as T
dataset = fastload.PackedDataset(sys.argv[1], transform=T.Resize((8, 8)))
assert len(dataset) == 6 and dataset.read(0)["image"]
try:
    dataset[0]
except fastload.FastloadError as error:
    assert isinstance(error, ImportError)
    sys.exit(str(pickle.loads(pickle.dumps(error))))
"""


@pytest.fixture
def run_without(tmp_path, monkeypatch):
    """Runs this Python where OpenCV cannot be imported."""
    (tmp_path / "broken" / "cv2").mkdir(parents=True)
    reason = "libGL.so.1: cannot open shared object file: No such file or directory"
    (tmp_path / "broken" / "cv2" / "__init__.py").write_text(f"raise ImportError({reason!r})\n")
    root = Path(fastload.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'broken'}:{root}")

    def run(*arguments):
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100)

    return run


@pytest.fixture
def packed(tmp_path):
    class_folders(tmp_path / "photos", 6)
    fastload.pack(tmp_path / "photos", tmp_path / "x.fl", encode="keep", workers=1)
    return tmp_path / "x.fl"


def test_loader_works_without_opencv(run_without):
    done = run_without("-c", LOADING)
    assert done.returncode == 0, done.stderr


def test_decoding_fails_with_the_two_commands(run_without, packed):
    done = run_without("-c", DECODING, packed)
    assert all(command in done.stderr for command in REMEDY), done.stderr
    assert "Traceback" not in done.stderr


def test_commands_that_do_not_decode_work(run_without, packed, tmp_path):
    for command in (
        ["--version"],
        ["info", packed],
        ["verify", packed],
        ["unpack", packed, tmp_path / "out"],
    ):
        done = run_without("-m", "fastload", *command)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command", [["pack", "photos", "y.fl", "--on-error", "skip"], ["bench", "decode"], ["demo"]]
)
def test_commands_that_decode_fail_before_any_work(run_without, packed, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    done = run_without("-m", "fastload", *command)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert all(remedy in done.stderr for remedy in REMEDY)
    assert not list(tmp_path.glob("*y.fl*"))


def test_one_module_imports_opencv():
    root = Path(fastload.__file__).parent
    found = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if any(line.strip().startswith(("import cv2", "from cv2")) for line in path.read_text().splitlines())
    ]
    assert found == ["images/opencv.py"]

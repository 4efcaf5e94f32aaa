"""Trainings of Ultralytics through fastload: with `fastload run`, from a packed dataset, and on two ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastload
import fastload.ultralytics
from fastload.errors import LibraryMissingError
from tests.commands import run_python
from tests.folders import encoded, pixels
from tests.frameworks.batches import read
from tests.frameworks.programs import ROOT

needs_ultralytics = pytest.mark.frameworks("ultralytics")

PROGRAM = ROOT / "tests" / "frameworks" / "ultralytics_training.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("yolo")
    for name in ("images", "labels"):
        (folder / name).mkdir()
    for number in range(16):
        (folder / "images" / f"{number:02d}.jpg").write_bytes(encoded(pixels(number, 48, 64)))
        (folder / "labels" / f"{number:02d}.txt").write_text(f"{number % 3} 0.5 0.5 0.2 0.{number + 10}\n")
    text = f"path: {folder}\ntrain: images\nval: images\nnames: [a, b, c]\n"
    (folder / "data.yaml").write_text(text)
    return folder / "data.yaml"


def training(folder: Path, data: Path, *command: str) -> subprocess.Popen[str]:
    """A training run that has begun in a folder, where its result will be."""
    folder.mkdir()
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "YOLO_AUTOINSTALL": "false",
        "YOLO_CONFIG_DIR": str(folder),
        "YOLO_OFFLINE": "true",
    }
    return subprocess.Popen(
        [sys.executable, *command, str(PROGRAM), str(data), str(folder / "result.json")],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@needs_ultralytics
@pytest.mark.soak
@pytest.mark.frameworks("matplotlib", "polars", "requests", "scipy")
def test_script_interrupted_and_resumed_by_fastload_run_from_a_packed_dataset_has_the_same_losses(
    data, tmp_path
):
    packed = tmp_path / "photos.fl"
    fastload.pack(data, packed, workers=1)
    folders = [tmp_path / name for name in ("theirs", "ours")]
    plain, run = training(folders[0], data), training(folders[1], packed, "-m", "fastload", "run")
    printed = [process.communicate(timeout=280)[0] for process in (plain, run)]
    assert (plain.returncode, run.returncode) == (0, 0), printed
    theirs, ours = (read(folder / "result.json") for folder in folders)
    assert ours == theirs
    shapes = [each for each in theirs if isinstance(each, list)]
    assert len(shapes) == 3 * 2  # steps of three epochs, of which two were resumed
    assert len({tuple(shape) for shape in shapes}) > 1, "sizes vary"
    assert theirs.count(16) == 3 + 1  # a validation of each epoch, and the last one
    assert "its images are made by fastload.ultralytics" in printed[1]


@needs_ultralytics
def test_ranks_get_ultralytics_batches_and_share_images_in_memory(data, run_programs, tmp_path):
    results = [tmp_path / f"{rank}.json" for rank in range(2)]
    commands = [("ultralytics_rank", rank, data.parent, result) for rank, result in enumerate(results)]
    run_programs(*commands)
    first, second = map(read, results)
    assert first["batches"] == first["their batches"] != second["batches"] == second["their batches"]
    assert first["memory"] == second["memory"]
    assert first["in memory"] == second["in memory"] == 16
    for one, other in zip(first["files"], second["files"], strict=True):
        assert sorted(one + other) == [f"{number:02d}" for number in range(16)]


RANKS = """
import subprocess, sys, types
import tests.conftest
from ultralytics import YOLO
from ultralytics.utils import dist
trainer = types.SimpleNamespace(args=types.SimpleNamespace(a=1), model=None, callbacks={})
name = dist.generate_ddp_file(trainer)
program = open(name).read()
compile(program, name, "exec")
assert program.index("fastload.ultralytics.patch()") < program.index("torch_load(")
subprocess.run([sys.executable, "-c", "pass", name], check=True)
"""


@needs_ultralytics
@pytest.mark.frameworks("cloudpickle")
def test_ranks_that_ultralytics_starts_are_patched_and_said_to_be(data, tmp_path):
    environment = {**os.environ, "YOLO_CONFIG_DIR": str(tmp_path), "YOLO_OFFLINE": "true"}
    (tmp_path / "ranks.py").write_text(RANKS)
    environment["PYTHONPATH"] = str(ROOT)
    done = run_python("-m", "fastload", "run", "ranks.py", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "the ranks that Ultralytics started load their images through" in done.stderr
    assert "nothing" not in done.stderr


COCO = """
import json, sys
from pathlib import Path
import numpy as np
import tests.conftest, fastload
from tests.folders import encoded, pixels
(folder := Path(sys.argv[1], "coco")).mkdir()
(folder / "images").mkdir()
(folder / "images" / "a.jpg").write_bytes(encoded(pixels(0, 50, 80)))
outline = [[8, 5, 48, 5, 48, 25, 8, 25], [10, 30, 20, 30, 20, 40]]
objects = [
    dict(id=1, image_id=1, category_id=7, bbox=[8, 5, 40, 20], area=8, iscrowd=0, segmentation=outline),
    dict(id=2, image_id=1, category_id=9, bbox=[0, 0, 9, 9], area=8, iscrowd=1, segmentation=[outline[0]]),
]
images = [dict(id=1, file_name="a.jpg", width=80, height=50)]
classes = [dict(id=7, name="a"), dict(id=9, name="b")]
(folder / "a.json").write_text(json.dumps(dict(images=images, annotations=objects, categories=classes)))
fastload.pack(folder / "a.json", folder / "a.fl", workers=1)
fastload.ultralytics.patch()
from ultralytics.cfg import get_cfg
from ultralytics.data.build import build_yolo_dataset
from ultralytics.data import utils
data = utils.check_det_dataset(str(folder / "a.fl"))
assert data["names"] == {0: "a", 1: "b"}
boxes = {"detect": [0.35, 0.3, 0.5, 0.4], "segment": [0.35, 0.45, 0.5, 0.7]}
for task, box in boxes.items():
    options = get_cfg(overrides={"imgsz": 64, "task": task})
    [label] = build_yolo_dataset(options, data["train"], 1, data, mode="val").labels
    assert label["cls"].tolist() == [[0]] and np.allclose(label["bboxes"], [box]), (task, label)
    assert len(label["segments"]) == (task == "segment")
"""


@needs_ultralytics
def test_boxes_and_outlines_of_a_packed_coco_dataset_go_to_their_tasks_without_crowds(data, tmp_path):
    environment = {**os.environ, "YOLO_CONFIG_DIR": str(tmp_path), "YOLO_OFFLINE": "true"}
    done = run_python("-c", COCO, tmp_path, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr


def test_without_ultralytics_the_next_step_is_said(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LibraryMissingError, match="pip install ultralytics"):
        fastload.ultralytics.patch()

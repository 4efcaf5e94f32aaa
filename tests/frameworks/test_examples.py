"""The scripts of examples/: each trains, on a few images made here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import fastload
from tests.commands import free_port
from tests.folders import class_folders, encoded, pixels
from tests.frameworks.programs import ROOT

# Each script with the packages that it imports besides torchvision.
OF_CLASS_FOLDERS = {
    "train_imagefolder.py": (),
    "train_lightning.py": ("lightning",),
    "train_accelerate.py": ("accelerate",),
    "train_transformers.py": ("datasets", "transformers"),
    "train_timm.py": ("timm",),
    "train_fastai.py": ("fastai",),
}
OTHERS = {"train_ultralytics.py", "train_distributed.py", "train_ray.py"}


def test_every_example_is_run_here():
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert scripts == OF_CLASS_FOLDERS.keys() | OTHERS


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return class_folders(tmp_path_factory.mktemp("photos"), count=12, classes=2)


# Their imports alone take seconds.
SLOW = ("train_fastai.py", "train_transformers.py")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            each,
            marks=[
                *([pytest.mark.frameworks(*packages)] if packages else []),
                *([pytest.mark.soak] if each in SLOW else []),
            ],
        )
        for each, packages in OF_CLASS_FOLDERS.items()
    ],
)
def test_example_trains_on_class_folders(script, photos, run_programs, tmp_path):
    [printed] = run_programs(("example", tmp_path, script, photos, "--size", 32))
    assert "loss " in printed


@pytest.mark.frameworks("ultralytics", "matplotlib", "polars", "scipy")
def test_example_trains_a_yolo(run_programs, tmp_path):
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    for number in range(4):
        (tmp_path / "images" / f"{number}.jpg").write_bytes(encoded(pixels(number, 48, 64)))
        (tmp_path / "labels" / f"{number}.txt").write_text(f"{number % 2} 0.5 0.5 0.2 0.3\n")
    data = tmp_path / "data.yaml"
    data.write_text(f"path: {tmp_path}\ntrain: images\nval: images\nnames: [cat, dog]\n")
    [printed] = run_programs(("example", tmp_path, "train_ultralytics.py", data, "--size", 64))
    assert "mAP50 " in printed


def test_ranks_that_slurm_starts_train_and_resume_on_another_number(photos, run_programs, tmp_path):
    packed = tmp_path / "photos.fl"
    fastload.pack(photos, packed, encode="raw", size=32, workers=1)
    printed = []
    for epochs, count in ((1, 2), (2, 1)):
        meeting = ("MASTER_ADDR=127.0.0.1", f"MASTER_PORT={free_port()}")
        arguments = ("train_distributed.py", packed, "--size", 32, "--epochs", epochs)
        ranks = [
            (f"SLURM_PROCID={rank}", f"SLURM_LOCALID={rank}", f"SLURM_NTASKS={count}")
            for rank in range(count)
        ]
        printed += run_programs(*(("example", tmp_path, *meeting, *rank, *arguments) for rank in ranks))
    assert [text.count("loss ") for text in printed] == [1, 0, 1]
    assert "epoch 1: " in printed[2]


@pytest.mark.soak
@pytest.mark.frameworks("ray")
def test_workers_of_ray_train_together(photos, run_programs, tmp_path):
    arguments = ("train_ray.py", photos, "--size", 32, "--storage", tmp_path / "ray")
    [printed] = run_programs(("example", tmp_path, "RAY_ADDRESS=local", *arguments))
    assert "epoch 0: loss " in printed


# Programs of Slurm, for a job of one node.
SCONTROL = "#!/bin/sh\necho node1\n"
SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'
PYTHON = '#!/bin/sh\necho "$@" "$MASTER_ADDR:$MASTER_PORT"\n'


def test_job_for_slurm_copies_the_dataset_and_starts_the_script(tmp_path):
    for name, text in {"scontrol": SCONTROL, "srun": SRUN, "python": PYTHON}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "photos.fl").mkdir()
    (tmp_path / "photos.fl" / "manifest.json").touch()
    variables = {
        "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]]),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[1-1]",
        "SLURM_NNODES": "1",
        "TMPDIR": str(tmp_path / "local"),
    }
    bash = shutil.which("bash")
    assert bash, "bash runs the job"
    job = [bash, str(ROOT / "examples" / "slurm.sh"), str(tmp_path / "photos.fl")]
    done = subprocess.run(job, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    copy = tmp_path / "local" / "7" / "photos.fl"
    assert (copy / "manifest.json").exists()
    assert done.stdout == f"train_distributed.py {copy} --epochs 90 node1:20007\n"

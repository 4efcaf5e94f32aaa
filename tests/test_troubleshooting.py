"""Troubleshooting: the page has the messages that the product prints, provoked here one by one."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

import fastload
from fastload import DataLoader, FolderDataset, PackedDataset
from fastload.errors import FastloadError
from tests.commands import run, run_python
from tests.folders import class_folders, encoded, pixels

PAGE = Path(__file__).parent.parent / "docs" / "troubleshooting.md"


def error_of(function: Callable[..., object], *arguments: object, **options: object) -> str:
    with pytest.raises((FastloadError, ImportError, RuntimeError, TypeError)) as caught:
        function(*arguments, **options)
    return str(caught.value)


def warning_of(function: Callable[[], object]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return str(caught[0].message)


def without_opencv() -> str:
    Path("broken/cv2").mkdir(parents=True)
    reason = "libGL.so.1: cannot open shared object file: No such file or directory"
    Path("broken/cv2/__init__.py").write_text(f"raise ImportError({reason!r})\n")
    paths = [str(Path("broken").resolve()), str(PAGE.parents[1])]
    done = run("pack", "photos", "new.fl", env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    return done.stderr


def without_jpegtran() -> str:
    return run("pack", "photos", "new.fl", "--encode", "tiled", env={**os.environ, "PATH": ""}).stderr


def unreadable_file() -> str:
    Path("photos/class0/broken.jpg").write_bytes(b"no image")
    return error_of(fastload.pack, "photos", "new.fl", encode="keep", workers=1)


FULL_DISK = """
import shutil, fastload
shutil.disk_usage = lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 4096, 4096)
fastload.pack("photos", "new.fl", encode="keep", workers=1)
"""


class Killed(torch.utils.data.Dataset[torch.Tensor]):
    """A dataset for which there is not enough memory."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if multiprocessing.parent_process() is not None:
            time.sleep(0.3)  # until the batch is waited for
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(4)


def no_device_memory() -> str:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return error_of(torch.empty, 1 << 50, device="cuda")


def no_images() -> str:
    Path("notes").mkdir()
    return error_of(fastload.pack, "notes", "new.fl")


def malformed_label() -> str:
    for name in ("images", "labels"):
        Path("pets", name).mkdir(parents=True)
    Path("pets/images/1.jpg").write_bytes(encoded(pixels(1)))
    Path("pets/labels/1.txt").write_text("0 0.5 0.5 0.2 0.3\n7 0.5 0.5 0.2 0.3\n")
    Path("pets/data.yaml").write_text("train: images\nnames: [cat, dog]\n")
    return error_of(fastload.pack, "pets/data.yaml", "new.fl", workers=1)


def column_of_paths() -> str:
    Path("table.csv").write_text("path,label,mask\nphotos/class0/0000.jpg,cat,masks/1.png\n")
    return error_of(fastload.pack, "table.csv", "new.fl")


def damaged_record() -> str:
    shard = Path("photos.fl/shard-00000.h5")
    content = bytearray(shard.read_bytes())
    content[content.index(Path("photos/class0/0000.jpg").read_bytes()) + 200] ^= 1
    shard.write_bytes(content)
    return error_of(PackedDataset("photos.fl").__getitem__, 0)


def truncated_shard() -> str:
    shard = Path("photos.fl/shard-00000.h5")
    shard.write_bytes(shard.read_bytes()[:-100])
    return error_of(PackedDataset("photos.fl").__getitem__, 0)


def newer_version() -> str:
    manifest = Path("photos.fl/manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 9}))
    return error_of(PackedDataset, "photos.fl")


def images_of_several_sizes() -> str:
    Path("photos/class0/0000.jpg").write_bytes(encoded(pixels(0, 50, 80)))
    return error_of(next, iter(DataLoader(FolderDataset("photos"), batch_size=4)))


def boxes_in_torchs_collation() -> str:
    malformed_label()
    Path("pets/images/2.jpg").write_bytes(encoded(pixels(2)))
    Path("pets/labels/1.txt").write_text("0 0.5 0.5 0.2 0.3\n")
    Path("pets/labels/2.txt").write_text("0 0.5 0.5 0.2 0.3\n1 0.5 0.5 0.2 0.3\n")
    fastload.pack("pets/data.yaml", "pets.fl", workers=1)
    return error_of(next, iter(DataLoader(PackedDataset("pets.fl/train.fl"), batch_size=2)))


def function_that_cannot_be_pickled() -> str:
    loader = DataLoader(
        TensorDataset(torch.arange(4)),
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=lambda samples: samples,
    )
    return error_of(iter, loader)


TOO_MANY = """
import resource, torch
from fastload import DataLoader
from torch.utils.data import TensorDataset
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
iter(DataLoader(TensorDataset(torch.arange(400)), num_workers=16))
"""


def too_many_open_files() -> str:
    return run_python("-c", TOO_MANY).stderr


def state_of_another_loader() -> str:
    dataset = TensorDataset(torch.arange(32))
    state = DataLoader(dataset, batch_size=8, seed=0).state_dict()
    return error_of(DataLoader(dataset, batch_size=4, seed=0).load_state_dict, state)


def device_that_is_not_there() -> str:
    missing = "xpu" if torch.cuda.is_available() else "cuda"
    message = warning_of(lambda: DataLoader(TensorDataset(torch.arange(4)), device=missing))
    return message.replace("xpu", "cuda")


def cache_of_another_dataset() -> str:
    return error_of(list, DataLoader(TensorDataset(torch.arange(4)), cache="ram"))


def ranks_without_a_group() -> str:
    program = (
        "import torch, fastload\n"
        "dataset = torch.utils.data.TensorDataset(torch.arange(4))\n"
        "next(iter(fastload.DataLoader(dataset, sharded=True)))"
    )
    return run_python("-c", program, env={**os.environ, "WORLD_SIZE": "4"}).stderr


def script_without_a_loader(command: str) -> str:
    Path("train.py").write_text("print('training')\n")
    done = run(command, "train.py")
    return done.stdout + done.stderr


PROVOKED: dict[str, Callable[[], str]] = {
    "OpenCV cannot be imported": without_opencv,
    "jpegtran is missing": without_jpegtran,
    "A file cannot be packed": unreadable_file,
    "The destination exists": lambda: error_of(fastload.pack, "photos", "photos.fl"),
    "The disk is full": lambda: run_python("-c", FULL_DISK).stderr,
    "A packing process was killed: out of memory": lambda: error_of(fastload.pack, Killed(), "new.fl"),
    "No images are found": no_images,
    "A label file is malformed": malformed_label,
    "A column of a table is ambiguous": column_of_paths,
    "A folder is not a packed dataset": lambda: error_of(PackedDataset, "photos"),
    "A record is damaged": damaged_record,
    "A shard has another size": truncated_shard,
    "A dataset was made by a newer release": newer_version,
    "Images of a batch have several sizes": images_of_several_sizes,
    "Images have different numbers of objects": boxes_in_torchs_collation,
    "Something cannot be sent to the workers": function_that_cannot_be_pickled,
    "A DataLoader worker was killed: out of memory": lambda: error_of(
        list, DataLoader(Killed(), num_workers=1)
    ),
    "CUDA out of memory": no_device_memory,
    "Too many files are open": too_many_open_files,
    "A state does not fit the loader": state_of_another_loader,
    "The device is not there": device_that_is_not_there,
    "A cache does not fit the dataset": cache_of_another_dataset,
    "Ranks do not know each other": ranks_without_a_group,
    "The doctor has nothing to judge": lambda: script_without_a_loader("doctor"),
    "fastload run replaced nothing": lambda: script_without_a_loader("run"),
}


@pytest.fixture
def with_photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    class_folders(Path("photos"), count=8, classes=2)
    fastload.pack("photos", "photos.fl", encode="keep", workers=1)


ENTRIES = dict(re.findall(r"^### (.*?)\n\n```text\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def plain(text: str) -> str:
    """The text without line breaks, numbers, checksums and the working folder."""
    text = " ".join(text.replace(f"{Path.cwd()}/", "").split())
    return re.sub(r"\b([0-9a-f]{8}|[0-9][0-9,]*)\b", "N", text)


def test_every_entry_is_provoked():
    assert list(ENTRIES) == list(PROVOKED)


@pytest.mark.parametrize("title", PROVOKED)
def test_message_is_printed(title, with_photos):
    printed = plain(PROVOKED[title]())
    place = 0
    for part in plain(ENTRIES[title]).split("…"):
        assert part in printed[place:], printed
        place = printed.index(part, place) + len(part)

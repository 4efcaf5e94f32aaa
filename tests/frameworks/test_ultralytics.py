"""Ultralytics' InfiniteDataLoader on fastload's class, which replaced torch's before Ultralytics' import."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.commands import run_python
from tests.folders import encoded, pixels
from tests.frameworks.batches import read
from tests.frameworks.programs import ROOT

pytestmark = pytest.mark.frameworks("ultralytics")


@pytest.fixture(scope="module")
def seen(run_programs, tmp_path_factory) -> tuple[Any, Any]:
    """Returns its loader's batches on torch's class, and on fastload's."""
    # Imported here it would write settings into the user's home, and ask the network whether it is there.
    folder = tmp_path_factory.mktemp("yolo")
    for name in ("images", "labels"):
        (folder / name).mkdir()
    for number in range(10):
        (folder / "images" / f"{number}.jpg").write_bytes(encoded(pixels(number, 48, 64)))
        (folder / "labels" / f"{number}.txt").write_text(f"{number % 3} 0.5 0.5 0.2 0.{number + 1}\n")
    kinds = ("torch", "fastload")
    # One after the other: both write the cache of labels.
    for kind in kinds:
        run_programs(("ultralytics_epochs", kind, folder, folder / f"{kind}.json"))
    torchs, ours = (read(folder / f"{kind}.json") for kind in kinds)
    return torchs, ours


def test_its_loader_is_built_on_fastloads(seen):
    torchs, ours = seen
    assert ours["bases"][:2] == [
        "ultralytics.data.build.InfiniteDataLoader",
        "fastload.loader.dataloader.DataLoader",
    ]
    assert "fastload.loader.dataloader.DataLoader" not in torchs["bases"]


def test_epochs_equal_torchs(seen):
    torchs, ours = seen
    assert ours["epochs"] == torchs["epochs"]


def test_epochs_after_a_reset_are_torchs(seen):
    torchs, ours = seen
    assert ours["reset between epochs"] == torchs["reset between epochs"]
    assert ours["reset within an epoch"] == torchs["reset within an epoch"]


def test_reset_within_an_epoch_begins_a_whole_one(seen):
    everything = sorted(map(str, range(10)))
    assert [sorted(epoch) for epoch in seen[1]["images after it"]] == [everything, everything]


def test_reset_and_deletion_end_the_workers(seen):
    for loader in seen:
        assert loader["workers"] == loader["workers at the end"] > 0
        assert loader["workers after reset"] == loader["workers after del"] == 0


def test_batches_of_objects_are_collated_as_its_own(run_programs):
    run_programs(("ultralytics_batches",))


def test_the_benchmark_takes_a_training_split_of_several_folders(tmp_path):
    for part in ("a", "b"):
        for name, data in (("images", encoded(pixels(0, 48, 64))), ("labels", b"0 0.5 0.5 0.2 0.2\n")):
            (tmp_path / name / part).mkdir(parents=True)
            (tmp_path / name / part / ("0.jpg" if name == "images" else "0.txt")).write_bytes(data)
    description = f"path: {tmp_path}\ntrain: [images/a, images/b]\nval: images/a\nnames: [cat]\n"
    (tmp_path / "data.yaml").write_text(description)
    options = ["--data", tmp_path / "data.yaml", "--epochs", "1", "--runs", "1", "--out", tmp_path / "out"]
    done = run_python(ROOT / "benchmarks" / "bench_detection.py", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "detection.json").read_text())["setting"]["images"] == "2 given"

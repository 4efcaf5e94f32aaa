"""`fastload demo`: it runs from end to end, compares like with like, and leaves nothing behind."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import fastload.transforms as T
from fastload.bench.images import make_files
from fastload.bench.loading import IMAGE_SIDE, FilesByPil
from fastload.cli.demo import _fill
from fastload.cli.main import main
from fastload.errors import SourceError
from fastload.sources import open_source
from tests.commands import run_on_terminal, run_python
from tests.folders import class_folders

TINY = ("demo", "--rounds", "1", "--workers", "2")


@pytest.fixture
def scratch(tmp_path_factory, monkeypatch):
    """The temporary folder of a test's demos."""
    # A short name: torch's workers create sockets in it, and hang if their paths have more than 107 bytes.
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)  # Python caches the first folder that it finds
    return folder


@pytest.fixture
def two_photos(tmp_path):
    """A folder with a class folder of two photos."""
    make_files(tmp_path / "two" / "only", 2)
    return tmp_path / "two"


def fastload(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", "-m", "fastload", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def choose(data, images, folder):
    return _fill(folder, str(data), images, lambda *state: None)


def test_generated_photos_are_packed_and_loaded(scratch):
    done = fastload(*TINY, "--images", "24", "--encode", "keep", "--json")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] == [
        *("making", "packing", "starting", "loading")
    ]
    result = json.loads(done.stdout)
    assert result["images"] == {**result["images"], "count": 24, "available": None}
    assert {"torch", "fastload", "pillow"} <= result["versions"].keys()
    assert result["workers"] == 2
    assert [side["encoding"] for side in result["sides"]] == [None, None, "keep"]
    for side in result["sides"]:
        assert side["images_per_s"] == side["turns_images_per_s"][0] > 0
        assert side["startup_s"] > 0
    assert result["sides"][0]["ratio"] == 1.0
    assert list(scratch.iterdir()) == []


@pytest.mark.soak
def test_own_folder_with_one_class_of_two_images(scratch, two_photos):
    before = sorted(two_photos.rglob("*"))
    done = fastload(*TINY, "--data", str(two_photos), "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("fastload")
    assert "\n2 of 2 images, " in done.stdout
    for name in ("torch DataLoader + PIL", "fastload, same files", "fastload, packed"):
        assert re.search(rf"^{re.escape(name)}.* \d.* images/s .* ×$", done.stdout, re.M)
    assert sorted(two_photos.rglob("*")) == before
    assert list(scratch.iterdir()) == []


def test_terminal_gets_lines_that_fit(scratch, two_photos):
    command = [*TINY, "--data", two_photos, "--encode", "keep", "--quiet"]
    text, code = run_on_terminal(*command, columns=80)
    assert code == 0, text
    lines = text.splitlines()
    assert any(re.fullmatch(r"torch DataLoader \+ PIL .* 1\.0 ×", line) for line in lines), text
    assert max(len(line) for line in lines if line.endswith("×")) <= 80


def test_missing_folder_is_named(scratch, tmp_path, capsys):
    assert main(["demo", "--data", str(tmp_path / "nowhere")]) == 2
    assert str(tmp_path / "nowhere") in capsys.readouterr().err
    assert list(scratch.iterdir()) == []


def test_file_that_is_no_image_is_named(scratch, two_photos, capsys):
    (two_photos / "only" / "broken.jpg").write_bytes(b"no image")
    assert main(["demo", "--data", str(two_photos), "--quiet"]) == 2
    assert "broken.jpg" in capsys.readouterr().err
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("option", [("--images", "0"), ("--workers", "0"), ("--rounds", "-1")])
def test_impossible_number_is_refused(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["demo", *option])
    assert option[0] in capsys.readouterr().err


def test_missing_pillow_is_named_with_the_remedy():
    without_pillow = (
        "import sys; sys.modules['PIL'] = None; from fastload.cli.main import main; sys.exit(main(['demo']))"
    )
    done = run_python("-c", without_pillow)
    assert done.returncode == 2
    assert "pip install pillow" in done.stderr


def test_pil_prepares_samples_of_the_same_form(two_photos):
    files = open_source(str(two_photos))[""]
    image, label = FilesByPil(files)[1]
    pixels = T.RandomResizedCrop(IMAGE_SIDE)(np.zeros((50, 60, 3), np.uint8))
    assert (image.shape, label) == ((3, *pixels.shape[:2]), 0)
    assert image.numpy().dtype == pixels.dtype == np.uint8


def test_some_images_are_linked_with_their_classes(tmp_path):
    class_folders(tmp_path / "data" / "train", 20, classes=4)
    class_folders(tmp_path / "data" / "val", 5)
    assert choose(tmp_path / "data", 10, tmp_path / "links") == 20
    files = open_source(str(tmp_path / "links"))[""]
    assert len(files) == 10
    assert set(files.classes) == {"class0", "class1", "class2", "class3"}
    linked = {Path(files.files.path(index)).resolve().parents[1] for index in range(10)}
    assert linked == {(tmp_path / "data" / "train").resolve()}


@pytest.mark.parametrize("inner", ["", "cat"])
def test_own_folder_without_images_is_refused(tmp_path, inner):
    (tmp_path / "data" / inner).mkdir(parents=True)
    with pytest.raises(SourceError, match=re.escape(str(tmp_path / "data"))):
        choose(tmp_path / "data", None, tmp_path / "links")

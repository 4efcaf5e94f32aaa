"""`fastload demo`: it runs from end to end, compares like with like, and leaves nothing behind."""

import json
import os
import pty
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from fastload.cli.demo.gather import gather, listed
from fastload.cli.demo.photos import SCENES, draw_photo, make_photos
from fastload.cli.demo.sides import SharedCrop, crop_pil, draw_crop
from fastload.cli.main import main
from fastload.errors import SourceError

# torch's antialiased kernel rounds its weights otherwise than PIL does: of 900 crops 750 differ by one
# level somewhere and 7 by two; a single crop differs by at most 0.25 on average, all of them by 0.04.
MOST_LEVELS_OF_RESIZE = 2
MEAN_LEVELS_OF_RESIZE = 0.3

TINY = ("demo", "--rounds", "1", "--workers", "2")


@pytest.fixture
def scratch(tmp_path_factory, monkeypatch):
    """The temporary folder of the demos that the test runs."""
    # A short name: torch's workers make sockets in it, whose paths may have 107 bytes, and hang if they have
    # more.
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what was found before is kept there
    return folder


@pytest.fixture
def two_photos(tmp_path):
    """A folder of one class."""
    make_photos(tmp_path / "two", 1, 0, no_progress)
    [first] = _photos(tmp_path / "two")
    first.with_name("again.jpg").write_bytes(first.read_bytes())
    return tmp_path / "two"


def fastload(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", "-m", "fastload", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def left_in(scratch: Path) -> list[str]:
    # torch makes a cache there for whoever trains.
    return [path.name for path in scratch.iterdir() if not path.name.startswith("torchinductor_")]


def no_progress(done: int, total: int) -> None:
    pass


def test_made_photos_are_packed_loaded_and_learnt_from(scratch):
    done = fastload(*TINY, "--images", "24", "--steps", "16", "--encode", "keep", "--json")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] == [
        *("making", "packing", "starting", "loading", "training")
    ]
    result = json.loads(done.stdout)
    assert result["images"]["count"] == 24
    assert result["images"]["classes"] == len(SCENES)
    assert {"torch", "OpenCV", "Pillow"} <= result["versions"].keys()
    assert (result["workers"], result["steps"]) == (2, 16)

    reference, files, kept = sides = result["sides"]
    assert [side["encoding"] for side in sides] == [None, None, "keep"]
    for side in sides:
        assert side["loading"]["images_per_s"] > 0
        assert side["startup_s"] > 0
        assert 0 <= side["training"]["waits"] <= 1
        assert side["training"]["after"]["loss"] < side["training"]["before"]["loss"]
    assert reference["difference"] is None
    assert all(side["difference"]["has_equal_labels"] for side in sides[1:])
    # One decoder and one kernel: what is learnt from the packed files is the same to the bit.
    assert kept["training"]["after"] == files["training"]["after"]
    assert kept["difference"] == files["difference"]
    assert files["difference"]["mean"] < MEAN_LEVELS_OF_RESIZE
    assert left_in(scratch) == []


def test_own_folder_with_one_class_of_two_images(scratch, two_photos):
    before = sorted(two_photos.rglob("*"))
    done = fastload(*TINY, "--data", str(two_photos), "--steps", "2", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("fastload")
    assert "\n2 images, " in done.stdout
    for name in ("torch DataLoader + PIL", "fastload, same files", "fastload, packed"):
        assert re.search(rf"^{re.escape(name)}.*: loading \d.* images/s.*; training \d", done.stdout, re.M)
    assert "nothing to learn" in " ".join(done.stdout.split())
    assert sorted(two_photos.rglob("*")) == before
    assert left_in(scratch) == []


def test_terminal_gets_a_table_that_fits(scratch, two_photos, tmp_path):
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "fastload", *TINY, "--data", str(two_photos), "--steps", "0"]
    command += ["--encode", "keep"]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        [*command, "--quiet", "--keep", str(tmp_path / "kept")],
        stdin=child,
        stdout=child,
        stderr=subprocess.STDOUT,
        env=environment,
    ) as process:
        os.close(child)
        text = _read_all(parent)
    os.close(parent)
    assert process.returncode == 0, text
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert any(re.fullmatch(r"torch DataLoader \+ PIL +[\d ]+  1\.0 *", line) for line in lines), text
    assert max(len(line) for line in lines if not line.startswith("Kept in")) <= 80
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["photos-keep.fl"]


def _read_all(terminal: int) -> str:
    data = b""
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            more = b""
        if not more:
            return data.decode()
        data += more


def test_missing_folder_is_named(scratch, tmp_path, capsys):
    assert main(["demo", "--data", str(tmp_path / "nowhere")]) == 2
    assert str(tmp_path / "nowhere") in capsys.readouterr().err
    assert left_in(scratch) == []


def test_file_that_is_no_image_is_named(scratch, two_photos, capsys):
    [folder] = two_photos.iterdir()
    (folder / "broken.jpg").write_bytes(b"no image")
    assert main(["demo", "--data", str(two_photos), "--quiet"]) == 2
    assert "broken.jpg" in capsys.readouterr().err
    assert left_in(scratch) == []


def test_keep_spares_a_folder_that_is_not_empty(two_photos, capsys):
    assert main(["demo", "--keep", str(two_photos)]) == 2
    assert str(two_photos) in capsys.readouterr().err
    assert len(_photos(two_photos)) == 2


@pytest.mark.parametrize("option", [("--images", "0"), ("--workers", "0"), ("--steps", "-1")])
def test_number_that_cannot_be_is_refused(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["demo", *option])
    assert option[0] in capsys.readouterr().err


def test_missing_pillow_is_said_with_the_remedy():
    without_pillow = (
        "import sys; sys.modules['PIL'] = None; from fastload.cli.main import main; sys.exit(main(['demo']))"
    )
    done = subprocess.run([sys.executable, "-c", without_pillow], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install pillow" in done.stderr


def test_photos_depend_on_the_seed_alone(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_photos(tmp_path / name, 7, seed, no_progress)
    one, same, other = ([path.read_bytes() for path in _photos(tmp_path / name)] for name in "abc")
    assert one == same
    assert not {*one} & {*other}


def test_photos_have_the_sizes_of_photos(tmp_path):
    counts = make_photos(tmp_path, 20, 0, no_progress)
    assert counts == dict.fromkeys(SCENES, 4)
    sizes = [path.stat().st_size for path in _photos(tmp_path)]
    assert 60_000 < np.mean(sizes) < 120_000
    shapes = {cv2.imread(str(path)).shape for path in _photos(tmp_path)}
    assert len(shapes) > 10
    assert all(max(shape[:2]) in range(400, 501) for shape in shapes)


def _photos(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.jpg"))


@pytest.mark.parametrize("seed", range(20))
def test_both_sides_do_the_same_to_an_image(seed):
    pixels = draw_photo(SCENES["coast"], np.random.default_rng(seed))
    random.seed(seed)
    ours = torch.from_numpy(SharedCrop()(pixels).copy()).permute(2, 0, 1)
    random.seed(seed)
    theirs = crop_pil(Image.fromarray(pixels))
    assert ours.shape == theirs.shape == (3, 224, 224)
    assert ours.dtype == theirs.dtype == torch.uint8
    levels = (ours.short() - theirs.short()).abs()
    assert levels.max() <= MOST_LEVELS_OF_RESIZE
    assert levels.float().mean() < MEAN_LEVELS_OF_RESIZE


@pytest.mark.parametrize("size", [(300, 400), (1, 1), (1, 900), (900, 1)])
def test_crops_lie_within_the_image(size):
    random.seed(0)
    for _ in range(200):
        crop = draw_crop(*size)
        assert crop.height > 0
        assert crop.width > 0
        assert crop.top in range(size[0] - crop.height + 1)
        assert crop.left in range(size[1] - crop.width + 1)


def test_all_images_are_taken_where_they_lie(two_photos, tmp_path):
    assert gather(str(two_photos), None, 400, tmp_path / "links") == (two_photos, 2)
    assert not (tmp_path / "links").exists()


def test_some_images_are_linked_with_their_classes(tmp_path):
    make_photos(tmp_path / "train", 20, 0, no_progress)
    make_photos(tmp_path / "val", 5, 1, no_progress)
    folder, available = gather(str(tmp_path), 10, 400, tmp_path / "links")
    assert (folder, available) == (tmp_path / "links", 20)
    files = listed(folder)
    assert len(files) == 10
    assert set(files.classes) == set(SCENES)
    assert {Path(files.files.path(index)).resolve().parents[1] for index in range(10)} == {
        (tmp_path / "train").resolve()
    }


def test_own_folder_without_images_is_refused(tmp_path):
    with pytest.raises(SourceError, match=re.escape(str(tmp_path))):
        gather(str(tmp_path), None, 400, tmp_path / "links")

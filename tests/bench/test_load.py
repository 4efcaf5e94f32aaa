"""`fastload bench load` and `bench gpu-feed`: turns of complete loaders, their processes, their reports."""

import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch

from fastload.bench._driver import Driver, drop_files, size_on_disk
from fastload.bench.images import repeat_images
from fastload.bench.load import SideComparison, shared_job
from fastload.bench.load_results import LoadSetting
from fastload.bench.program import LOADERS, LoaderFailedError
from fastload.bench.sides import Side, choose_sides, photo_sides
from fastload.errors import OptionError
from tests.bench.test_report import parsed
from tests.commands import run
from tests.folders import class_folders

JOB = {"device": None, "is_warm": True, "min_s": 0.05, "max_s": 0.5}
SIDE = """
import time
from pathlib import Path
from epochs import Loading, Stored, serve

def epoch():
    print("between the answers")
    for _ in range(2):
        time.sleep(0.005)
        yield 5

serve(lambda job: Loading(epoch, Stored(Path(__file__)), {"peer": "1.2"}, lambda batch: batch))
"""


def program(folder, text):
    path = folder / "side.py"
    path.write_text(text)
    return path


def test_side_loads_whole_epochs_and_tells_what_it_stores(tmp_path):
    driver = Driver(Path(sys.executable), program(tmp_path, SIDE), JOB)
    turn = driver.turn()
    memory, kind = driver.peak_memory()
    driver.close()
    assert driver.versions == {"peer": "1.2"}
    assert driver.stored == tmp_path / "side.py"
    assert turn.samples % 10 == 0
    assert turn.seconds >= 0.05
    assert 0 < driver.first_batch_s < turn.seconds
    assert memory > 1 << 20
    assert kind == ("PSS" if sys.platform == "linux" else "RSS")


def test_long_epoch_ends_at_the_longest_turn(tmp_path):
    endless = SIDE.replace("range(2)", "range(10**9)")
    driver = Driver(Path(sys.executable), program(tmp_path, endless), JOB | {"max_s": 0.02})
    assert driver.turn().samples < 1000
    driver.close()


def test_failed_process_is_an_error_with_its_last_line(tmp_path):
    with pytest.raises(LoaderFailedError, match="ended with 1: no such photos"):
        Driver(Path(sys.executable), program(tmp_path, "import sys; sys.exit('no such photos')"), JOB)


def test_loader_that_fails_in_a_turn_is_listed_and_not_measured(tmp_path):
    dying = SIDE.replace(
        "def epoch():", "def epoch():\n    if ENDS.exists(): raise OSError('the disk is gone')"
    )
    ends = tmp_path / "ends"
    dying = dying.replace("def epoch", f"ENDS = Path({str(ends)!r})\n\ndef epoch", 1)
    (tmp_path / "good").mkdir()
    sides = [
        Side("good", "", program(tmp_path / "good", SIDE), {}),
        Side("dying", "", program(tmp_path, dying), {}),
        Side("absent", "webdataset", LOADERS, {}),
    ]
    comparison = SideComparison(sides, JOB, 2, tmp_path / "peers")
    comparison.run(lambda stage, done, total: ends.touch() if stage == "loading" else None)
    assert [side.name for side in comparison.measured] == ["good"]
    reasons = {missing.name: missing.reason for missing in comparison.missing}
    assert reasons["dying"] == "ended with 1: OSError: the disk is gone"
    assert "make peers" in reasons["absent"]


def test_json_markdown_and_page_hold_what_was_measured(tmp_path):
    class_folders(tmp_path / "photos", 12, size=(60, 70))
    page, tables = tmp_path / "out.html", tmp_path / "out.md"
    options = (
        "--smoke",
        "--only",
        "fastload, keep",
        "WebDataset",
        "--workers",
        "1",
        "2",
        "--peers",
        tmp_path,
    )
    done = run("bench", "load", tmp_path / "photos", *options, "--json", "--html", page, "--markdown", tables)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert [each["setting"]["workers"] for each in content["settings"]] == [1, 2]
    assert {"date", "commit", "machine", "versions", "smoke"} <= content["conditions"].keys()
    for each in content["settings"]:
        [measured] = each["sides"]
        assert measured["name"] == "fastload, keep"
        assert measured["slowest"] <= measured["images_per_s"] <= measured["fastest"]
        assert measured["write_s"] > 0
        assert measured["open_s"] > 0
        assert measured["stored_bytes"] > 10_000
        assert [missing["name"] for missing in each["missing"]] == ["WebDataset + OpenCV, linear"]
    drawn = [tag for tag, _ in parsed(page.read_text("utf-8")).seen]
    assert drawn.count("polyline") == 1
    assert "missing: WebDataset + OpenCV, linear" in tables.read_text("utf-8")
    assert "a smoke run: its figures mean nothing" in tables.read_text("utf-8")
    assert "| fastload, keep " in tables.read_text("utf-8")


@pytest.mark.soak
def test_device_waits_for_a_loader_and_not_for_synthetic_batches():
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("needs torchvision")
    options = ("--device", "cpu", "--smoke", "--only", "fastload, FolderDataset", "--workers", "1", "--json")
    # On a loaded machine, threads of a training step wait for each other.
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = run("bench", "gpu-feed", *options, "--quiet", env=one_thread)
    assert (done.returncode, done.stderr) == (0, "")
    [setting] = json.loads(done.stdout)["settings"]
    assert not setting["missing"]
    waits = {side["name"]: side["device_waits"] for side in setting["sides"]}
    assert waits["synthetic batches on the device"] == 0
    assert 0 <= waits["fastload, FolderDataset"] < 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_measured():
    done = run("bench", "gpu-feed", "--quiet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--device cpu" in done.stderr


def test_images_are_repeated_as_separate_files_or_as_hard_links(tmp_path):
    originals = sorted(class_folders(tmp_path / "given", 3).rglob("*.jpg"))
    for is_linked, files in ((False, 9), (True, 3)):
        folder = tmp_path / str(is_linked)
        repeat_images(originals, folder, 9, is_linked)
        made = list(folder.rglob("*.jpg"))
        assert len(made) == 9
        assert len({os.stat(path).st_ino for path in made}) == files
        assert size_on_disk(folder) == files // 3 * size_on_disk(tmp_path / "given")


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages of files cannot be dropped here")
def test_files_are_dropped_from_the_page_cache(tmp_path):
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    assert drop_files(tmp_path) in (0.0, None) or os.statvfs(tmp_path).f_blocks == 0


def test_cold_hard_links_are_refused():
    done = run("bench", "load", "--cache", "cold", "--hard-links", "--quiet")
    assert done.returncode == 2
    assert re.search("--cache cold needs", done.stderr)


def test_unknown_loader_is_refused_with_the_names():
    with pytest.raises(OptionError, match="got nothing like it: torch DataLoader"):
        choose_sides(photo_sides(), ["nothing like it"])


def test_a_loader_is_named_by_whole_words_in_any_case():
    assert [side.name for side in choose_sides(photo_sides(), ["pil"])] == [
        "torch DataLoader + torchvision/PIL"
    ]


def test_a_device_that_is_not_there_is_refused():
    done = run("bench", "gpu-feed", "--device", "cuda:99")
    assert done.returncode == 2
    assert "got cuda:99" in done.stderr


def test_cold_turns_are_not_warmed_up(tmp_path):
    setting = LoadSetting(10, 1, None, "cold")
    assert shared_job(tmp_path, tmp_path, setting, 5, 1.0)["is_warm"] is False

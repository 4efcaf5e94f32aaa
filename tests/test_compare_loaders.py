"""benchmarks/compare_loaders.py: turns of complete loaders, their processes, their reports."""

import importlib.util
import itertools
import json
import os
import re
import sys
from pathlib import Path

import pytest

from fastload.errors import OptionError
from tests.commands import run_python
from tests.folders import class_folders
from tests.test_benchmark_documents import parsed

FOLDER = Path(__file__).parent.parent / "benchmarks"
if not FOLDER.exists():
    pytest.skip("needs benchmarks/, of a checkout", allow_module_level=True)

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(FOLDER)
    from _document import Document, Section, Series
    from _driver import Driver, drop_files, size_on_disk
    from _html import to_html
    from _line_plot import LinePlot, drawing
    from _loading import SideComparison, shared_job
    from _loading_results import LoadSetting
    from _photos import repeat_images
    from _program import LoaderFailedError
    from _sides import PEERS, Side, choose_sides, photo_sides
    from compare_loaders import command_parser

JOB = {"device": None, "is_warm": True, "min_s": 0.05, "max_s": 0.5}
SIDE = f"""
import sys
import time
from pathlib import Path

sys.path.insert(0, {str(PEERS)!r})
from epochs import Loading, Stored, serve

def epoch():
    print("between the answers")
    for _ in range(2):
        time.sleep(0.005)
        yield 5

serve(lambda job: Loading(epoch, Stored(Path(__file__)), {{"peer": "1.2"}}, lambda batch: batch))
"""


def run(*arguments, **options):
    return run_python(FOLDER / "compare_loaders.py", *arguments, "--quiet", **options)


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
        Side("absent", "webdataset", PEERS, {}),
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
        "--image-size",
        "40",
        "--peers",
        tmp_path,
    )
    done = run(tmp_path / "photos", *options, "--json", "--html", page, "--markdown", tables)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert [each["setting"]["workers"] for each in content["settings"]] == [1, 2]
    assert {each["setting"]["shorter_side"] for each in content["settings"]} == {40}
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
    done = run(*options, env=one_thread)
    assert (done.returncode, done.stderr) == (0, "")
    [setting] = json.loads(done.stdout)["settings"]
    assert not setting["missing"]
    waits = {side["name"]: side["device_waits"] for side in setting["sides"]}
    assert waits["synthetic batches on the device"] == 0
    assert 0 <= waits["fastload, FolderDataset"] < 1


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
    done = run("--cache", "cold", "--hard-links")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search("--cache cold needs", done.stderr)


def test_the_readme_names_every_option():
    page = (FOLDER / "README.md").read_text("utf-8")
    options = {option for action in command_parser()._actions for option in action.option_strings}
    assert not [each for each in options - {"-h", "--help"} if f"`{each}" not in page]


def test_unknown_loader_is_refused_with_the_names():
    with pytest.raises(OptionError, match="got nothing like it: torch DataLoader"):
        choose_sides(photo_sides(), ["nothing like it"])


def test_a_loader_is_named_by_whole_words_in_any_case():
    assert [side.name for side in choose_sides(photo_sides(), ["pil"])] == [
        "torch DataLoader + torchvision/PIL"
    ]


def test_a_device_that_is_not_there_is_refused():
    done = run("--device", "cuda:99")
    assert (done.returncode, done.stdout) == (2, "")
    assert "got cuda:99: '--device cpu'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_cold_turns_are_not_warmed_up(tmp_path):
    setting = LoadSetting(10, 1, None, "cold")
    assert shared_job(tmp_path, tmp_path, setting, 5, 1.0)["is_warm"] is False


def test_lines_differ_and_their_numbers_do_not_overlap():
    series = tuple(Series(f"line {number}", (1.0, 100.0 + number), "own") for number in range(12))
    plot = LinePlot("rates", "workers", ("1", "2"), "images/s", series)
    parser = parsed(to_html(Document("title", ("answer",), (Section("all", plots=(drawing(plot),)),))))
    lines = [attributes for tag, attributes in parser.seen if tag == "polyline"]
    assert len({(line["style"], line["stroke-dasharray"]) for line in lines}) == len(series)
    names = re.findall(r"line [0-9]+", parser.text)
    assert names == [f"line {number}" for number in reversed(range(12))], "the highest end comes first"
    numbers = [attributes for tag, attributes in parser.seen if attributes.get("text-anchor") == "start"]
    heights = [float(number["y"]) for number in numbers[1:]]
    assert len(heights) == len(series)
    assert all(below - above >= 20 for above, below in itertools.pairwise(heights))

"""Every benchmark runs, records on what it ran, and leaves no table out of date. No figure is judged."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
BENCHMARKS = sorted(FOLDER.glob("bench_*.py"))

pytestmark = pytest.mark.skipif(not BENCHMARKS, reason="a source distribution has no benchmarks")


def run(program: Path, *arguments: object) -> str:
    done = subprocess.run([sys.executable, program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=BENCHMARKS, ids=lambda path: path.stem)
def smoke(request, tmp_path_factory):
    """What a tiny run printed, and the JSON that it wrote."""
    out = tmp_path_factory.mktemp(request.param.stem)
    more = ["--peers", out / "none"] if "--peers" in run(request.param, "--help") else []
    printed = run(request.param, "--smoke", "--out", out, *more)
    [result] = out.glob("*.json")
    return printed, result.read_text(encoding="utf-8")


def test_benchmark_asks_its_question(smoke):
    assert json.loads(smoke[1])["question"].endswith("?")


def test_every_table_holds_fastload(smoke):
    content = json.loads(smoke[1])
    rows = [*content["rows"], *content["missing"]]
    for table in content["tables"]:
        names = [row["row"] for row in rows if row["table"] == table["title"]]
        assert any("fastload" in name or "PackedDataset" in name for name in names)


def test_every_row_is_printed_with_its_medians(smoke):
    printed, written = smoke
    content = json.loads(written)
    for row in content["rows"]:
        names_row = f"{row['row']}, " if content["side_by_side"] else f"| {row['row']} |"
        assert names_row in printed
        assert row["min_s"] <= row["median_s"] <= row["max_s"]
    for missing in content["missing"]:
        assert f"| {missing['row']}: {missing['reason']} |" in printed


def test_result_says_on_what_it_was_measured(smoke):
    content = json.loads(smoke[1])
    assert {"commit", "date", "machine", "versions", "setting"} <= content.keys()
    assert "page cache" in content["setting"]
    assert "fastload" in content["versions"]


def test_result_names_no_path_of_this_machine(smoke):
    assert str(ROOT) not in smoke[1]
    assert tempfile.gettempdir() not in smoke[1]


def test_peer_that_is_not_installed_is_listed(tmp_path):
    printed = run(FOLDER / "bench_pack.py", "--smoke", "--only", "jpeg", "--peers", tmp_path)
    assert "| FFCV: not installed |" in printed


def test_files_given_are_packed(tmp_path):
    given = tmp_path / "given" / "class"
    given.mkdir(parents=True)
    (given / "no-image.jpg").write_bytes(b"no image")
    cv2.imwrite(str(given / "a.jpg"), np.zeros((32, 32, 3), np.uint8))
    arguments = ("--only", "keep", "--data", given.parent, "--photos", 5)
    assert "fastload pack" in run(FOLDER / "bench_pack.py", "--smoke", *arguments)


def test_sides_take_turns_at_going_first(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from _harness import Key, Reading, take_turns

    order = []

    def side(name):
        def work():
            order.append(name)
            return {Key("table", name): Reading(float(len(order)))}

        return work

    readings = take_turns([side("a"), side("b"), side("c")], 3)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert [reading.seconds for reading in readings["table", "a"]] == [1, 6, 8]


def test_tables_in_documents_are_those_of_the_results():
    run(FOLDER / "tables.py", "--check")

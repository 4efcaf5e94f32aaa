"""Benchmarks: each runs and records its conditions; no table or chart is out of date. No figure is judged."""

import dataclasses
import functools
import json
import re
import tarfile
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest

from tests.commands import run_python

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
BENCHMARKS = sorted(FOLDER.glob("bench_*.py"))
# tests/test_compare_loaders.py runs what they share.
_LONG = {"bench_load", "bench_scaling"}

pytestmark = pytest.mark.skipif(not BENCHMARKS, reason="a source distribution has no benchmarks")


def run(program: Path, *arguments: object) -> str:
    done = run_python(program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(path, id=path.stem, marks=[pytest.mark.soak] if path.stem in _LONG else [])
        for path in BENCHMARKS
    ],
)
def smoke(request, tmp_path_factory):
    """The output and the JSON of a tiny run."""
    out = tmp_path_factory.mktemp(request.param.stem)
    more = ["--peers", out / "none"] if "PEERS_OPTION" in request.param.read_text() else []
    printed = run(request.param, "--smoke", "--out", out, *more)
    [result] = out.glob("*.json")
    return printed, result.read_text(encoding="utf-8")


def test_result_has_the_question(smoke):
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
        assert f"| {row['row']} |" in printed
        assert row["min_s"] <= row["median_s"] <= row["max_s"]
    for missing in content["missing"]:
        assert f"- {missing['row']}: {missing['reason']}\n" in printed


def test_result_has_its_conditions(smoke):
    content = json.loads(smoke[1])
    assert {"commit", "date", "machine", "versions", "setting"} <= content.keys()
    assert "page cache" in content["setting"]
    assert "fastload" in content["versions"]


def test_result_contains_no_path_of_this_machine(smoke):
    assert str(ROOT) not in smoke[1]
    assert tempfile.gettempdir() not in smoke[1]


def test_peer_that_is_not_installed_is_listed(tmp_path):
    printed = run(FOLDER / "bench_pack.py", "--smoke", "--only", "jpeg", "--peers", tmp_path)
    assert "- FFCV: not installed\n" in printed


def test_own_files_are_packed(tmp_path):
    given = tmp_path / "given" / "class"
    given.mkdir(parents=True)
    (given / "no-image.jpg").write_bytes(b"no image")
    cv2.imwrite(str(given / "a.jpg"), np.zeros((32, 32, 3), np.uint8))
    arguments = ("--only", "keep", "--data", given.parent, "--photos", 5)
    assert "fastload pack" in run(FOLDER / "bench_pack.py", "--smoke", *arguments)


def test_sides_take_turns_in_going_first(monkeypatch):
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


def test_comparison_divides_rates_and_stored_bytes(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from _harness import Comparison, Key, Reading, Report, Table
    from _markdown import markdown

    fast, slow, core = Key("all", "fast"), Key("all", "slow"), Key("one core", "core")
    readings = {
        fast: [Reading(seconds, 2.0, 50) for seconds in (1.0, 2.0, 1.0)],
        slow: [Reading(seconds, 8.0, 100) for seconds in (3.0, 4.0, 4.0)],
        core: [Reading(1.0)] * 3,
    }
    asked = [Comparison(fast, slow), Comparison(fast, core, times=2), Comparison(fast, Key("all", "missing"))]
    content = Report(
        name="made up",
        question="Which?",
        setting={},
        tables=[Table("all", "photos", 10), Table("one core", "photos", 10)],
        readings=readings,
        missing=[],
        versions={},
        comparisons=asked,
    ).to_json()
    beside_slow, beside_cores = content["comparisons"]
    assert [beside_slow[name] for name in ("ratio", "min", "max", "stored")] == [4.0, 2.0, 4.0, 0.5]
    assert [beside_cores[name] for name in ("ratio", "min", "max", "stored")] == [0.5, 0.25, 0.5, None]
    assert "| all: fast | slow | 4.00 × | 2.00–4.00 | 0.25 × | 0.50 × |" in markdown(content)
    assert "| all: fast | 2 × core | 0.50 × | 0.25–0.50 | – | – |" in markdown(content)


def test_every_loading_comparison_names_existing_sides(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from _load_tables import comparisons, tables

    sides = {(title, side.name) for title, sides in tables().items() for side in sides}
    for comparison in comparisons(2):
        assert {tuple(comparison.row), tuple(comparison.beside)} <= sides


def test_every_peer_has_its_requirements(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER / "peers")
    from install import PEERS

    for name in PEERS:
        assert (FOLDER / "peers" / f"{name}.txt").exists()
        assert (FOLDER / "peers" / f"load_{name}.py").exists()


def test_tar_of_class_folders_is_unpacked_by_class(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(FOLDER)
    from _photos import unpack_tar

    source = tmp_path / "all" / "cats" / "a.jpg"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"cat")
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.add(source, "all/cats/a.jpg")
        tar.add(source, "all/../a.jpg")
    unpack_tar(tmp_path / "all.tar", tmp_path / "out")
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [tmp_path / "out/cats/a.jpg"]
    assert (tmp_path / "out/cats/a.jpg").read_bytes() == b"cat"


@pytest.mark.soak
def test_training_is_compared(tmp_path):
    printed = run(FOLDER / "check_training.py", "--smoke", "--out", tmp_path)
    content = json.loads((tmp_path / "training.json").read_text(encoding="utf-8"))
    for name in ("torchvision", "fastload", "compiled"):
        assert f"| {name} |" in printed
        assert len(content["accuracies"][name]) == content["setting"]["seeds"]
    assert content["differences"].keys() == {"fastload", "compiled"}
    assert str(ROOT) not in json.dumps(content)
    assert tempfile.gettempdir() not in json.dumps(content)


@pytest.mark.soak
@pytest.mark.frameworks("ultralytics")
def test_training_of_a_yolo_is_compared(tmp_path):
    printed = run(FOLDER / "check_yolo.py", "--smoke", "--out", tmp_path)
    content = json.loads((tmp_path / "yolo.json").read_text(encoding="utf-8"))
    names = {"metrics/mAP50(B)", "train/box_loss", "val/box_loss"}
    for side in content["differences"]:
        assert f"| Ultralytics | {side} |" in printed
        assert names <= content["measured"][side].keys()
        assert {len(values) for values in content["measured"][side].values()} == {2}
    assert str(ROOT) not in json.dumps(content)
    assert tempfile.gettempdir() not in json.dumps(content)


def test_closeness_is_measured_of_every_form(tmp_path):
    printed = run(FOLDER / "check_closeness.py", "--smoke", "--out", tmp_path)
    content = json.loads((tmp_path / "closeness.json").read_text(encoding="utf-8"))
    assert "| RandomInvert() | equal | equal | equal |" in printed
    assert len(content["closeness"]["RandomResize(200, 300)"]) == 2, "it is no transform of v1"
    assert content["closeness"]["RandomResizedCrop(224)"]["PIL images, v1"]["largest"] in (1, 2)


def test_windows_are_measured_beside_a_full_shuffle(tmp_path):
    run(FOLDER / "check_windows.py", "--smoke", "--out", tmp_path)
    content = json.loads((tmp_path / "windows.json").read_text(encoding="utf-8"))
    distances = [row["distance"] for row in content["quality"]]
    assert distances == sorted(distances)
    assert distances[-1] == pytest.approx(1, abs=0.05)


def test_a_training_waits_only_if_the_network_is_too_slow(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from _cluster import simulated
    from simulate_cluster import CHECKED, arithmetic_s

    cluster = dataclasses.replace(CHECKED, ranks=4, step_spread=0.0)
    for need in (1.2, 0.8, 0.5):
        network = need * cluster.needed_bytes_per_s()
        epoch = simulated(dataclasses.replace(cluster, remote_bytes_per_s=network))
        assert epoch.downloaded_bytes == 4 * 60 * 16 * 16 * 1024
        steps_s = 60 * cluster.step_s
        waiting_s = max(steps_s, epoch.downloaded_bytes / network) - steps_s
        assert epoch.waiting_s == pytest.approx(waiting_s, rel=0.1)
        least_s = arithmetic_s(dataclasses.replace(cluster, remote_bytes_per_s=network))
        assert least_s <= epoch.seconds <= least_s + cluster.step_s + epoch.start_up_s


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "0% of the time for data, and"),
        ({"remote_bytes_per_s": 1e9}, r"the remote sends 1\.0 GB/s, and \d+\.\d GB/s are needed"),
        ({"node_bytes_per_s": 1e8, "gradient_bytes": 0.0}, r"a node's network carries 100\.0 MB/s"),
        ({"cached": 1.0, "disk_bytes_per_s": 1e8}, r"a node's disk reads 100\.0 MB/s"),
        ({"decode_samples_per_s": 50.0}, "a rank's workers decode 400 samples/s, and .* are needed"),
    ],
)
def test_the_answer_names_what_a_cluster_waits_for(monkeypatch, changes, words):
    monkeypatch.syspath_prepend(FOLDER)
    from _cluster_answer import answer
    from simulate_cluster import SIMULATED

    cluster = dataclasses.replace(SIMULATED, ranks=16, step_spread=0.01, **changes)
    assert re.search(words, answer(cluster))


def test_a_cluster_of_ones_own_is_simulated_alone():
    done = run(FOLDER / "simulate_cluster.py", "--ranks", "4", "--sample-bytes", "150e3", "--steps", "5")
    assert re.match(r"4 ranks train [\d,.]+ samples/s, \d+% of what their steps alone would", done)


def test_transfers_share_a_link_equally(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from _cluster import Events, Link

    events, ends = Events(), {}
    link = Link(events, 100.0, limit=60.0)
    for name, begin, size in (("long", 0.0, 140.0), ("short", 1.0, 50.0)):
        note = functools.partial(lambda name: ends.update({name: events.now}), name)
        events.at(begin, functools.partial(link.transfer, size, note))
    events.run()
    # 60 bytes alone, 50 of 80 beside the other, and 30 alone again.
    assert ends == {"short": pytest.approx(2.0), "long": pytest.approx(2.5)}


@pytest.mark.soak
def test_real_ranks_are_simulated(tmp_path):
    run(FOLDER / "simulate_cluster.py", "--smoke", "--out", tmp_path)
    content = json.loads((tmp_path / "cluster.json").read_text(encoding="utf-8"))
    assert [row["network"] for row in content["checked"]] == [1.2, 0.8, 0.5]
    for row in content["checked"]:
        assert row["real"]["downloaded_bytes"] == row["simulated"]["downloaded_bytes"]
        assert row["real"]["seconds"] > row["arithmetic_s"] / 2
    assert {row["ranks"] for row in content["epochs"]} == {1, 16}


def test_tables_and_charts_are_those_of_the_results():
    run(FOLDER / "tables.py", "--check")


def test_readme_has_a_summary_and_charts_that_follow_the_results(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from _readme import charts, summary

    names = ("compile", "load", "transport")
    results = {name: json.loads((FOLDER / "results" / f"{name}.json").read_text()) for name in names}
    table, drawn = summary(results), charts(results)
    assert table in (ROOT / "README.md").read_text()
    assert len(table.splitlines()) <= 2 + 7
    for palette, svg in drawn.items():
        ElementTree.fromstring(svg)
        assert f"benchmarks/results/loading-{palette}.svg" in (ROOT / "README.md").read_text()
    [row] = [row for row in results["load"]["rows"] if row["row"] == "fastload, jpeg"]
    row["median_s"] /= 2
    assert summary(results) != table
    assert charts(results)["light"] != drawn["light"]

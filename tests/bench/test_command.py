"""`fastload bench decode` from its command line to its files."""

import argparse
import html
import json
from pathlib import Path

import pytest

from fastload.bench.decoding import compare_decoding
from fastload.cli.main import command_parser
from fastload.errors import SourceError
from tests.commands import run, run_on_terminal
from tests.folders import class_folders

TINY = ("bench", "decode", "--smoke", "--images", "2", "--runs", "1")


def test_page_and_json_have_the_same_result(tmp_path):
    page, tables = tmp_path / "out.html", tmp_path / "out.md"
    done = run(*TINY, "--workers", "1", "--debug", "--json", "--html", page, "--markdown", tables)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    groups = {comparison["group"] for comparison in content["comparisons"]}
    assert "Pipeline, DataLoader" in groups
    assert all(comparison["rows"][0]["library"] == "PIL" for comparison in content["comparisons"])
    [loaded] = [c for c in content["comparisons"] if c["group"] == "Pipeline, DataLoader"]
    assert [row["library"] for row in loaded["rows"]] == ["PIL", "OpenCV", "fastload"]
    for written in (html.unescape(page.read_text("utf-8")), tables.read_text("utf-8")):
        assert content["verdict"][0] in written
        assert "a smoke run: its figures mean nothing" in written
    assert {"date", "commit", "machine", "versions", "smoke"} <= content["conditions"].keys()
    assert content["conditions"]["cache"] == "warm"
    named = {library["name"]: library for library in content["libraries"]}
    assert {"PIL", "OpenCV", "fastload", "torchvision", "torch"} <= named.keys()
    assert all(library["version"] or library["reason"] for library in named.values())
    assert "libjpeg" in named["OpenCV"]["jpeg"]


def test_own_images_are_measured_and_json_is_the_only_output(tmp_path):
    class_folders(tmp_path / "photos", 9, size=(60, 70))
    done = run(*TINY, tmp_path / "photos", "--workers", "0", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert content["images"]["available"] == 9
    assert content["images"]["count"] == 2
    assert "Pipeline, DataLoader" not in {comparison["group"] for comparison in content["comparisons"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere"),
        (["--html", "no/such/folder.html"], "--html must name a file"),
    ],
)
def test_wrong_arguments_are_one_sentence_at_once(arguments, message, tmp_path):
    done = run(*TINY, *arguments, "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", [("--images", "0"), ("--runs", "0"), ("--workers", "-1")])
def test_impossible_number_is_refused(option):
    done = run(*TINY, *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"argument {option[0]}: must be a whole number" in done.stderr


def test_folder_without_images_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="must hold images"):
        compare_decoding(tmp_path)


def test_terminal_gets_tables_and_the_answer_last():
    text, code = run_on_terminal(*TINY, "--workers", "0", "--quiet", columns=120)
    assert code == 0, text
    assert "INTER_AREA" in text
    assert text.splitlines()[-1].startswith("PIL or OpenCV? This was a smoke run")


def test_page_of_the_command_line_names_every_option():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    bench = next(a for a in command_parser()._actions if isinstance(a, argparse._SubParsersAction))
    kinds = next(a for a in bench.choices["bench"]._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in kinds.choices.items():
        assert f"fastload bench {name}" in page
        for option in (o for action in command._actions for o in action.option_strings if o[:2] == "--"):
            assert f"`{option}" in page

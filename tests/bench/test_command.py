"""`fastload bench decode` from its command line to its output."""

import argparse
import json
from pathlib import Path

import pytest

from fastload.bench.decoding import compare_decoding
from fastload.cli.main import command_parser
from fastload.errors import SourceError
from tests.commands import run, run_on_terminal
from tests.folders import class_folders

TINY = ("bench", "decode", "--smoke", "--images", "2", "--runs", "1")


def test_json_and_tables_have_the_same_result(tmp_path):
    class_folders(tmp_path / "photos", 9, size=(60, 70))
    done = run(*TINY, tmp_path / "photos", "--debug", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert (content["images"]["available"], content["images"]["count"]) == (9, 2)
    assert all(comparison["rows"][0]["library"] == "PIL" for comparison in content["comparisons"])
    assert {"date", "machine", "versions", "smoke"} <= content["conditions"].keys()
    assert content["conditions"]["cache"] == "warm"
    named = {library["name"]: library for library in content["libraries"]}
    assert {"PIL", "OpenCV", "fastload", "torch"} == named.keys()
    assert all(library["version"] or library["reason"] for library in named.values())
    assert "libjpeg" in named["OpenCV"]["jpeg"]


def test_wrong_arguments_are_one_sentence_at_once(tmp_path):
    done = run(*TINY, "nowhere", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", [("--images", "0"), ("--runs", "0")])
def test_impossible_number_is_refused(option):
    done = run(*TINY, *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"argument {option[0]}: must be a whole number" in done.stderr


def test_folder_without_images_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="must hold images"):
        compare_decoding(tmp_path)


def test_terminal_gets_tables_and_the_answer_last():
    text, code = run_on_terminal(*TINY, "--quiet", columns=120)
    assert code == 0, text
    assert "INTER_AREA" in text
    assert "This was a smoke run: its figures mean nothing" in text
    assert any(line.startswith("On this machine OpenCV is faster at") for line in text.splitlines()[-6:])


def test_page_of_the_command_line_names_every_option():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    bench = next(a for a in command_parser()._actions if isinstance(a, argparse._SubParsersAction))
    kinds = next(a for a in bench.choices["bench"]._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in kinds.choices.items():
        assert f"fastload bench {name}" in page
        for option in (o for action in command._actions for o in action.option_strings if o[:2] == "--"):
            assert f"`{option}" in page

"""Form of the output: numbers, blanks, colours, and suggestions for mistyped words."""

import os
import re
import sys

import pytest

import fastload
from fastload.cli import parser
from fastload.packing.encoding import options
from tests.commands import run, run_on_terminal
from tests.folders import class_folders, pixels


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A packed dataset of 1,200 records."""
    dest = tmp_path_factory.mktemp("packed") / "x.fl"
    fastload.pack([(pixels(0, 4, 4), number) for number in range(1200)], dest, encode="raw", workers=1)
    return dest


def test_numbers_have_separated_thousands(packed, tmp_path):
    shown = {line.split("  ")[0]: line for line in run("info", packed).stdout.splitlines()}
    assert "1,200" in shown["records"]
    assert "1,200 records" in run("verify", packed).stdout
    assert "1,200 files" in run("unpack", packed, tmp_path / "out").stdout
    assert "1,200 records" in run("pack", tmp_path / "out/labels.csv", tmp_path / "again.fl").stdout


def test_piped_output_has_no_trailing_blanks_and_no_escape_codes(packed):
    for command in (["info", packed], ["verify", packed], ["--help"], ["pack", "--help"], ["pakc"]):
        done = run(*command)
        for line in (done.stdout + done.stderr).splitlines():
            assert line == line.rstrip()
            assert "\x1b" not in line


def test_dumb_terminal_gets_the_output_of_a_pipe(packed, tmp_path):
    run("unpack", packed, tmp_path / "out")
    for command in (
        ["verify", packed],
        ["pack", tmp_path / "out/labels.csv", tmp_path / "again.fl", "--overwrite"],
    ):
        shown = run_on_terminal(*command, TERM="dumb")[0].replace("\r\n", "\n")
        assert shown.splitlines()[0].strip()
        assert shown.count("\n") == run(*command).stdout.count("\n")


@pytest.mark.parametrize("command", ["--help", "pakc", pytest.param("doctor", marks=pytest.mark.soak)])
def test_no_color_and_dumb_terminals_get_no_style(packed, tmp_path, command):
    arguments = [command] if command in ("--help", "pakc") else [command, packed]
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        text, _ = run_on_terminal(*arguments, **environment)
        assert text
        assert not re.search(r"\x1b\[[0-9;]*m", text)


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        (["pakc", "a", "b"], "pack"),
        (["Verify", "a"], "verify"),
        (["bench", "decoed"], "decode"),
        (["pack", "a", "b", "--encode", "jepg"], "jpeg"),
        (["pack", "a", "b", "--format=hfd5"], "hdf5"),
        (["pack", "a", "b", "--on-error", "skipp"], "skip"),
        (["pack", "a", "b", "--overwirte"], "--overwrite"),
        (["pack", "a", "b", "--shard_size=3MB"], "--shard-size"),
        (["doctor", "--stpes", "3", "train.py"], "--steps"),
        (["demo", "--encode", "raw", "kep"], "keep"),
        (["--vesion"], "--version"),
        (["pack", "--qualty", "9", "a"], "--quality"),
    ],
    ids=" ".join,
)
def test_most_similar_word_is_suggested_for_a_mistyped_one(command, meant):
    done = run(*command)
    assert done.returncode == 2
    assert f"did you mean '{meant}'?" in done.stderr
    assert done.stdout == ""


def test_the_encodings_of_the_command_line_are_those_of_packing():
    assert parser.ENCODE_NAMES == options.ENCODE_NAMES


def test_missing_argument_is_named_if_all_options_are_known():
    missing = {("doctor", "--quiet"): "PATH", ("pack", "--over", "--qual=9", "a"): "DEST"}
    for arguments, name in missing.items():
        done = run(*arguments)
        assert done.returncode == 2
        assert f": the following arguments are required: {name} (" in done.stderr
        assert done.stderr.count("\n") == 1


def test_all_commands_are_listed_for_a_word_like_none():
    done = run("zzz")
    assert done.returncode == 2
    assert "did you mean" not in done.stderr
    assert "pack, merge, info, preview, verify" in done.stderr


def test_arguments_of_a_script_are_left_to_it(tmp_path):
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:])")
    assert "['--overwirte', '-x']" in run("doctor", tmp_path / "train.py", "--overwirte", "-x").stdout


@pytest.mark.parametrize("command", [["bench", "decode"], ["demo"]])
def test_missing_pillow_is_reported_before_any_work(tmp_path, monkeypatch, command):
    class_folders(tmp_path / "photos", 3)
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text("raise ModuleNotFoundError('PIL is away')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    done = run(*command)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install" in done.stderr

"""Names, classes and messages from data: a terminal and a page show them, and obey nothing in them."""

import ast
import json
import os
import pickle
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fastload.cli
from fastload.cli import main
from fastload.cli.output import ProgressDisplay
from fastload.errors import printable
from fastload.shards.manifest import Manifest
from tests.commands import run, run_on_terminal
from tests.folders import encoded, pixels

CLI = Path(fastload.cli.__file__).parent

# Each with what a terminal must be shown instead.
HOSTILE = {
    "\x1b]0;owned\x07": r"\x1b]0;owned\x07",  # sets the title
    "\x1b[31m": r"\x1b[31m",  # colours
    "\x9b2J": r"\x9b2J",  # C1: clears the screen
    "\x7f\x08": r"\x7f\x08",
    "a\rb": r"a\rb",  # overwrites the line
    "a\nfastload: all is well": r"a\nfastload: all is well",
    "a\x85b\u2028c": r"a\x85b\u2028c",  # further line ends
    "\u202egpj.exe": r"\u202egpj.exe",  # bidirectional override
    "\u2066a\u2069\u200b": r"\u2066a\u2069\u200b",
    "\U000e0041": r"\U000e0041",  # a tag, invisible
    os.fsdecode(b"\xff\xfe"): r"\udcff\udcfe",
    "\x1b\\": "\\x1b\\",
}


def is_safe(text: str) -> bool:
    """True if a terminal that gets the text shows every character, and does nothing else than end lines."""
    return all(each == "\n" or each.isprintable() or unicodedata.category(each) == "Zs" for each in text)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_python_writes_it(text):
    assert printable(text) == HOSTILE[text]
    assert printable(f"before {text} after") == f"before {HOSTILE[text]} after"
    assert is_safe(printable(text))


@pytest.mark.parametrize(
    "text", ["", "photo.jpg", "Übergröße", "写真\u3000一", "naïve\u00a0café", "😀 ×", r"C:\new", "e\u0301"]
)
def test_other_text_stays_as_it_is(text):
    assert printable(text) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_an_exception_that_a_script_does_not_catch_is_shown_safely(text, tmp_path):
    """Python prints its message as it is."""
    folder = tmp_path / text
    folder.mkdir()
    with pytest.raises(fastload.FastloadError) as raised:
        fastload.PackedDataset(folder)
    assert is_safe(str(raised.value))
    assert printable(text) in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_an_exception_from_a_worker_is_shown_safely_and_keeps_its_traceback():
    class Broken(torch.utils.data.Dataset):
        def __getitem__(self, index):
            raise fastload.DamageError("shard \x1b[31m\nfastload: all is well")

        def __len__(self):
            return 2

    with pytest.raises(fastload.DamageError) as raised:
        next(iter(torch.utils.data.DataLoader(Broken(), num_workers=1)))
    assert is_safe(str(raised.value))
    assert "Traceback (most recent call last):\n" in str(raised.value)
    assert "\nfastload: all is well" not in str(raised.value)


@pytest.fixture
def source(tmp_path):
    """Class folders and files with hostile names: images, bytes that are no image, and texts."""
    for number, name in enumerate(HOSTILE):
        folder = tmp_path / "photos\x1b[1m" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.png").write_bytes(encoded(pixels(number), ".png"))
        (folder / f"bad {name}.png").write_bytes(b"no image")
        (folder / f"{name}.csv~").write_text(name, errors="surrogateescape")
    return tmp_path / "photos\x1b[1m"


@pytest.fixture
def packed(source, tmp_path):
    path = tmp_path / "packed\x9b.fl"
    fastload.pack(source, path, on_error="keep", workers=1)
    return path


def check(*command):
    """Run a command on a terminal and through pipes; return its output after checking it."""
    done = run(*command)
    assert is_safe(done.stdout), repr(done.stdout)
    assert is_safe(done.stderr), repr(done.stderr)
    assert "Traceback" not in done.stdout + done.stderr or "--debug" in command
    assert not any(line.startswith("fastload: all is well") for line in done.stderr.splitlines())
    return done.stdout + done.stderr


def test_no_command_prints_what_a_terminal_obeys(source, packed, tmp_path):
    for options in (
        [],
        ["--on-error", "skip"],
        ["--on-error", "keep", "--overwrite"],
        ["--json"],
        ["--debug"],
    ):
        check("pack", source, tmp_path / "new\x1b[0m.fl", "--workers", "1", *options)
    info = check("info", packed)
    assert printable(str(packed)) in info
    assert r"\x1b[31m" in info
    for command in ("info", "verify"):
        check(command, packed, "--json")
    check("verify", packed, "--check", "pixels", "--workers", "1")
    check("unpack", packed, tmp_path / "out\x1b[0m")
    check("preview", packed, "--out", tmp_path / "sheet\x1b.png")
    check("info", tmp_path / "missing\x1b[0m")
    check("--\x1b[0m", "pack")
    check("pack", source, "--columm\x1b[0m")


def test_damage_in_hostile_names_is_reported_safely(packed, tmp_path):
    [shard] = packed.glob("shard-*")
    data = bytearray(shard.read_bytes())
    data[4096:12000] = bytes(12000 - 4096)
    shard.write_bytes(data)
    assert "shard-00000.h5, record 0" in check("verify", packed, "--workers", "1")
    check("unpack", packed, tmp_path / "out")
    (packed / "extra\x1b[0m").write_text("")
    assert r"extra\x1b[0m: is not listed" in check("verify", packed, "--workers", "1")


def test_every_text_of_a_manifest_is_shown_safely(packed):
    """A manifest may be written by anybody, with a digest that fits."""
    manifest = Manifest.from_bytes((packed / "manifest.json").read_bytes(), "")
    hostile = "\x1b]0;owned\x07\n\u202e\x9b"

    def spoilt(value):
        if isinstance(value, dict):
            return {key: spoilt(each) for key, each in value.items()} | {hostile: hostile}
        return hostile if isinstance(value, str) else value

    made = spoilt(dict(manifest.made))
    changed = replace(manifest, made=made, classes=(hostile,) * len(manifest.classes))
    (packed / "manifest.json").write_bytes(changed.to_bytes())
    assert printable(hostile) in check("info", packed)
    for command in (
        ["verify", packed],
        ["unpack", packed, packed.with_name("out")],
        ["info", packed, "--json"],
    ):
        check(*command)


def test_the_bar_on_a_terminal_shows_hostile_names_escaped(tmp_path):
    for split in ("train", "val\x1b]0;owned\x07"):
        folder = tmp_path / "data" / split / "a"
        folder.mkdir(parents=True)
        for number in range(40):
            (folder / f"{number}.png").write_bytes(encoded(pixels(number, 200, 300), ".png"))
    text, _ = run_on_terminal(
        "pack", tmp_path / "data", tmp_path / "new", "--workers", "1", "--encode", "keep"
    )
    assert "owned\x07" not in text


def test_lines_of_progress_show_hostile_names_escaped(capsys):
    display = ProgressDisplay("", "records")
    display.stage("packing \x1b[31m", 0, 10)
    display._start, display._shown = display._start - 60, display._shown - 60  # as in a long run
    display.update(5, 10, "  val\x1b[31m")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == r"packing \x1b[31m …"
    assert lines[1].startswith(r"packing \x1b[31m: 50%, 0 records/s  val\x1b[31m, ")


def test_caches_of_hostile_names_are_listed_safely(tmp_path):
    folder = tmp_path / "fastload"
    folder.mkdir(mode=0o700)
    hostile = "\x1b[31m\n\x9b"
    name = "\x1b[31m\x9b-0123456789ab"
    (folder / f"{name}.lock").write_text("")
    (folder / f"{name}.json").write_text(json.dumps({"dataset": hostile, "stopped": hostile}))
    listed = check("cache", "list", "--folder", tmp_path)
    assert listed.count(printable(hostile)) == 2
    assert printable(name) in listed
    check("cache", "clear", "--all", "--folder", tmp_path)
    check("cache", "clear", "\x1b[1m", "--folder", tmp_path)


# --- One way out. ------------------------------------------------------------------------------------------

# The module that prints, and what may not be used beside it.
WRITER = "output.py"
OTHER_WAYS = re.compile(
    r"\bprint$|\.(stdout|stderr|__stdout__|__stderr__)\.(write|writelines|buffer)|traceback\.print_|pprint|"
    r"warnings\.warn$|logging\.|os\.write$|_print_message$|rich\.print|\.print$"
)


def calls_in(module):
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_only_one_module_of_the_command_line_writes_to_a_stream():
    found = []
    for module in sorted(CLI.rglob("*.py")):
        for name, node in calls_in(module):
            place = f"{module.relative_to(CLI)}:{node.lineno}: {ast.unparse(node)}"
            streams = [each for each in node.keywords if each.arg == "file"]
            if module.name != WRITER and (OTHER_WAYS.search(name) or streams):
                found.append(place)
            # `ArgumentParser.exit` prints its second argument.
            if name.endswith(".exit") and len(node.args) + len(node.keywords) > 1:
                found.append(place)
    assert not found


def test_the_writer_escapes_every_line_that_it_prints():
    printed = [node for name, node in calls_in(CLI / WRITER) if name == "print"]
    bar = "printable(text)[:width].ljust(width)"
    lines = ["printable(str(line))"] * 2
    assert [ast.unparse(each) for node in printed for each in node.args] == [bar, *lines]


def test_errors_of_the_parser_pass_through_it(capsys):
    with pytest.raises(SystemExit):
        main.main(["info", "--\x1b[0m\n"])
    assert is_safe(capsys.readouterr().err.removesuffix("\n"))

"""Output of the commands: quiet, JSON, terminals, pipes that close, names of every kind."""

import json
import os
import subprocess

import cv2
import numpy as np
import pytest

import fastload
from fastload.cli.output import show_json
from fastload.datasets.packed import PackedDataset
from fastload.datasets.preview import write_sheet
from fastload.images.encoding_names import ENCODING_NAMES
from tests.commands import FASTLOAD, run, run_on_terminal
from tests.folders import class_folders, encoded, files_in, pixels


@pytest.fixture
def photos(tmp_path):
    return class_folders(tmp_path / "photos", 12)


@pytest.fixture
def packed(photos, tmp_path):
    fastload.pack(photos, tmp_path / "photos.fl", encode="keep", workers=1)
    return tmp_path / "photos.fl"


@pytest.fixture
def splits(tmp_path):
    for split in ("train", "val"):
        class_folders(tmp_path / "data" / split, 6)
    fastload.pack(tmp_path / "data", tmp_path / "both", encode="keep", workers=1)
    return tmp_path / "both"


def change_a_byte(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


class TestQuietAndJson:
    def test_quiet_prints_nothing_if_all_is_well(self, packed, tmp_path):
        for command in (["verify", packed], ["unpack", packed, tmp_path / "out"]):
            done = run(*command, "--quiet")
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_quiet_still_reports_problems(self, photos, packed, tmp_path):
        change_a_byte(packed / "shard-00000.h5", 5000)
        (photos / "class0" / "bad.jpg").write_bytes(b"")
        commands = [
            (["verify", packed], "shard-00000.h5"),
            (["unpack", packed, tmp_path / "out"], "left out"),
            (["pack", photos, tmp_path / "x.fl", "--on-error", "skip"], ""),
            (["pack", photos, tmp_path / "y.fl"], "bad.jpg"),
        ]
        for command, part in commands:
            done = run(*command, "--quiet")
            assert done.returncode != 0
            assert done.stdout == ""
            assert part in done.stderr

    def test_json_is_the_only_output_of_every_command(self, packed, splits, tmp_path):
        assert json.loads(run("unpack", packed, tmp_path / "out", "--json").stdout)["files"] == 12
        for path, count in ((packed, 1), (splits, 2)):
            verified = json.loads(run("verify", path, "--json").stdout)
            assert [entry["damages"] for entry in verified] == [[]] * count
            assert len(json.loads(run("info", path, "--json").stdout)) == count
        done = run("pack", tmp_path / "data", tmp_path / "again", "--json")
        assert [split["records"] for split in json.loads(done.stdout)["splits"]] == [6, 6]

    def test_json_of_a_failure_is_a_sentence_on_standard_error(self, tmp_path):
        for command in (["pack", "nowhere", tmp_path / "x.fl"], ["info", "nowhere"], ["verify", "nowhere"]):
            done = run(*command, "--json")
            assert done.returncode == 2
            assert done.stdout == ""
            assert done.stderr.startswith("fastload: nowhere")


class TestSplits:
    def test_commands_accept_the_folder_of_splits(self, splits, tmp_path):
        assert run("verify", splits).stdout.count("all is well") == 2
        shown = "".join(run("info", splits).stdout.split())  # paths may be wrapped
        assert "train.fl" in shown
        assert "val.fl" in shown
        assert run("unpack", splits, tmp_path / "out").returncode == 0
        assert files_in(tmp_path / "out") == files_in(tmp_path / "data")

    @pytest.mark.parametrize("place", [5, 14, 40, 300, -3])
    def test_a_damaged_manifest_of_one_split_is_found(self, splits, place):
        change_a_byte(splits / "val.fl" / "manifest.json", place)
        done = run("verify", splits)
        assert done.returncode == 1
        assert "val.fl" in done.stderr
        assert "all is well" in done.stdout

    def test_a_split_without_its_manifest_is_found(self, splits):
        (splits / "val.fl" / "manifest.json").unlink()
        done = run("verify", splits)
        assert done.returncode in (1, 2)
        assert "val.fl" in done.stderr


class TestPython:
    """The lines of Python that pack prints are runnable, whatever was packed."""

    def check(self, source, dest, *options):
        """Pack, run the lines here, and return the sizes of the batches."""
        done = run("pack", source, dest, *options)
        assert done.returncode == 0, done.stderr
        code = done.stdout[done.stdout.index("from fastload import") :]
        assert len(code.strip().splitlines()) == 3
        names = {}
        exec(code, names)
        return [len(batch) for batch in names["loader"]]

    def test_for_splits(self, splits, tmp_path):
        self.check(tmp_path / "data", tmp_path / "again")

    @pytest.mark.parametrize("name", ['it\'s "quoted".fl', "back\\slash\n.fl", "ünï.fl", "[red].fl"])
    def test_for_any_path(self, photos, tmp_path, name):
        assert self.check(photos, tmp_path / name) == [12]

    def test_for_a_table_with_fields(self, photos, tmp_path):
        rows = [f"photos/class{at % 3}/{at:04d}.jpg,{at / 7},text" for at in range(12)]
        (tmp_path / "table.csv").write_text("\n".join(["path,score,note", *rows]))
        assert self.check(tmp_path / "table.csv", tmp_path / "t.fl") == [12]
        self.check(tmp_path / "table.csv", tmp_path / "u.fl", "--size", "16")


class TestNames:
    """Names that are not UTF-8, or that an output cannot show, lose a letter, but the command works."""

    @pytest.fixture
    def odd(self, tmp_path):
        folder = tmp_path / "odd"
        for name in (b"\xff\xfe", "naïve ✓".encode(), b"[red]", b"[/b", b"-x"):
            (folder / os.fsdecode(name)).mkdir(parents=True)
            (folder / os.fsdecode(name) / os.fsdecode(b"a\xe9.jpg")).write_bytes(encoded(pixels(1)))
        (folder / "[red]" / "bad.jpg").write_bytes(b"")
        return folder

    @pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
    def test_every_command_works(self, odd, tmp_path, encoding):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        dest = tmp_path / os.fsdecode(b"[bold]\xff.fl")
        commands = [
            ["pack", odd, dest, "--on-error", "skip", "--allow-errors", "--layout", "classes"],
            ["info", dest],
            ["verify", dest],
            ["unpack", dest, tmp_path / os.fsdecode(b"\xff")],
        ]
        for command in commands:
            done = run(*command, env=environment)
            assert done.returncode == 0, (command, done.stderr)
            assert "Traceback" not in done.stderr
            if command[0] == "info":
                assert "[red]" in done.stdout
        write_sheet(PackedDataset(dest), tmp_path / "sheet.png")


class TestTerminalsAndPipes:
    def test_progress_is_drawn_on_a_terminal_and_wiped_at_the_end(self, tmp_path):
        source = class_folders(tmp_path / "photos", 300, size=(200, 200))
        shown, code = run_on_terminal("pack", source, tmp_path / "x.fl", "--encode", "jpeg")
        assert code == 0
        assert "packing" in shown
        assert "%" in shown
        assert "records/s" in shown
        assert "wrote" in shown[shown.rindex("packing") :]

    def test_quiet_draws_nothing_on_a_terminal(self, tmp_path):
        source = class_folders(tmp_path / "photos", 300, size=(200, 200))
        shown, code = run_on_terminal("pack", source, tmp_path / "x.fl", "--encode", "jpeg", "--quiet")
        assert (shown, code) == ("", 0)

    def test_error_on_a_terminal_is_one_line(self, tmp_path):
        source = class_folders(tmp_path / "photos", 300, size=(200, 200))
        (source / "class2" / "9999.jpg").write_bytes(b"bad")
        shown, code = run_on_terminal("pack", source, tmp_path / "x.fl", "--encode", "jpeg")
        assert code == 2
        assert "fastload: record 300" in shown
        assert "Traceback" not in shown

    @pytest.mark.parametrize("options", [["info"], ["info", "--json"], ["verify"]])
    def test_closed_pipe_gives_no_traceback(self, packed, options):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([*FASTLOAD, *options, packed], stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
    @pytest.mark.parametrize("command", ["info", "verify"])
    def test_output_that_cannot_be_written_is_an_error(self, packed, command):
        with open("/dev/full", "w") as full:
            done = run(command, packed, stdout=full)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert "No space left" in done.stderr

    def test_version_is_printed(self):
        assert run("--version").stdout == f"fastload {fastload.__version__}\n"

    @pytest.mark.parametrize("command", [[], ["pack"], ["info"], ["verify"], ["unpack"], ["demo"]])
    def test_help_lists_the_exit_codes(self, command):
        done = run(*command, "--help")
        assert done.returncode == 0
        assert "130  interrupted" in done.stdout


class TestPreview:
    def sheet(self, path, tmp_path):
        write_sheet(PackedDataset(path), tmp_path / "sheet.png")
        image = cv2.imread(str(tmp_path / "sheet.png"))
        assert image is not None
        return image

    def test_impossible_preview_is_reported_before_anything_is_printed(self, packed, tmp_path):
        for name in ("x.jpg", "nowhere/x.png"):
            done = run("preview", packed, "--out", tmp_path / name)
            assert (done.returncode, done.stdout) == (2, "")

    def test_images_of_every_size_are_shown(self, tmp_path):
        for number, (height, width) in enumerate(
            [(1, 1), (1, 5000), (5000, 1), (144, 144), (7, 9), (900, 400)]
        ):
            (tmp_path / "photos" / f"class {number}").mkdir(parents=True)
            image = np.full((height, width, 3), (200, 20 * number, 0), np.uint8)
            (tmp_path / "photos" / f"class {number}" / "x.png").write_bytes(encoded(image, ".png"))
        fastload.pack(tmp_path / "photos", tmp_path / "x.fl", encode="keep", workers=1)
        sheet = self.sheet(tmp_path / "x.fl", tmp_path)
        colours = {tuple(pixel) for pixel in sheet[:, :, ::-1].reshape(-1, 3).tolist()}
        assert {(200, 20 * number, 0) for number in (0, 1, 2, 3, 4, 5)} <= colours

    @pytest.mark.parametrize("encode", ENCODING_NAMES)
    def test_every_encoding_is_shown(self, photos, tmp_path, encode, require_tool):
        if encode == "tiled":
            require_tool("jpegtran")
        fastload.pack(photos, tmp_path / "x.fl", encode=encode, workers=1)
        assert self.sheet(tmp_path / "x.fl", tmp_path).std() > 20

    def test_unreadable_records_are_shown_as_such(self, photos, packed, tmp_path):
        (photos / "class0" / "0000.jpg").write_bytes(b"bad")
        fastload.pack(photos, tmp_path / "x.fl", encode="keep", on_error="keep", workers=1)
        assert self.sheet(tmp_path / "x.fl", tmp_path).shape[1] > 1000

    def test_further_fields_are_ignored(self, photos, tmp_path):
        rows = [f"photos/class0/{number:04d}.jpg,cat,{number / 7}" for number in range(0, 12, 3)]
        (tmp_path / "table.csv").write_text("\n".join(["path,label,score", *rows]))
        fastload.pack(tmp_path / "table.csv", tmp_path / "x.fl", workers=1)
        assert self.sheet(tmp_path / "x.fl", tmp_path).std() > 20


def test_infinite_numbers_are_null_in_json(capsys):
    show_json({"rates": [1.5, float("inf"), -float("inf"), float("nan")]})
    assert json.loads(capsys.readouterr().out) == {"rates": [1.5, None, None, None]}

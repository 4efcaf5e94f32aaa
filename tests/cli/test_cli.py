"""Commands: their output, their exit codes, and one sentence instead of a traceback."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import cv2
import pytest

import fastload
from fastload.cli import info
from fastload.cli.main import main
from tests.commands import run, run_python
from tests.folders import class_folders, encoded, files_in, pixels


def fastload_cli(*arguments, expect=0, cwd=None):
    """Run a command; return standard output and standard error."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


@pytest.fixture
def photos(tmp_path):
    return class_folders(tmp_path / "photos", count=12)


@pytest.fixture
def packed(photos, tmp_path):
    fastload.pack(photos, tmp_path / "photos.fl", encode="keep", workers=1)
    return tmp_path / "photos.fl"


class TestPack:
    def test_result_is_reported_with_runnable_lines_that_load_it(self, photos, tmp_path):
        out, err = fastload_cli("pack", photos, tmp_path / "out.fl", "--encode", "keep")
        assert f"wrote {tmp_path / 'out.fl'}: 12 records" in out
        assert "records/s" in out
        code = out[out.index("from fastload") :]
        assert len(code.strip().splitlines()) == 3
        runnable = code + textwrap.dedent("""
            for batch in loader:
                print(len(batch))
        """)
        done = run_python("-c", runnable)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "12"
        assert err == ""

    def test_images_of_one_size_load_as_one_tensor(self, photos, tmp_path):
        out, _ = fastload_cli("pack", photos, tmp_path / "out.fl", "--size", "20")
        assert "collate_fn" not in out
        code = (
            out[out.index("from fastload") :] + "\nimages, labels = next(iter(loader))\nprint(images.shape)"
        )
        done = run_python("-c", code)
        assert done.stdout.strip() == "torch.Size([12, 3, 20, 20])", done.stderr

    def test_auto_prints_its_reason(self, photos, tmp_path):
        out, _ = fastload_cli("pack", photos, tmp_path / "out.fl")
        assert "encoding: raw (raw pixels would take about" in out

    def test_quiet_prints_nothing(self, photos, tmp_path):
        assert fastload_cli("pack", photos, tmp_path / "out.fl", "--quiet") == ("", "")

    def test_json_is_the_only_output(self, photos, tmp_path):
        out, _ = fastload_cli("pack", photos, tmp_path / "out.fl", "--json", "--encode", "jpeg")
        content = json.loads(out)
        assert content["encoding"] == "jpeg"
        assert content["splits"][0]["records"] == 12
        assert content["splits"][0]["path"] == str(tmp_path / "out.fl")

    @pytest.mark.parametrize(
        ("policy", "options", "code"),
        [("fail", [], 2), ("skip", [], 1), ("keep", [], 1), ("skip", ["--allow-errors"], 0)],
    )
    def test_unreadable_files_set_the_exit_code(self, photos, tmp_path, policy, options, code):
        (photos / "class1" / "bad.jpg").write_bytes(b"not an image")
        out, err = fastload_cli(
            "pack", photos, tmp_path / "out.fl", "--on-error", policy, *options, expect=code
        )
        assert "class1/bad.jpg" in err
        assert "Traceback" not in err
        if policy == "fail":
            assert not (tmp_path / "out.fl").exists()
        else:
            manifest = json.loads((tmp_path / "out.fl" / "manifest.json").read_text())
            listed = manifest["skipped" if policy == "skip" else "kept"]
            assert [item["key"] for item in listed] == ["class1/bad.jpg"]
            assert f"{13 if policy == 'keep' else 12} records" in out

    @pytest.mark.parametrize(
        ("options", "code"), [([], 1), (["--on-error", "skip"], 0), (["--allow-errors"], 0)], ids=str
    )
    def test_files_left_out_are_counted_listed_and_set_the_exit_code(self, photos, tmp_path, options, code):
        missed = ["labels.csv", "class1/a.json", "class1/b.json", "class1/new\nline.txt"]
        for name in (*missed, ".DS_Store", "README.md"):
            (photos / name).write_text("{}")
        (photos / "class1" / "x.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
        out, _ = fastload_cli("pack", photos, tmp_path / "out.fl", *options, expect=code)
        assert "left out, HEIC, which OpenCV does not read here: 1 file (1 .heic)\n" in out
        assert "left out, not an image: 4 files (2 .json, 1 .csv, 1 .txt)\n" in out
        assert "left out, system file: 1 file (1 without a suffix)\n" in out
        assert "manifest.json lists the files that are left out" in out
        assert ("--on-error skip" in out) == (code == 1)  # advice for users who have not accepted it
        manifest = json.loads((tmp_path / "out.fl" / "manifest.json").read_text())
        listed = {entry["key"] for entry in manifest["left_out"] if not entry["is_clutter"]}
        assert listed == {*missed, "class1/x.heic"}
        assert len(manifest["left_out"]) == len(listed) + 2

    def test_clutter_alone_keeps_the_exit_code_0(self, photos, tmp_path):
        for name in ("class0/Thumbs.db", "class0/._0000.jpg", ".gitattributes", "LICENSE", "README_en.md"):
            (photos / name).write_bytes(b"\0\5\x16\7")
        out, _ = fastload_cli("pack", photos, tmp_path / "out.fl")
        assert ": 12 records" in out
        assert "left out, about the dataset: 2 files (1 without a suffix, 1 .md)\n" in out
        assert "left out, system file: 2 files (1 .db, 1 .jpg)\n" in out
        assert "--on-error" not in out

    def test_each_split_becomes_a_dataset_with_the_same_class_list(self, tmp_path):
        class_folders(tmp_path / "data" / "train", count=6, classes=3)
        class_folders(tmp_path / "data" / "val", count=2, classes=2)
        out, err = fastload_cli("pack", tmp_path / "data", tmp_path / "out")
        assert "train.fl: 6 records" in out
        assert "val.fl: 2 records" in out
        assert "class2" in err
        val = fastload.PackedDataset(tmp_path / "out" / "val.fl")
        assert val.classes == ["class0", "class1", "class2"]


BAD_CALLS = {
    "no source": ["pack", "nowhere", "out.fl"],
    "a source without images": ["pack", "empty", "out.fl"],
    "a source that is a text file": ["pack", "note.txt", "out.fl"],
    "a table without a row's file": ["pack", "table.csv", "out.fl"],
    "a destination that exists": ["pack", "photos", "photos.fl"],
    "a destination that is no dataset": ["pack", "photos", "empty", "--overwrite"],
    "a destination in the source": ["pack", "photos", "photos/out.fl"],
    "the source as destination": ["pack", "photos", "photos", "--overwrite"],
    "a packed source": ["pack", "photos.fl", "out.fl"],
    "a quality of 0": ["pack", "photos", "out.fl", "--encode", "jpeg", "--quality", "0"],
    "a shard size of no size": ["pack", "photos", "out.fl", "--shard-size", "big"],
    "no workers to verify": ["verify", "photos.fl", "--workers", "0"],
    "a size that no JPEG has": ["pack", "photos", "out.fl", "--size", "100000", "--encode", "jpeg"],
    "no workers": ["pack", "photos", "out.fl", "--workers", "0"],
    "keep with a size": ["pack", "photos", "out.fl", "--encode", "keep", "--max-side", "10"],
    "a size of 0": ["pack", "photos", "out.fl", "--size", "0"],
    "too little space": ["pack", "photos", "out.fl", "--space", "100"],
    "an unknown encoding": ["pack", "photos", "out.fl", "--encode", "gif"],
    "an unknown command": ["bake"],
    "a quality for keep": ["pack", "photos", "out.fl", "--encode", "keep", "--quality", "80"],
    "a quality for what auto chooses": ["pack", "photos", "out.fl", "--quality", "80"],
    "a destination that cannot be written to": ["pack", "photos", "note.txt/out.fl"],
    "a folder that cannot be written to": ["unpack", "photos.fl", "note.txt/out"],
    "a preview of nothing": ["preview", "nosuch"],
    "a preview of a file": ["preview", "note.txt"],
    "a device as a script": ["run", "/dev/zero"],
    "info on nothing": ["info", "nowhere.fl"],
    "info on a folder of photos": ["info", "photos"],
    "verify on nothing": ["verify", "nowhere.fl"],
    "unpack of nothing": ["unpack", "nowhere.fl", "out"],
    "unpack into a packed dataset": ["unpack", "photos.fl", "photos.fl/out"],
    "a preview over a manifest": ["preview", "photos.fl", "--out", "photos.fl/manifest.json"],
    "a preview that is no PNG": ["preview", "photos.fl", "--out", "sheet.txt"],
    "unpack into what is there": ["unpack", "photos.fl", "photos"],
    "a preview that cannot be written": ["preview", "photos.fl", "--out", "nowhere/sheet.png"],
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_is_one_sentence_and_no_traceback(name, packed, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("hello")
    (tmp_path / "table.csv").write_text("path,label\nmissing.jpg,cat\n")
    before = sorted(os.listdir(tmp_path))
    _, err = fastload_cli(*BAD_CALLS[name], expect=2, cwd=tmp_path)
    assert "Traceback" not in err
    assert err.strip().splitlines()[-1].startswith("fastload")
    left = set(os.listdir(tmp_path)) - set(before)
    assert not left


@pytest.mark.parametrize("command", [[], ["bench"]], ids=str)
def test_a_command_without_its_command_shows_the_help(command):
    _, err = fastload_cli(*command, expect=2)
    assert err == fastload_cli(*command, "--help")[0]


@pytest.mark.parametrize("command", ["doctor", "cache", "run", "info"])
def test_exit_codes_of_a_command_are_its_own(command):
    help_text, _ = fastload_cli(command, "--help")
    codes = help_text.partition("exit codes:\n")[2]
    assert codes.startswith("  0    success\n")
    assert "pack" not in codes


@pytest.mark.parametrize("reason", ["the error itself", "an error that it causes"])
def test_ctrl_c_is_reported_whatever_is_raised_in_its_course(monkeypatch, capsys, reason):
    def interrupted(options):
        try:
            raise KeyboardInterrupt
        finally:
            if reason == "an error that it causes":
                raise RuntimeError("DataLoader worker (pid 7) exited unexpectedly")

    monkeypatch.setattr(info, "run", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    try:
        assert main(["info", "x.fl"]) == 130
    finally:
        signal.signal(signal.SIGINT, handler)  # the command leaves the next one to the system
    assert capsys.readouterr().err == "fastload: interrupted: the same command starts over\n"


def test_another_package_of_the_same_name_is_reported(tmp_path):
    """`pip install fastload` puts a file downloader's files into our folder."""
    package = tmp_path / "fastload"
    package.mkdir()
    for part in Path(fastload.__file__).parent.iterdir():
        (package / part.name).symlink_to(part)
    (package / "__init__.py").unlink()

    def message():
        done = subprocess.run(
            [sys.executable, "-S", "-c", "from fastload.cli.main import main"],
            capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 1
        assert "pip uninstall fastload fastload-vision" in done.stderr
        return done.stderr

    assert "fastload/__init__.py is missing: uninstalling another project" in message()
    (package / "__init__.py").write_text("class FastLoad: ...")
    assert f"{package / '__init__.py'} belongs to another project" in message()


def test_debug_shows_the_traceback(tmp_path):
    _, err = fastload_cli("info", tmp_path / "nowhere.fl", "--debug", expect=2)
    assert "Traceback" in err


class TestInfoVerifyUnpack:
    @pytest.mark.parametrize("loss", ["missing", "emptied"])
    def test_a_split_without_its_manifest_is_reported(self, tmp_path, loss):
        for split in ("train", "val"):
            class_folders(tmp_path / "data" / split, count=3)
        fastload.pack(tmp_path / "data", tmp_path / "out", workers=1)
        manifest = tmp_path / "out" / "train.fl" / "manifest.json"
        manifest.unlink() if loss == "missing" else manifest.write_bytes(b"")
        _, err = fastload_cli("verify", tmp_path / "out", expect=1)
        assert "train.fl" in err
        fastload_cli("unpack", tmp_path / "out", tmp_path / "back", expect=2)

    def test_names_are_printed_unchanged(self, packed, tmp_path):
        odd = packed.rename(tmp_path / "a[red]b.fl")
        # On one line, however long the path is.
        assert "a[red]b.fl" in "".join(fastload_cli("info", odd)[0].split())

    def test_a_terminal_without_unicode_works(self, packed, monkeypatch):
        monkeypatch.setenv("PYTHONIOENCODING", "ascii")
        assert "records" in fastload_cli("info", packed)[0]

    def test_info_shows_the_contents(self, packed):
        out, _ = fastload_cli("info", packed)
        for part in ("records", "12", "keep", "class0, class1, class2", "label (scalar int64)"):
            assert part in out

    def test_info_as_json_is_the_manifest(self, packed):
        content = json.loads(fastload_cli("info", packed, "--json")[0])
        assert content[0]["records"] == 12
        assert content[0]["classes"] == ["class0", "class1", "class2"]

    def test_the_preview_is_an_image(self, packed, tmp_path):
        fastload_cli("preview", packed, "--out", tmp_path / "sheet.png")
        sheet = cv2.imread(str(tmp_path / "sheet.png"))
        assert sheet.shape[1] > 1000
        assert len(set(map(tuple, sheet.reshape(-1, 3)[::97]))) > 20

    def test_verify_reports_that_all_is_well(self, packed):
        out, err = fastload_cli("verify", packed)
        assert "12 records" in out
        assert "all is well" in out
        assert err == ""

    def test_verify_names_the_damaged_record(self, packed):
        image = fastload.PackedDataset(packed).read(3)["image"]
        shard = packed / "shard-00000.h5"
        data = bytearray(shard.read_bytes())
        data[data.index(image) + 200] ^= 4
        shard.write_bytes(data)
        out, err = fastload_cli("verify", packed, expect=1)
        assert "record 3 (key 'class0/0009.jpg')" in err
        assert "damage" in out
        content = json.loads(fastload_cli("verify", packed, "--json", expect=1)[0])
        assert content[0]["damages"][-1]["record"] == 3

    def test_unpack_restores_the_files(self, packed, photos, tmp_path):
        out, _ = fastload_cli("unpack", packed, tmp_path / "out")
        assert "12 files" in out
        assert files_in(tmp_path / "out") == files_in(photos)

    def test_unpack_leaves_out_and_reports_damaged_records(self, packed, tmp_path):
        shard = packed / "shard-00000.h5"
        image = fastload.PackedDataset(packed).read(0)["image"]
        data = bytearray(shard.read_bytes())
        data[data.index(image) + 100] ^= 1
        shard.write_bytes(data)
        _, err = fastload_cli("unpack", packed, tmp_path / "out", expect=1)
        assert "left out" in err
        assert len(files_in(tmp_path / "out")) == 11


def test_a_table_is_packed_with_its_columns(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(encoded(pixels(number)))
    rows = [
        f"{number}.jpg,{'cat' if number % 2 else 'dog'},{number / 4},text {number}" for number in range(4)
    ]
    (tmp_path / "table.csv").write_text("\n".join(["path,label,score,caption", *rows]))
    fastload_cli("pack", "table.csv", "out.fl", cwd=tmp_path)
    dataset = fastload.PackedDataset(tmp_path / "out.fl")
    assert dataset.classes == ["cat", "dog"]
    assert dataset[2][1] == {"label": 1, "score": 0.5, "caption": "text 2"}
    fastload_cli("unpack", "out.fl", "back", cwd=tmp_path)
    fastload_cli("pack", "back/table.csv", "again.fl", cwd=tmp_path)
    again = fastload.PackedDataset(tmp_path / "again.fl")
    assert [again[i][1] for i in range(4)] == [dataset[i][1] for i in range(4)]

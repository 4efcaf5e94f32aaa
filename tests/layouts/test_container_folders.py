"""Folders of containers: what claims them, their splits, and the account of every file."""

import contextlib
import importlib.util
import json
import re
import subprocess
import tempfile
from pathlib import Path, PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload import SourceError
from fastload.cli.main import main
from fastload.sources import open_source
from tests.layouts.containers import crnn, image, write_biggan, write_lmdb, write_tar

HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
needs_arrow = pytest.mark.frameworks("pyarrow")


def tar(path, *keys):
    members = {}
    for at, key in enumerate(keys or ("a", "b")):
        members |= {f"{key}.jpg": image(at), f"{key}.cls": b"%d" % at}
    return write_tar(path, members)


def parquet(path, **columns):
    import pyarrow
    from pyarrow import parquet as files

    path.parent.mkdir(parents=True, exist_ok=True)
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    images = pyarrow.array([{"bytes": image(0), "path": None}] * 2, kind)
    files.write_table(pyarrow.table(columns or {"image": images, "label": [0, 1]}), path)
    return path


def lsun(path):
    for name in ("cat_train", "dog_train", "cat_val"):
        write_lmdb(path / f"{name}_lmdb", {b"a": image(0), b"b": image(1)})
    return path


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["a-train-0", "a-train-1", "a-validation-0"], {"train": 2, "val": 1}),
        (["a-training-0", "a-dev-0", "a-testing-0"], {"train": 1, "val": 1, "test": 1}),
        (["my-test-train-0", "my-test-val-0"], {"train": 1, "val": 1}),
        (["x-train-0", "x-train-1"], {"": 2}),
        (["training-set-of-trains-0", "training-set-of-trains-1"], {"": 2}),
        (["trainval-0", "latest-1"], {"": 2}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_splits_are_those_in_the_names_of_shards(tmp_path, names, splits):
    for name in names:
        tar(tmp_path / f"{name}.tar")
    assert {split: len(source) // 2 for split, source in open_source(tmp_path).items()} == splits


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["x-train-0", "x-val-0", "x-extra-0"],
            "name all of its files after splits, or none, got 'x-extra-0",
        ),
        (["x-train-0", "x-extra-0"], "name all of its files after splits, or none"),
        (["train-val-0", "x-test-0"], "one split each, got 'train-val-0.tar', with train and val"),
        (["x-val-0", "x-valid-0", "x-train-0"], "have one name for each split, got 'val' and 'valid'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_names_that_leave_the_split_open_are_refused(tmp_path, names, message):
    for name in names:
        tar(tmp_path / f"{name}.tar")
    with pytest.raises(SourceError, match=message):
        open_source(tmp_path)


def test_shards_in_folders_of_splits_are_those_of_the_folders(tmp_path):
    tar(tmp_path / "train" / "val-0.tar")
    tar(tmp_path / "valid" / "0.tar")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "notes.txt").write_text("x")
    sources = open_source(tmp_path)
    assert {split: list(source.files.names) for split, source in sources.items()} == {
        "train": ["train/val-0.tar"],
        "val": ["valid/0.tar"],
    }
    assert [(entry.key, entry.is_clutter) for entry in sources["train"].left_out] == [
        ("extra/notes.txt", False)
    ]


@pytest.mark.parametrize(
    "files",
    [["a.tar", "old/b.tar"], ["data/train/a.tar"], ["a/b.tar", "c/d.tar"]],
    ids=lambda files: files[-1],
)
def test_shards_in_other_folders_are_refused_with_the_step(tmp_path, files):
    for name in files:
        tar(tmp_path / name)
    with pytest.raises(SourceError, match="pack"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["x-000000-of-000003", "x-000002-of-000003"], "'x-000001-of-000003'"),
        (["a-train-0-of-2-0f3c", "a-train-1-of-2-77aa", "a-val-0-of-2"], "'a-val-1-of-2'"),
        (["x-1-of-2", "x-2-of-2"], ""),
        (["x-0-of-1", "one-of-10"], ""),
    ],
)
def test_files_that_the_names_of_others_count_are_missed(tmp_path, names, missing):
    root = tmp_path / "data"
    for name in names:
        tar(root / f"{name}.tar")
    doubts = [doubt for source in open_source(root).values() for doubt in source.doubts]
    assert [f"none named {missing}: add them" in doubt for doubt in doubts] == [True] * bool(missing)
    assert main(["pack", str(root), str(tmp_path / "x.fl"), "--quiet"]) == bool(missing)
    arguments = ["--quiet", "--layout", "webdataset"]
    assert main(["pack", str(root), str(tmp_path / "y.fl"), *arguments]) == 0


@needs_arrow
def test_half_a_download_of_parquet_files_is_told(tmp_path):
    parquet(tmp_path / "data/train-00000-of-00002.parquet")
    [source] = open_source(tmp_path).values()
    assert "none named 'data/train-00001-of-00002'" in source.doubts[0]


@pytest.mark.parametrize(("images", "kind"), [(["preview.jpg"], "webdataset"), (["a.jpg", "b.jpg"], "flat")])
def test_few_images_beside_tars_are_left_out(tmp_path, images, kind):
    tar(tmp_path / "000.tar")
    for name in images:
        (tmp_path / name).write_bytes(image(0))
    [source] = open_source(tmp_path).values()
    left_out = ["preview.jpg"] if kind == "webdataset" else ["000.tar"]
    assert (source.kind, [entry.key for entry in source.left_out]) == (kind, left_out)


@needs_arrow
def test_tars_beside_parquet_files_need_a_layout(tmp_path):
    tar(tmp_path / "00000.tar")
    parquet(tmp_path / "00000.parquet", key=["a", "b"])
    with pytest.raises(SourceError, match="--layout webdataset or --layout huggingface"):
        open_source(tmp_path)
    [source] = open_source(tmp_path, layout="webdataset").values()
    assert (source.kind, [entry.key for entry in source.left_out]) == ("webdataset", ["00000.parquet"])
    assert not source.left_out[0].is_clutter


@needs_arrow
def test_a_parquet_table_that_names_images_beside_it_is_not_left_out(tmp_path):
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_bytes(image(0))
    path = parquet(tmp_path / "labels.parquet", file_name=["a.jpg", "b.jpg"], label=[0, 1])
    with pytest.raises(SourceError, match=r"two readings: .*labels\.parquet, whose labels would be lost"):
        open_source(tmp_path)
    path.unlink()
    parquet(tmp_path / "vectors.parquet", vector=[1.0, 2.0])
    [source] = open_source(tmp_path).values()
    assert [(entry.key, entry.is_clutter) for entry in source.left_out] == [("vectors.parquet", False)]


@needs_arrow
def test_a_saved_dataset_has_its_descriptions_read_and_its_caches_left_out(tmp_path):
    import pyarrow
    from pyarrow import parquet as files

    rows = files.read_table(parquet(tmp_path / "x.parquet"))
    (tmp_path / "x.parquet").unlink()
    root = tmp_path / "saved"
    for split in ("train", "test"):
        folder = root / split
        folder.mkdir(parents=True)
        for name in ("data-00000-of-00001.arrow", "cache-0123.arrow"):
            with pyarrow.ipc.new_stream(str(folder / name), rows.schema) as writer:
                writer.write_table(rows)
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        (folder / "state.json").write_text(json.dumps(state))
        (folder / "dataset_info.json").write_text("{}")
    (root / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    (root / "README.md").write_text("x")
    (root / "old").mkdir()
    (root / "old" / "data.arrow").write_bytes(b"x")
    sources = open_source(root)
    account = sources["train"].account
    assert (account.files, account.records, account.annotations, account.left_out) == (11, 2, 5, 4)
    assert {(entry.key, entry.is_clutter) for entry in sources["train"].left_out} == {
        ("train/cache-0123.arrow", True),
        ("test/cache-0123.arrow", True),
        ("README.md", True),
        ("old/data.arrow", False),
    }


def test_a_database_has_its_lock_and_its_lines_accounted_for(tmp_path):
    path = write_lmdb(tmp_path / "x.lmdb", {b"a": image(0, ".png")})
    (path / "meta_info.txt").write_text("a.png (16,20,3) 1\n")
    (path / "b.png").write_bytes(image(1, ".png"))
    [source] = open_source(path).values()
    assert (source.account.files, source.account.records, source.account.annotations) == (4, 1, 1)
    assert {(entry.key, entry.is_clutter) for entry in source.left_out} == {
        ("b.png", False),
        ("lock.mdb", True),
    }


def test_an_archive_beside_class_folders_makes_the_exit_code_1(tmp_path, capsys):
    for name in ("cat", "dog"):
        (tmp_path / "d" / name).mkdir(parents=True)
        (tmp_path / "d" / name / "1.jpg").write_bytes(image(0))
    tar(tmp_path / "d" / "images.tar")
    assert main(["pack", str(tmp_path / "d"), str(tmp_path / "x.fl"), "--workers", "1"]) == 1
    assert "left out, not an image: 1 file (1 .tar)" in capsys.readouterr().out


NAMES = st.sampled_from(["a", "b.c", "train", "val", "notes", "README", ".hidden", "._a", "ü", "x y"])
SUFFIXES = st.sampled_from([".txt", ".md", ".json", ".csv", "", ".jpg", ".tar.part", ".mdb-lock", ".bin"])
ABOUT = ("README", "README.md", "README.txt")
PLACES = st.sampled_from(["", "", "extra/", ".git/", "train/", "__MACOSX/"])
JUNK = st.lists(st.tuples(PLACES, NAMES, SUFFIXES).map("".join), unique=True, max_size=6)
BASES = {
    "tars": lambda root: [tar(root / f"s-{split}-0.tar") for split in ("train", "val")],
    "tars in splits": lambda root: [tar(root / split / "0.tar") for split in ("train", "test")],
    "database": lambda root: [write_lmdb(root, crnn())],
    "lsun": lambda root: [lsun(root)],
    "hdf5": lambda root: [write_biggan(root / "x.h5")],
}
if HAS_ARROW:
    BASES["parquet"] = lambda root: [parquet(root / "data" / "train-00000-of-00001.parquet")]


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(BASES)), JUNK)
def test_every_file_of_a_folder_is_accounted_for_or_the_folder_refused(base, junk):
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "data"
        root.mkdir()
        BASES[base](root)
        for name in junk:
            path = root / name
            if not path.exists() and not path.parent.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(image(0) if name.endswith(".jpg") else b"x\n")
        sources = {}
        with contextlib.suppress(SourceError):
            sources = open_source(root)
        if not sources:
            return
        [first, *_] = sources.values()
        every = {str(path): path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        account = first.account
        assert account.files == len(every) == account.records + account.annotations + account.left_out
        left_out = {entry.key: entry.is_clutter for entry in first.left_out}
        lists = [files for source in sources.values() for files in source.record_files()]
        kept = {every[files.path(at)] for files in lists for at in range(len(files))}
        assert kept.isdisjoint(left_out)
        assert {*every.values()} == kept | {*left_out}
        for name in {*junk} & {*left_out}:
            is_hidden = any(part.startswith(".") for part in name.split("/"))
            assert left_out[name] == (is_hidden or PurePath(name).name in ABOUT)


def test_a_tar_for_each_class_is_refused_with_the_loop_that_unpacks_them(tmp_path):
    names = ["n01440764", "n02102040"]
    for name in names:
        write_tar(tmp_path / f"{name}.tar", {f"{name}_{at}.JPEG": image(at) for at in range(2)})
    with pytest.raises(SourceError, match="each of which may be a class") as caught:
        open_source(tmp_path)
    assert open_source(tmp_path, layout="webdataset")[""].read(0).values["label"] == -1
    loop = re.search(r"\((for .* done)\)", str(caught.value))
    subprocess.run(["sh", "-c", loop[1]], check=True)
    [source] = open_source(tmp_path).values()
    assert (source.kind, source.classes, len(source)) == ("folder", tuple(names), 4)


def test_a_tar_of_tars_is_to_be_unpacked(tmp_path):
    inner = write_tar(tmp_path / "inner.tar", {"0.jpg": image(0)}).read_bytes()
    write_tar(tmp_path / "train.tar", {"n01440764.tar": inner, "n02102040.tar": inner})
    with pytest.raises(SourceError, match=r"got \.tar: unpack it into a folder"):
        open_source(tmp_path / "train.tar")

"""Files are counted, and their mean size told, within bounds; beyond these the rest is estimated."""

import os
from itertools import count

import pytest

from fastload.errors import OptionError
from fastload.system.files import list_files


def make_tree(root, classes, files, size=100):
    for number in range(classes):
        folder = root / f"class-{number:03}"
        folder.mkdir(parents=True)
        for file in range(files):
            (folder / f"{file}.jpg").write_bytes(b"x" * size)
    return root


def test_small_tree_is_told_exactly(tmp_path):
    make_tree(tmp_path, 3, 5)
    (tmp_path / "labels.txt").write_bytes(b"y" * 300)
    files = list_files(tmp_path)
    assert (files.count, files.bytes, files.is_estimate) == (16, 1800, False)
    assert files.mean_bytes == 1800 / 16
    assert sorted(files.sample) == sorted(str(p) for p in tmp_path.rglob("*") if p.is_file())


def test_single_file_is_one(tmp_path):
    (tmp_path / "a.fl").write_bytes(b"x" * 10)
    files = list_files(tmp_path / "a.fl")
    assert (files.count, files.bytes, files.sample) == (1, 10, (str(tmp_path / "a.fl"),))


def test_empty_folder_holds_nothing(tmp_path):
    files = list_files(tmp_path)
    assert (files.count, files.bytes, files.mean_bytes, files.sample) == (0, 0, 0.0, ())


def test_missing_path_is_an_error(tmp_path):
    with pytest.raises(OptionError, match="missing: must be a file or a folder that exists"):
        list_files(tmp_path / "missing")


def test_folders_beyond_the_most_files_count_as_the_others(tmp_path):
    files = list_files(make_tree(tmp_path, 40, 20), most=200)
    assert files.is_estimate
    assert len(files.sample) == 200
    assert (files.count, files.bytes) == (800, 80_000)


def test_single_folder_of_more_than_the_most_files_is_said_to_be_cut(tmp_path):
    files = list_files(make_tree(tmp_path, 1, 50), most=20)
    assert (files.count, files.is_estimate) == (20, True)


def test_clock_that_runs_out_ends_the_listing(tmp_path):
    make_tree(tmp_path, 40, 20)
    ticks = count()
    files = list_files(tmp_path, most_s=10.0, clock=lambda: float(next(ticks)))
    assert files.is_estimate
    assert 0 < len(files.sample) < 800
    assert files.count == 800
    assert next(ticks) < 30


def test_many_files_are_sampled_evenly(tmp_path):
    make_tree(tmp_path / "a", 1, 3000, 10), make_tree(tmp_path / "b", 1, 3000, 30)
    files = list_files(tmp_path, most_s=60.0)
    assert (files.count, files.is_estimate, len(files.sample)) == (6000, True, 2048)
    assert files.mean_bytes == pytest.approx(20, rel=0.1)
    assert 900 < sum("/a/" in path for path in files.sample) < 1150


def test_same_seed_gives_the_same_sample(tmp_path):
    make_tree(tmp_path, 3, 1000, 1)
    first, second, other = (list_files(tmp_path, seed=seed, most_s=60.0).sample for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_links_are_followed_and_circles_end(tmp_path):
    make_tree(tmp_path / "real", 1, 4)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "back").symlink_to(tmp_path / "data")
    assert list_files(tmp_path / "data").count == 4


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may list every folder")
def test_folder_that_cannot_be_listed_is_counted(tmp_path):
    make_tree(tmp_path, 2, 3)
    (tmp_path / "class-000").chmod(0)
    files = list_files(tmp_path)
    (tmp_path / "class-000").chmod(0o700)
    assert (files.count, files.unread_folders) == (3, 1)

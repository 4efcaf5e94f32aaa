"""Packing in parts, for job arrays: all parts merged are the dataset of one packing, to the byte."""

import os
from itertools import permutations

import pytest

from fastload import DestinationError, FormatError, OptionError, PackedDataset, PackError, merge, pack
from tests.commands import run
from tests.folders import SMALL_SHARDS, class_folders, pixels, tree


@pytest.mark.parametrize("order", [*permutations((1, 2, 3))][::2])
def test_merged_parts_have_the_bytes_of_one_packing(tmp_path, sixty_photos, sixty_packed, order):
    dest = tmp_path / "photos.fl"
    for number in order:
        result = pack(sixty_photos, dest, part=(number, 3), **SMALL_SHARDS)
        assert not dest.exists()
        assert sum(split.records for split in result.splits) < 60
    assert merge(dest).splits[0].records == 60
    assert tree(dest) == sixty_packed
    assert os.listdir(tmp_path) == ["photos.fl"]


def test_more_parts_than_shards_leave_some_empty(tmp_path, sixty_photos, sixty_packed):
    dest = tmp_path / "photos.fl"
    for number in range(1, 31):
        pack(sixty_photos, dest, part=(number, 30), **SMALL_SHARDS)
    merge(dest)
    assert tree(dest) == sixty_packed


def test_a_part_without_shards_says_so(tmp_path, sixty_photos):
    done = run("pack", sixty_photos, tmp_path / "a.fl", "--part", "1/30")
    assert done.returncode == 0
    assert "this part has no shards: there are more parts than shards" in done.stdout


def test_splits_are_packed_in_parts_too(tmp_path):
    for split in ("train", "val"):
        class_folders(tmp_path / "photos" / split, 20, size=(40, 50))
    for number in (1, 2):
        pack(tmp_path / "photos", tmp_path / "parts.fl", part=(number, 2), **SMALL_SHARDS)
    merge(tmp_path / "parts.fl")
    pack(tmp_path / "photos", tmp_path / "whole.fl", **SMALL_SHARDS)
    assert tree(tmp_path / "parts.fl") == tree(tmp_path / "whole.fl")


def test_merge_names_the_parts_that_are_missing(tmp_path, sixty_photos):
    dest = tmp_path / "photos.fl"
    pack(sixty_photos, dest, part=(2, 3), **SMALL_SHARDS)
    with pytest.raises(PackError, match=r"--part 1/3, --part 3/3, then merge") as caught:
        merge(dest)
    assert "--part 2/3" not in str(caught.value)
    assert not dest.exists()


def test_merge_names_the_part_of_a_damaged_shard(tmp_path, sixty_photos, sixty_packed):
    dest = tmp_path / "photos.fl"
    for number in (1, 2):
        pack(sixty_photos, dest, part=(number, 2), **SMALL_SHARDS)
    shard = max((tmp_path / ".photos.fl.partial" / "dataset").glob("shard-*"))
    shard.write_bytes(bytes([shard.read_bytes()[0] ^ 1]) + shard.read_bytes()[1:])
    with pytest.raises(PackError, match=r"1 of its .* damaged .*--part 2/2, then merge"):
        merge(dest)
    assert (
        pack(sixty_photos, dest, part=(2, 2), **SMALL_SHARDS).resumed > 0
    )  # of its shards, one is packed again
    merge(dest)
    assert tree(dest) == sixty_packed


def test_a_part_of_another_packing_is_refused(tmp_path, sixty_photos):
    dest = tmp_path / "photos.fl"
    pack(sixty_photos, dest, part=(1, 2), **SMALL_SHARDS)
    with pytest.raises(DestinationError, match=r"parts of it were packed with .*raw"):
        pack(sixty_photos, dest, part=(2, 2), **SMALL_SHARDS | {"encode": "raw"})


@pytest.mark.parametrize("source", ["files", "dataset"])
def test_another_packing_does_not_remove_the_parts(tmp_path, sixty_photos, sixty_packed, source):
    dest = tmp_path / "photos.fl"
    for number in (1, 2):
        pack(sixty_photos, dest, part=(number, 2), **SMALL_SHARDS)
    other = sixty_photos if source == "files" else [(pixels(0), 1)]
    with pytest.raises(DestinationError, match=r"parts of it .* same way, or remove"):
        pack(other, dest, **SMALL_SHARDS | {"encode": "raw"})
    merge(dest)
    assert tree(dest) == sixty_packed


def test_parts_of_two_packings_that_begin_at_once_take_their_own_records(
    tmp_path, sixty_photos, sixty_packed
):
    dest = tmp_path / "photos.fl"
    pack(class_folders(tmp_path / "other", 20), dest, part=(1, 2), **SMALL_SHARDS)
    # The other packing had found no job yet, and so writes its own in the place of the first.
    (tmp_path / ".photos.fl.partial" / "state" / "job.json").unlink()
    for number in (1, 2):
        pack(sixty_photos, dest, part=(number, 2), **SMALL_SHARDS)
    merge(dest)
    assert tree(dest) == sixty_packed


def test_merge_without_parts_says_how_to_pack_them(tmp_path):
    with pytest.raises(FormatError, match="--part"):
        merge(tmp_path / "photos.fl")
    assert run("merge", tmp_path / "photos.fl").returncode == 2


def test_a_python_dataset_has_no_parts(tmp_path):
    with pytest.raises(OptionError, match="a Python dataset cannot be packed in parts"):
        pack([(None, 1)], tmp_path / "a.fl", part=(1, 2))


@pytest.mark.parametrize("text", ["3", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2"])
def test_impossible_part_is_refused(tmp_path, sixty_photos, text):
    done = run("pack", sixty_photos, tmp_path / "a.fl", f"--part={text}")
    assert done.returncode == 2
    assert "part" in done.stderr


def test_the_commands_of_a_job_array_make_a_dataset(tmp_path, sixty_photos):
    dest = tmp_path / "photos.fl"
    for number in (1, 2):
        done = run("pack", sixty_photos, dest, "--encode", "keep", "--part", f"{number}/2")
        assert done.returncode == 0, done.stderr
    done = run("merge", dest)
    assert done.returncode == 0, done.stderr
    assert "PackedDataset" in done.stdout
    assert len(PackedDataset(dest)) == 60

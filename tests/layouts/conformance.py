"""The tests that every layout of folders and tables passes."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastload import PackedDataset, pack
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shards.manifest import LeftOut, packed_datasets
from fastload.sources import open_source
from fastload.sources.protocol import Account
from tests.folders import files_in
from tests.layouts.samples import photo, written

POINTS = ("boxes", "keypoints", "corners")


class SourceConformance(ABC):
    """Listing, packing, verification and unpacking; a subclass writes the dataset."""

    unclaimed = ("notes.docx", "extra/deep/data.bin", "extra/photo.jpg")
    """Files that are no part of the dataset, wherever they lie in it."""

    @abstractmethod
    def make(self, root: Path) -> Path:
        """Write the dataset, and return what is packed."""

    def packed_again(self, tmp_path: Path) -> Path:
        """Unpack the dataset, and pack what was written."""
        unpack(tmp_path / "x.fl", tmp_path / "back")
        inner = self.make(tmp_path / "data").relative_to(tmp_path / "data")
        pack(tmp_path / "back" / inner, tmp_path / "again.fl", encode="keep", workers=1)
        return tmp_path / "again.fl"

    @pytest.fixture
    def packed(self, tmp_path: Path) -> Path:
        pack(self.make(tmp_path / "data"), tmp_path / "x.fl", encode="keep", workers=1)
        return tmp_path / "x.fl"

    def test_unpacking_restores_every_file_byte_for_byte(self, packed, tmp_path):
        for path in packed_datasets(packed):
            assert verify(path, check="pixels", workers=1).damages == ()
        result = unpack(packed, tmp_path / "back")
        assert (result.damaged, result.refused, result.unwritten) == ((), (), ())
        assert files_in(tmp_path / "back") == files_in(tmp_path / "data")

    def test_every_file_is_accounted_for(self, tmp_path):
        root = self.make(tmp_path / "data")
        added = {*self.unclaimed}
        tree = {name: photo(5) if name.endswith(".jpg") else "x" for name in added}
        written(tmp_path / "data", tree | {".git/HEAD": "x", "README": "x"})
        account, left_out = account_of(root)
        if account is not None:  # not of a single file
            assert account.files == account.records + account.annotations + account.left_out
            assert account.files == len(files_in(tmp_path / "data"))
            assert {entry.key for entry in left_out if not entry.is_clutter} == added
            assert {entry.key for entry in left_out if entry.is_clutter} == {".git/HEAD", "README"}

    def test_odd_names_of_the_folder_change_nothing(self, tmp_path):
        found = []
        for name in ("data", "my data (1)", "-x", "images", "ünï\u0301", "caf\udce9"):
            self.make(tmp_path / name / "data")
            sources = open_source(self.make(tmp_path / name / "data"))
            found.append({split: [*map(source.key, range(len(source)))] for split, source in sources.items()})
        assert all(each == found[0] for each in found)

    def test_what_was_unpacked_is_packed_to_the_same_samples(self, packed, tmp_path):
        self.packed_again(tmp_path)
        firsts, seconds = (
            list(map(PackedDataset, packed_datasets(tmp_path / x))) for x in ("x.fl", "again.fl")
        )
        for first, second in zip(firsts, seconds, strict=True):
            assert [first.read(at).key for at in range(len(first))] == [
                second.read(at).key for at in range(len(second))
            ]
            for at in range(len(first)):
                assert_equal(first[at][1], second[at][1])

    def test_samples_are_the_same_in_workers_and_from_lmdb(self, packed, tmp_path):
        source = self.make(tmp_path / "data")
        pack(source, tmp_path / "lmdb.fl", encode="keep", format="lmdb", workers=2)
        for path, other in zip(packed_datasets(packed), packed_datasets(tmp_path / "lmdb.fl"), strict=True):
            loader = torch.utils.data.DataLoader(PackedDataset(other), batch_size=None, num_workers=1)
            for (_, mine), (_, theirs) in zip(PackedDataset(path), loader, strict=True):
                assert_equal(mine, theirs)


class LayoutConformance(SourceConformance):
    """The tests of annotated images besides: what is moved with a resized image, and splits apart."""

    def test_one_split_of_several_is_written_anew(self, packed, tmp_path):
        paths = packed_datasets(packed)
        if len(paths) == 1:
            return
        path = next(each for each in paths if each.stem == "train")
        unpack(path, tmp_path / "back")
        pack(tmp_path / "back", tmp_path / "again.fl", encode="keep", workers=1)
        [again] = packed_datasets(tmp_path / "again.fl")
        first, second = PackedDataset(path), PackedDataset(again)
        assert len(first) == len(second)
        for at in range(len(first)):
            assert_equal(*({**each[at][1], "labels": names_in(each, at)} for each in (first, second)))

    def test_coordinates_and_masks_are_resized_with_their_image(self, packed, tmp_path):
        pack(tmp_path / "data", tmp_path / "small.fl", encode="jpeg", size=(20, 100), workers=1)
        for path, small in zip(packed_datasets(packed), packed_datasets(tmp_path / "small.fl"), strict=True):
            for (_, before), (image, after) in zip(PackedDataset(path), PackedDataset(small), strict=True):
                assert image.shape == (3, 20, 100)
                assert_resized(before, after, torch.tensor([2.0, 0.5]))


def names_in(dataset: PackedDataset, index: int) -> list[str]:
    """Return the class names of a sample's objects: a split alone may number them otherwise."""
    labels = dataset[index][1].get("labels", ())
    return [dataset.classes[label] if dataset.classes else "" for label in labels]


def account_of(root: Path) -> tuple[Account | None, tuple[LeftOut, ...]]:
    first = next(iter(open_source(root).values()))
    return first.account, first.left_out


def assert_equal(first: Any, second: Any) -> None:
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for name, value in first.items():
            assert_equal(value, second[name])
    elif isinstance(first, list):
        assert len(first) == len(second)
        for mine, theirs in zip(first, second, strict=True):
            assert_equal(mine, theirs)
    elif hasattr(first, "shape"):
        assert np.array_equal(first, second)
        assert first.dtype == second.dtype
    else:
        assert first == second


def assert_resized(before: dict, after: dict, factors: torch.Tensor) -> None:
    assert before.keys() == after.keys()
    for name in POINTS:
        if name in before:
            pairs = before[name][..., :2] * factors
            # Single precision: coordinates of 100 pixels are exact to 1e-5.
            torch.testing.assert_close(after[name][..., :2], pairs, rtol=1e-5, atol=1e-4)
    for mine, theirs in zip(before.get("polygons", ()), after.get("polygons", ()), strict=True):
        for polygon, moved in zip(mine, theirs, strict=True):
            torch.testing.assert_close(moved, polygon * factors, rtol=1e-5, atol=1e-4)
    if "area" in before:
        torch.testing.assert_close(after["area"], before["area"] * factors.prod())
    if "mask" in before:
        assert torch.equal(after["mask"], before["mask"][1::2].repeat_interleave(2, dim=1))

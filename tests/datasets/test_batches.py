"""Batches made by a dataset: targets, errors, and steps finished on a device."""

import shutil

import cv2
import h5py
import pytest
import torch
import torch.utils.data

import fastload
import fastload.transforms as T
from fastload import FolderDataset, PackedDataset
from fastload.datasets.batch import HostMemory
from fastload.errors import OptionError
from fastload.transforms.draws import EpochDraws
from tests.datasets.pipelines import MEAN, PIPELINES, STD
from tests.datasets.reference import SEED, filled
from tests.images.samples import file_of, photo


class TestTargets:
    def test_a_target_transform_and_further_fields_are_collated_as_by_torch(self, packed, tmp_path):
        dataset = PackedDataset(packed("thumbnails", "raw"), target_transform=lambda label: {"class": label})
        images, targets = filled(dataset, [0, 20])
        assert images.shape == (2, 3, 32, 32)
        assert targets["class"].tolist() == [dataset.targets[0], dataset.targets[20]]

    def test_images_of_different_sizes_are_not_made_as_a_batch(self, packed):
        dataset = PackedDataset(packed("photos", "raw"))
        assert filled(dataset, [0, 1]) is NotImplemented
        with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
            next(iter(fastload.DataLoader(dataset, batch_size=2)))


class TestErrors:
    def test_error_of_a_truncated_file_names_it(self, photos, tmp_path):
        full = next((photos / "a").iterdir()).read_bytes()
        (tmp_path / "photos").mkdir()
        for number, data in enumerate([full, full[: len(full) // 2]]):
            (tmp_path / "photos" / f"{number}.jpg").write_bytes(data)
        dataset = FolderDataset(tmp_path / "photos", PIPELINES["train"])
        for workers in (0, 1):
            with pytest.raises(fastload.DecodeError, match=r"1\.jpg: a JPEG must end"):
                next(iter(fastload.DataLoader(dataset, batch_size=2, num_workers=workers)))

    def test_header_with_another_size_than_the_image_is_an_error(self, tmp_path):
        (tmp_path / "photos").mkdir()
        data = bytearray(file_of(photo(40, 40)))
        (tmp_path / "photos" / "0.bmp").write_bytes(cv2.imencode(".bmp", photo(40, 40))[1].tobytes())
        (tmp_path / "photos" / "1.jpg").write_bytes(bytes(data))
        images, _ = filled(FolderDataset(tmp_path / "photos", PIPELINES["train"]), [0, 1])
        assert images.shape == (2, 3, 48, 48)

    def test_on_error_replaces_a_sample_that_cannot_be_read(self, packed, tmp_path):
        damaged = tmp_path / "damaged.fl"
        shutil.copytree(packed("photos", "raw"), damaged)
        with h5py.File(min(damaged.glob("*.h5")), "r+") as file:
            pixels = file["image/data"]
            pixels[(0,) * pixels.ndim] ^= 1
        transform = PIPELINES["train"]
        with pytest.raises(fastload.DamageError, match="checksum"):
            for _ in fastload.DataLoader(PackedDataset(damaged, transform), batch_size=4):
                pass
        stand_in = torch.zeros(3, 48, 48, dtype=torch.uint8), -7
        dataset = PackedDataset(damaged, transform, on_error=lambda index, error: stand_in)
        labels = torch.cat([labels for _, labels in fastload.DataLoader(dataset, batch_size=4)])
        assert labels.tolist().count(-7) == 1

    def test_damaged_shape_raises_before_memory_is_allocated(self, packed, tmp_path):
        damaged = tmp_path / "damaged.fl"
        shutil.copytree(packed("photos", "raw"), damaged)
        shard = min(damaged.glob("*.h5"))
        with h5py.File(shard, "r+") as file:
            file["image/shape"][0] = (3_000_000_000, 3_000_000_000, 3)
        for transform in (None, T.Compose([T.RandomCrop(8, padding=2)])):
            with pytest.raises(fastload.DamageError, match="record 0"):
                PackedDataset(damaged, transform)[0]

    def test_pixels_of_another_type_are_refused_with_the_solution(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), T.Compose([T.Normalize(MEAN, STD)]))
        with pytest.raises(OptionError, match="put ToDtype"):
            dataset[0]

    def test_error_of_a_crop_too_large_names_the_solution(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), T.RandomCrop(500))
        with pytest.raises(OptionError, match="pad_if_needed=True"):
            dataset[0]


class TestFinishing:
    def test_tail_on_a_device_equals_the_tail_in_the_batch(self, packed):
        class Leaving(HostMemory):
            def __init__(self):
                super().__init__(finishes_on_device=True)

        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["normalised"])
        expected, _ = filled(dataset, [1, 2, 3])
        with EpochDraws(SEED):
            left, _ = dataset.fetch_into([1, 2, 3], Leaving())
        assert left.dtype == torch.uint8
        assert torch.equal(dataset.finish(left), expected)
        assert torch.equal(dataset.finish(expected), expected)

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    @pytest.mark.parametrize("workers", [0, 2])
    def test_batches_on_a_gpu_equal_those_on_the_cpu(self, packed, workers):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["normalised"])
        on_gpu = fastload.DataLoader(dataset, batch_size=6, seed=1, num_workers=workers, device="cuda")
        on_cpu = fastload.DataLoader(dataset, batch_size=6, seed=1)
        for (there, _), (here, _) in zip(on_gpu, on_cpu, strict=True):
            assert there.device.type == "cuda"
            assert torch.allclose(there.cpu(), here, atol=1e-6)

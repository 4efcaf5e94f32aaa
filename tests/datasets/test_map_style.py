"""Indexing, workers, stored records, damage and opening of both datasets."""

import pickle

import cv2
import numpy as np
import pytest
import torch
import torch.utils.data

import fastload
from fastload import FolderDataset, PackedDataset
from tests.commands import run_python
from tests.datasets.reference import CLASSES, are_equal


class TestIndices:
    @pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.int32, torch.tensor])
    def test_every_integer_is_an_index(self, packed_classes, kind):
        dataset = PackedDataset(packed_classes)
        assert are_equal(dataset[kind(7)], dataset[7])

    def test_negative_indices_count_from_the_end(self, packed_classes, class_folder):
        for dataset in (PackedDataset(packed_classes), FolderDataset(class_folder)):
            assert are_equal(dataset[-1], dataset[29])
            assert are_equal(dataset[-30], dataset[0])

    @pytest.mark.parametrize("index", [30, -31, 10**12])
    def test_out_of_range_is_an_index_error_with_the_count(self, packed_classes, class_folder, index):
        for dataset in (PackedDataset(packed_classes), FolderDataset(class_folder)):
            with pytest.raises(IndexError, match="30 samples"):
                dataset[index]

    @pytest.mark.parametrize("index", [1.0, "3", None, [1]])
    def test_index_of_another_type_is_a_type_error(self, packed_classes, index):
        with pytest.raises(TypeError):
            PackedDataset(packed_classes)[index]

    def test_iterating_ends(self, packed_classes):
        assert len([label for _, label in PackedDataset(packed_classes)]) == 30

    def test_getitems_equals_single_items(self, packed_classes):
        dataset = PackedDataset(packed_classes)
        for indices in ([3, 1, -1], torch.tensor([3, 1, 29]), np.array([3, 1, 29])):
            together = dataset.__getitems__(indices)
            assert all(are_equal(a, dataset[i]) for a, i in zip(together, [3, 1, 29], strict=True))


class TestWorkers:
    @pytest.mark.parametrize(
        ("loader", "method"),
        [
            (fastload.DataLoader, "fork"),
            (fastload.DataLoader, "forkserver"),
            pytest.param(fastload.DataLoader, "spawn", marks=pytest.mark.soak),
            (torch.utils.data.DataLoader, None),
        ],
    )
    def test_batches_with_workers_equal_those_without(self, packed_classes, method, loader):
        dataset = PackedDataset(packed_classes)
        dataset[0], dataset[-1]  # open in this process, which must not affect another
        plain = torch.cat([images for images, _ in loader(dataset, batch_size=7)])
        workers = loader(dataset, batch_size=7, num_workers=2, multiprocessing_context=method)
        assert torch.equal(torch.cat([images for images, _ in workers]), plain)

    def test_unpickled_dataset_equals_the_original(self, packed_classes):
        dataset = PackedDataset(packed_classes)
        dataset.targets, dataset[3]
        again = pickle.loads(pickle.dumps(dataset))
        assert are_equal(again[3], dataset[3])
        assert again.targets == dataset.targets

    def test_two_datasets_of_one_path_work_at_once(self, packed_classes):
        one, other = PackedDataset(packed_classes), PackedDataset(packed_classes, transform=np.asarray)
        assert np.array_equal(one[2][0].permute(1, 2, 0), other[2][0])


class TestRecords:
    def test_read_returns_key_label_and_the_bytes_of_the_file(self, packed_classes, class_folder):
        dataset = PackedDataset(packed_classes)
        for index in range(30):
            record = dataset.read(index)
            assert record["image"] == (class_folder / record.key).read_bytes()
            assert CLASSES[record["label"]] == record.key.split("/")[0]

    def test_a_record_outlives_the_dataset(self, packed_classes):
        record = PackedDataset(packed_classes).read(5)
        assert record.key
        assert len(record["image"]) > 100

    def test_writing_to_a_raw_sample_does_not_change_the_dataset(self, class_folder, tmp_path):
        fastload.pack(class_folder, tmp_path / "raw.fl", encode="raw", workers=1)
        dataset = PackedDataset(tmp_path / "raw.fl")
        before = dataset[0][0].clone()
        dataset[0][0].zero_()
        assert torch.equal(dataset[0][0], before)

    def test_raw_shard_holds_opencvs_pixels_in_one_array(self, class_folder, tmp_path):
        import h5py

        fastload.pack(class_folder, tmp_path / "raw.fl", encode="raw", workers=1)
        dataset = PackedDataset(tmp_path / "raw.fl")
        with h5py.File(tmp_path / "raw.fl" / "shard-00000.h5") as shard:
            pixels = shard["image/data"][:]
        assert pixels.shape == (30, 40, 48, 3)
        for index in range(30):
            reference = cv2.imread(str(class_folder / dataset.read(index).key))[:, :, ::-1]
            assert np.array_equal(pixels[index], reference)

    def test_more_shards_than_descriptors_are_read(self, packed_classes):
        code = f"""
import resource, fastload
fastload.PackedDataset({str(packed_classes)!r}).read(0)
open_now = len(__import__("os").listdir("/proc/self/fd")) if __import__("sys").platform == "linux" else 20
resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 8, open_now + 8))
dataset = fastload.PackedDataset({str(packed_classes)!r})
assert sum(len(dataset.read(i)["image"]) > 0 for i in list(range(30)) * 2) == 60
"""
        done = run_python("-c", code)
        assert done.returncode == 0, done.stderr


class TestDamage:
    @pytest.fixture
    def damaged(self, class_folder, tmp_path):
        """Pack a dataset with one damaged bit in the image of its first record."""
        path = tmp_path / "photos.fl"
        fastload.pack(class_folder, path, encode="keep", workers=1)
        image = PackedDataset(path).read(0)["image"]
        shard = path / "shard-00000.h5"
        data = bytearray(shard.read_bytes())
        data[data.index(image) + len(image) // 2] ^= 1
        shard.write_bytes(data)
        return path

    def test_damaged_record_is_refused_with_shard_and_key(self, damaged):
        dataset = PackedDataset(damaged)
        for _ in range(2):
            with pytest.raises(fastload.DamageError, match=r"shard-00000.h5, record 0 .*ant/.*verify"):
                dataset[0]
        assert dataset[1]

    def test_verify_once_checks_in_every_process_and_verify_never_in_none(self, damaged):
        dataset = pickle.loads(pickle.dumps(PackedDataset(damaged)))
        with pytest.raises(fastload.DamageError):
            dataset.read(0)
        assert PackedDataset(damaged, verify="never").read(0)

    def test_error_in_a_worker_keeps_its_class(self, damaged):
        loader = fastload.DataLoader(PackedDataset(damaged), batch_size=4, num_workers=1)
        with pytest.raises(fastload.DamageError, match="Caught DamageError in DataLoader worker process 0"):
            next(iter(loader))

    def test_on_error_can_replace_a_sample(self, damaged):
        calls = []

        def replace(index, error):
            calls.append((index, type(error)))
            return "replaced", -1

        dataset = PackedDataset(damaged, on_error=replace)
        assert dataset[0] == ("replaced", -1)
        assert calls == [(0, fastload.DamageError)]
        assert dataset[1][1] == 0

    @pytest.mark.parametrize("container", ["hdf5", "lmdb"])
    def test_damaged_label_is_refused(self, class_folder, tmp_path, container):
        path = tmp_path / "photos.fl"
        fastload.pack(class_folder, path, encode="keep", workers=1, format=container)
        shard = next(path.glob("shard-*"))
        labels = np.array(PackedDataset(path).targets, "<i8").tobytes()
        data = bytearray(shard.read_bytes())
        data[data.index(labels) + 8 * 3] ^= 4
        shard.write_bytes(data)
        with pytest.raises(fastload.DamageError, match="column label"):
            PackedDataset(path).targets  # noqa: B018
        assert len(PackedDataset(path, verify="never").targets) == 30

    def test_unknown_verify_is_refused(self, damaged):
        with pytest.raises(fastload.OptionError, match="always, once or never"):
            PackedDataset(damaged, verify="sometimes")

    def test_unknown_on_error_is_refused(self, damaged):
        with pytest.raises(fastload.OptionError, match="raise"):
            PackedDataset(damaged, on_error="ignore")

    def test_error_of_an_undecodable_file_names_it(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x.jpg").write_bytes(b"no image")
        with pytest.raises(fastload.DecodeError, match=r"a/x\.jpg"):
            FolderDataset(tmp_path)[0]


class TestOpening:
    def test_missing_dataset_is_refused_with_the_next_step(self, tmp_path, class_folder):
        with pytest.raises(fastload.FormatError, match="no such folder"):
            PackedDataset(tmp_path / "none.fl")
        with pytest.raises(fastload.FormatError, match="fastload pack"):
            PackedDataset(class_folder)

    def test_error_of_a_folder_of_splits_names_them(self, class_folder, tmp_path):
        for split in ("train", "val"):
            (tmp_path / "data" / split).parent.mkdir(exist_ok=True)
            (tmp_path / "data" / split).symlink_to(class_folder)
        fastload.pack(tmp_path / "data", tmp_path / "out", workers=1)
        with pytest.raises(fastload.FormatError, match=r"train\.fl.*val\.fl"):
            PackedDataset(tmp_path / "out")
        with pytest.raises(fastload.SourceError, match="train, val"):
            FolderDataset(tmp_path / "data")
        assert len(PackedDataset(tmp_path / "out" / "val.fl")) == 30

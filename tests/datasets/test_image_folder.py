"""PackedDataset and FolderDataset: map-style datasets that stand where an ImageFolder stood."""

import concurrent.futures
import copy
import functools
import multiprocessing
import pickle
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch
import torch.utils.data

import fastload
from fastload import FolderDataset, PackedDataset

CLASSES = ("ant", "bee", "cat")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos") / "photos"
    rng = np.random.default_rng(7)
    for number in range(30):
        place = root / CLASSES[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        coarse = rng.integers(0, 255, (6, 7, 3), np.uint8)
        pixels = cv2.resize(coarse, (48, 40), interpolation=cv2.INTER_CUBIC)
        assert cv2.imwrite(str(place / f"{number:02d}.{'png' if number % 4 else 'jpg'}"), pixels)
    return root


@pytest.fixture(scope="module", params=["hdf5", "lmdb"])
def packed(request, folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "photos.fl"
    fastload.pack(folder, path, format=request.param, encode="keep", workers=1, shard_size=8192)
    return path


def _equal(one, other):
    return torch.equal(torch.as_tensor(one[0]), torch.as_tensor(other[0])) and one[1] == other[1]


class TestAgainstImageFolder:
    def test_classes_labels_and_order_are_those_of_imagefolder(self, folder, packed):
        from torchvision.datasets import ImageFolder

        reference = ImageFolder(str(folder))
        for dataset in (PackedDataset(packed), FolderDataset(folder)):
            assert dataset.classes == reference.classes
            assert dataset.class_to_idx == reference.class_to_idx
            assert dataset.targets == reference.targets
            assert [dataset[i][1] for i in range(len(dataset))] == reference.targets

    def test_png_pixels_are_those_of_imagefolder(self, folder, packed):
        from torchvision.datasets import ImageFolder

        reference, dataset = ImageFolder(str(folder)), PackedDataset(packed)
        for index, (path, _) in enumerate(reference.samples):
            if path.endswith("png"):
                assert np.array_equal(np.asarray(reference[index][0]), dataset[index][0].permute(1, 2, 0))

    def test_both_datasets_give_the_same_samples(self, folder, packed):
        files, records = FolderDataset(folder), PackedDataset(packed)
        assert len(files) == len(records) == 30
        assert all(_equal(files[i], records[i]) for i in range(30))


class TestIndices:
    @pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.int32, torch.tensor])
    def test_every_integer_is_an_index(self, packed, kind):
        dataset = PackedDataset(packed)
        assert _equal(dataset[kind(7)], dataset[7])

    def test_negative_indices_count_from_the_end(self, packed, folder):
        for dataset in (PackedDataset(packed), FolderDataset(folder)):
            assert _equal(dataset[-1], dataset[29])
            assert _equal(dataset[-30], dataset[0])

    @pytest.mark.parametrize("index", [30, -31, 10**12])
    def test_out_of_range_is_an_index_error_that_says_how_many_there_are(self, packed, folder, index):
        for dataset in (PackedDataset(packed), FolderDataset(folder)):
            with pytest.raises(IndexError, match="30 samples"):
                dataset[index]

    @pytest.mark.parametrize("index", [1.0, "3", None, [1]])
    def test_what_is_no_integer_is_a_type_error(self, packed, index):
        with pytest.raises(TypeError):
            PackedDataset(packed)[index]

    def test_iterating_ends(self, packed):
        assert len([label for _, label in PackedDataset(packed)]) == 30

    def test_several_at_once_are_those_one_by_one(self, packed):
        dataset = PackedDataset(packed)
        for indices in ([3, 1, -1], torch.tensor([3, 1, 29]), np.array([3, 1, 29])):
            together = dataset.__getitems__(indices)
            assert all(_equal(a, dataset[i]) for a, i in zip(together, [3, 1, 29], strict=True))


class TestTransforms:
    def test_without_one_the_image_is_a_writable_tensor(self, packed):
        image, label = PackedDataset(packed)[4]
        assert image.shape == (3, 40, 48)
        assert image.dtype == torch.uint8
        assert isinstance(label, int)
        image += 1

    def test_a_function_is_given_an_array_of_height_width_channel(self, packed):
        seen = []
        PackedDataset(packed, transform=seen.append)[0]
        assert isinstance(seen[0], np.ndarray)
        assert seen[0].shape == (40, 48, 3)

    def test_torchvisions_transforms_are_given_pil_images(self, packed, folder):
        from torchvision import transforms
        from torchvision.transforms import v2

        pipelines = [
            transforms.Compose([transforms.Resize(20), transforms.ToTensor()]),
            v2.Compose([v2.Resize(20), v2.ToImage()]),
            torch.nn.Sequential(v2.Resize(20), v2.ToImage()),
            transforms.ToTensor(),
            transforms.functional.pil_to_tensor,
        ]
        for pipeline in pipelines:
            for dataset in (PackedDataset(packed, pipeline), FolderDataset(folder, pipeline)):
                assert isinstance(dataset[0][0], torch.Tensor)

    def test_one_that_is_set_later_is_used(self, packed):
        dataset = PackedDataset(packed)
        assert isinstance(dataset[0][0], torch.Tensor)
        dataset.transform = np.mean
        dataset.target_transform = str
        image, target = dataset[0]
        assert isinstance(image, np.floating)
        assert target == "0"


class TestWorkers:
    @pytest.mark.parametrize(
        ("loader", "method"),
        [(fastload.DataLoader, method) for method in multiprocessing.get_all_start_methods()]
        + [(torch.utils.data.DataLoader, None)],
    )
    def test_batches_from_workers_are_those_without(self, packed, method, loader):
        dataset = PackedDataset(packed)
        dataset[0], dataset[-1]  # open in this process already: that must not cross into another
        plain = torch.cat([images for images, _ in loader(dataset, batch_size=7)])
        workers = loader(dataset, batch_size=7, num_workers=2, multiprocessing_context=method)
        assert torch.equal(torch.cat([images for images, _ in workers]), plain)

    def test_a_pickle_is_small_and_opens_anew(self, packed):
        dataset = PackedDataset(packed)
        dataset.targets, dataset[3]
        again = pickle.loads(pickle.dumps(dataset))
        assert _equal(again[3], dataset[3])
        assert again.targets == dataset.targets

    def test_two_datasets_of_one_path_live_side_by_side(self, packed):
        one, other = PackedDataset(packed), PackedDataset(packed, transform=np.asarray)
        assert np.array_equal(one[2][0].permute(1, 2, 0), other[2][0])


class TestRecords:
    def test_read_gives_key_label_and_the_files_own_bytes(self, packed, folder):
        dataset = PackedDataset(packed)
        for index in range(30):
            record = dataset.read(index)
            assert record["image"] == (folder / record.key).read_bytes()
            assert CLASSES[record["label"]] == record.key.split("/")[0]

    def test_a_record_outlives_the_dataset(self, packed):
        record = PackedDataset(packed).read(5)
        assert record.key
        assert len(record["image"]) > 100

    def test_raw_samples_may_be_written_to_without_harm(self, folder, tmp_path):
        fastload.pack(folder, tmp_path / "raw.fl", encode="raw", workers=1)
        dataset = PackedDataset(tmp_path / "raw.fl")
        before = dataset[0][0].clone()
        dataset[0][0].zero_()
        assert torch.equal(dataset[0][0], before)

    def test_raw_is_opencvs_pixels_in_one_array(self, folder, tmp_path):
        import h5py

        fastload.pack(folder, tmp_path / "raw.fl", encode="raw", workers=1)
        dataset = PackedDataset(tmp_path / "raw.fl")
        with h5py.File(tmp_path / "raw.fl" / "shard-00000.h5") as shard:
            pixels = shard["image/data"][:]
        assert pixels.shape == (30, 40, 48, 3)
        for index in range(30):
            reference = cv2.imread(str(folder / dataset.read(index).key))[:, :, ::-1]
            assert np.array_equal(pixels[index], reference)

    def test_more_shards_than_descriptors_can_be_read(self, packed):
        code = f"""
import resource, fastload
fastload.PackedDataset({str(packed)!r}).read(0)
open_now = len(__import__("os").listdir("/proc/self/fd")) if __import__("sys").platform == "linux" else 20
resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 8, open_now + 8))
dataset = fastload.PackedDataset({str(packed)!r})
assert sum(len(dataset.read(i)["image"]) > 0 for i in list(range(30)) * 2) == 60
"""
        subprocess.run([sys.executable, "-c", code], check=True, timeout=280)


class TestDamage:
    @pytest.fixture
    def damaged(self, folder, tmp_path):
        """A dataset in whose first record one byte of the image is wrong."""
        path = tmp_path / "photos.fl"
        fastload.pack(folder, path, encode="keep", workers=1)
        image = PackedDataset(path).read(0)["image"]
        shard = path / "shard-00000.h5"
        data = bytearray(shard.read_bytes())
        data[data.index(image) + len(image) // 2] ^= 1
        shard.write_bytes(data)
        return path

    def test_a_damaged_record_is_refused_by_name(self, damaged):
        dataset = PackedDataset(damaged)
        for _ in range(2):
            with pytest.raises(fastload.DamageError, match=r"shard-00000.h5, record 0 .*ant/.*verify"):
                dataset[0]
        assert dataset[1]

    def test_once_checks_again_in_every_process_and_never_checks_nothing(self, damaged):
        dataset = pickle.loads(pickle.dumps(PackedDataset(damaged)))
        with pytest.raises(fastload.DamageError):
            dataset.read(0)
        assert PackedDataset(damaged, verify="never").read(0)

    def test_it_arrives_from_a_worker_as_the_error_that_it_is(self, damaged):
        loader = fastload.DataLoader(PackedDataset(damaged), batch_size=4, num_workers=1)
        with pytest.raises(fastload.DamageError, match="Caught DamageError in DataLoader worker process 0"):
            next(iter(loader))

    def test_on_error_may_put_another_sample_in_its_place(self, damaged):
        calls = []

        def replace(index, error):
            calls.append((index, type(error)))
            return "replaced", -1

        dataset = PackedDataset(damaged, on_error=replace)
        assert dataset[0] == ("replaced", -1)
        assert calls == [(0, fastload.DamageError)]
        assert dataset[1][1] == 0

    @pytest.mark.parametrize("container", ["hdf5", "lmdb"])
    def test_a_damaged_label_is_not_among_the_targets(self, folder, tmp_path, container):
        path = tmp_path / "photos.fl"
        fastload.pack(folder, path, encode="keep", workers=1, format=container)
        shard = next(path.glob("shard-*"))
        labels = np.array(PackedDataset(path).targets, "<i8").tobytes()
        data = bytearray(shard.read_bytes())
        data[data.index(labels) + 8 * 3] ^= 4
        shard.write_bytes(data)
        with pytest.raises(fastload.DamageError, match="column label"):
            PackedDataset(path).targets  # noqa: B018
        assert len(PackedDataset(path, verify="never").targets) == 30

    def test_an_unknown_way_to_verify_is_refused(self, damaged):
        with pytest.raises(fastload.OptionError, match="always, once or never"):
            PackedDataset(damaged, verify="sometimes")

    def test_an_unknown_way_to_handle_errors_is_refused(self, damaged):
        with pytest.raises(fastload.OptionError, match="raise"):
            PackedDataset(damaged, on_error="ignore")

    def test_an_undecodable_file_is_named(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x.jpg").write_bytes(b"no image")
        with pytest.raises(fastload.DecodeError, match=r"a/x\.jpg"):
            FolderDataset(tmp_path)[0]


class TestOpening:
    def test_what_is_no_dataset_is_refused_with_the_next_step(self, tmp_path, folder):
        with pytest.raises(fastload.FormatError, match="no such folder"):
            PackedDataset(tmp_path / "none.fl")
        with pytest.raises(fastload.FormatError, match="fastload pack"):
            PackedDataset(folder)

    def test_a_folder_of_splits_names_them(self, folder, tmp_path):
        for split in ("train", "val"):
            (tmp_path / "data" / split).parent.mkdir(exist_ok=True)
            (tmp_path / "data" / split).symlink_to(folder)
        fastload.pack(tmp_path / "data", tmp_path / "out", workers=1)
        with pytest.raises(fastload.FormatError, match=r"train\.fl.*val\.fl"):
            PackedDataset(tmp_path / "out")
        with pytest.raises(fastload.SourceError, match="train, val"):
            FolderDataset(tmp_path / "data")
        assert len(PackedDataset(tmp_path / "out" / "val.fl")) == 30


class TestTorchvisionTransforms:
    """Whatever ImageFolder takes as a transform is given what ImageFolder gives it."""

    def pipelines(self):
        from torchvision import transforms
        from torchvision.transforms import functional, v2

        class Mine(transforms.Compose):
            """A pipeline of a user's own, as timm and others derive them."""

        return {
            "Compose": transforms.Compose([transforms.Resize(20), transforms.PILToTensor()]),
            "v2.Compose": v2.Compose([v2.Resize(20), v2.PILToTensor()]),
            "Sequential": torch.nn.Sequential(v2.Resize(20), v2.PILToTensor()),
            "single": transforms.PILToTensor(),
            "function": functional.pil_to_tensor,
            "derived": Mine([transforms.Resize(20), transforms.PILToTensor()]),
            "lambda": transforms.Lambda(lambda image: functional.pil_to_tensor(image)),
            "partial": functools.partial(functional.resize, size=[9, 9]),
        }

    @pytest.mark.parametrize(
        "name", ["Compose", "v2.Compose", "Sequential", "single", "function", "derived", "lambda", "partial"]
    )
    def test_it_gives_what_imagefolder_gives(self, packed, folder, name):
        from torchvision.datasets import ImageFolder

        pipeline = self.pipelines()[name]
        reference = ImageFolder(str(folder), pipeline)
        [index] = [i for i, (path, _) in enumerate(reference.samples) if path.endswith("05.png")]
        wanted = np.asarray(reference[index][0])
        for dataset in (PackedDataset(packed, pipeline), FolderDataset(folder, pipeline)):
            assert np.array_equal(np.asarray(dataset[index][0]), wanted)


class TestAmongOtherTools:
    def test_subsets_and_joined_datasets_work(self, packed):
        dataset = PackedDataset(packed)
        parts = torch.utils.data.random_split(dataset, [10, 20])
        joined = torch.utils.data.ConcatDataset([*parts, dataset])
        assert len(joined) == 60
        assert _equal(joined[30], dataset[0])
        assert _equal(torch.utils.data.Subset(dataset, [5, 6])[1], dataset[6])
        assert _equal(copy.deepcopy(dataset)[4], dataset[4])

    @pytest.mark.parametrize("workers", [0, 2])
    def test_batches_may_be_written_to(self, packed, workers):
        loader = fastload.DataLoader(PackedDataset(packed), batch_size=10, num_workers=workers)
        first = [images.clone() for images, _ in loader]
        for images, labels in loader:
            images.zero_()
            labels.zero_()
        assert all(torch.equal(a, b) for a, (b, _) in zip(first, loader, strict=True))

    def test_a_plain_folder_dataset_is_packed_from_its_files(self, folder, tmp_path):
        fastload.pack(FolderDataset(folder), tmp_path / "files.fl", encode="keep", workers=1)
        fastload.pack(folder, tmp_path / "folder.fl", encode="keep", workers=1)
        files, reference = (PackedDataset(tmp_path / f"{name}.fl") for name in ("files", "folder"))
        assert files.classes == reference.classes
        for index in range(30):
            assert files.read(index).key == reference.read(index).key
            assert files.read(index)["image"] == reference.read(index)["image"]

    def test_a_packed_dataset_can_be_packed_again(self, packed, tmp_path):
        fastload.pack(PackedDataset(packed), tmp_path / "again.fl", encode="raw", workers=1)
        first, second = PackedDataset(packed), PackedDataset(tmp_path / "again.fl")
        assert second.classes == first.classes
        assert all(_equal(first[i], second[i]) for i in range(30))

    def test_threads_may_share_a_dataset(self, packed):
        dataset = PackedDataset(packed)
        wanted = [PackedDataset(packed)[i] for i in range(30)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda i: dataset[i % 30], range(600)))
        assert all(_equal(got[i], wanted[i % 30]) for i in range(600))

    def test_on_error_works_in_workers(self, folder, tmp_path):
        (tmp_path / "photos" / "a").mkdir(parents=True)
        for number in range(8):
            data = (
                b"bad"
                if number % 3 == 1
                else cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes()
            )
            (tmp_path / "photos" / "a" / f"{number}.png").write_bytes(data)
        fastload.pack(tmp_path / "photos", tmp_path / "x.fl", encode="keep", on_error="keep", workers=1)
        dataset = PackedDataset(tmp_path / "x.fl", on_error=_grey)
        for workers in (0, 2):
            images = torch.cat([images for images, _ in fastload.DataLoader(dataset, 4, num_workers=workers)])
            assert [int(image.max()) for image in images] == [0, 7, 0, 0, 7, 0, 0, 7]

    def test_changing_the_working_folder_changes_nothing(self, packed, folder, monkeypatch):
        monkeypatch.chdir(packed.parent)
        records = PackedDataset(packed.name)
        monkeypatch.chdir(folder.parent)
        files = FolderDataset(folder.name)
        monkeypatch.chdir("/")
        assert _equal(records[29], files[29])


def _grey(index, error):
    return torch.full((3, 4, 4), 7, dtype=torch.uint8), -1

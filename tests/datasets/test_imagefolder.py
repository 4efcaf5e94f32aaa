"""PackedDataset and FolderDataset in place of torchvision's ImageFolder, and among other tools."""

import concurrent.futures
import copy
import functools

import cv2
import numpy as np
import pytest
import torch
import torch.utils.data

import fastload
from fastload import FolderDataset, PackedDataset
from tests.datasets.reference import are_equal


class TestAgainstImageFolder:
    def test_classes_labels_and_order_are_those_of_imagefolder(self, class_folder, packed_classes):
        from torchvision.datasets import ImageFolder

        reference = ImageFolder(str(class_folder))
        for dataset in (PackedDataset(packed_classes), FolderDataset(class_folder)):
            assert dataset.classes == reference.classes
            assert dataset.class_to_idx == reference.class_to_idx
            assert dataset.targets == reference.targets
            assert [dataset[i][1] for i in range(len(dataset))] == reference.targets

    def test_png_pixels_are_those_of_imagefolder(self, class_folder, packed_classes):
        from torchvision.datasets import ImageFolder

        reference, dataset = ImageFolder(str(class_folder)), PackedDataset(packed_classes)
        for index, (path, _) in enumerate(reference.samples):
            if path.endswith("png"):
                assert np.array_equal(np.asarray(reference[index][0]), dataset[index][0].permute(1, 2, 0))

    def test_both_datasets_give_the_same_samples(self, class_folder, packed_classes):
        files, records = FolderDataset(class_folder), PackedDataset(packed_classes)
        assert len(files) == len(records) == 30
        assert all(are_equal(files[i], records[i]) for i in range(30))


class TestTransforms:
    def test_image_without_a_transform_is_a_writable_tensor(self, packed_classes):
        image, label = PackedDataset(packed_classes)[4]
        assert image.shape == (3, 40, 48)
        assert image.dtype == torch.uint8
        assert isinstance(label, int)
        image += 1

    def test_function_gets_an_array_of_height_width_channel(self, packed_classes):
        seen = []
        PackedDataset(packed_classes, transform=seen.append)[0]
        assert isinstance(seen[0], np.ndarray)
        assert seen[0].shape == (40, 48, 3)

    def test_torchvision_transforms_get_pil_images(self, packed_classes, class_folder):
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
            for dataset in (PackedDataset(packed_classes, pipeline), FolderDataset(class_folder, pipeline)):
                assert isinstance(dataset[0][0], torch.Tensor)

    def test_transform_set_later_is_used(self, packed_classes):
        dataset = PackedDataset(packed_classes)
        assert isinstance(dataset[0][0], torch.Tensor)
        dataset.transform = np.mean
        dataset.target_transform = str
        image, target = dataset[0]
        assert isinstance(image, np.floating)
        assert target == "0"


class TestTorchvisionTransforms:
    """Every kind of transform gets the same input as from ImageFolder."""

    def pipelines(self):
        from torchvision import transforms
        from torchvision.transforms import functional, v2

        class Mine(transforms.Compose):
            """A custom pipeline, derived from torchvision's as in timm and others."""

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
    def test_results_equal_imagefolders(self, packed_classes, class_folder, name):
        from torchvision.datasets import ImageFolder

        pipeline = self.pipelines()[name]
        reference = ImageFolder(str(class_folder), pipeline)
        [index] = [i for i, (path, _) in enumerate(reference.samples) if path.endswith("05.png")]
        expected = np.asarray(reference[index][0])
        for dataset in (PackedDataset(packed_classes, pipeline), FolderDataset(class_folder, pipeline)):
            assert np.array_equal(np.asarray(dataset[index][0]), expected)


class TestAmongOtherTools:
    def test_subsets_and_joined_datasets_work(self, packed_classes):
        dataset = PackedDataset(packed_classes)
        parts = torch.utils.data.random_split(dataset, [10, 20])
        joined = torch.utils.data.ConcatDataset([*parts, dataset])
        assert len(joined) == 60
        assert are_equal(joined[30], dataset[0])
        assert are_equal(torch.utils.data.Subset(dataset, [5, 6])[1], dataset[6])
        assert are_equal(copy.deepcopy(dataset)[4], dataset[4])

    @pytest.mark.parametrize("workers", [0, 2])
    def test_batches_are_writable(self, packed_classes, workers):
        loader = fastload.DataLoader(PackedDataset(packed_classes), batch_size=10, num_workers=workers)
        first = [images.clone() for images, _ in loader]
        for images, labels in loader:
            images.zero_()
            labels.zero_()
        assert all(torch.equal(a, b) for a, (b, _) in zip(first, loader, strict=True))

    def test_a_plain_folder_dataset_is_packed_from_its_files(self, class_folder, tmp_path):
        fastload.pack(FolderDataset(class_folder), tmp_path / "files.fl", encode="keep", workers=1)
        fastload.pack(class_folder, tmp_path / "folder.fl", encode="keep", workers=1)
        files, reference = (PackedDataset(tmp_path / f"{name}.fl") for name in ("files", "folder"))
        assert files.classes == reference.classes
        for index in range(30):
            assert files.read(index).key == reference.read(index).key
            assert files.read(index)["image"] == reference.read(index)["image"]

    def test_a_packed_dataset_can_be_packed_again(self, packed_classes, tmp_path):
        fastload.pack(PackedDataset(packed_classes), tmp_path / "again.fl", encode="raw", workers=1)
        first, second = PackedDataset(packed_classes), PackedDataset(tmp_path / "again.fl")
        assert second.classes == first.classes
        assert all(are_equal(first[i], second[i]) for i in range(30))

    def test_threads_may_share_a_dataset(self, packed_classes):
        dataset = PackedDataset(packed_classes)
        expected = [PackedDataset(packed_classes)[i] for i in range(30)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            actual = list(pool.map(lambda i: dataset[i % 30], range(600)))
        assert all(are_equal(actual[i], expected[i % 30]) for i in range(600))

    def test_on_error_works_in_workers(self, class_folder, tmp_path):
        (tmp_path / "photos" / "a").mkdir(parents=True)
        for number in range(8):
            data = (
                b"bad"
                if number % 3 == 1
                else cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes()
            )
            (tmp_path / "photos" / "a" / f"{number}.png").write_bytes(data)
        fastload.pack(tmp_path / "photos", tmp_path / "x.fl", encode="keep", on_error="keep", workers=1)
        dataset = PackedDataset(tmp_path / "x.fl", on_error=_grey_sample)
        for workers in (0, 2):
            images = torch.cat([images for images, _ in fastload.DataLoader(dataset, 4, num_workers=workers)])
            assert [int(image.max()) for image in images] == [0, 7, 0, 0, 7, 0, 0, 7]

    def test_changing_the_working_directory_has_no_effect(self, packed_classes, class_folder, monkeypatch):
        monkeypatch.chdir(packed_classes.parent)
        records = PackedDataset(packed_classes.name)
        monkeypatch.chdir(class_folder.parent)
        files = FolderDataset(class_folder.name)
        monkeypatch.chdir("/")
        assert are_equal(records[29], files[29])


def _grey_sample(index, error):
    return torch.full((3, 4, 4), 7, dtype=torch.uint8), -1

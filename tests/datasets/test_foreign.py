"""Other libraries' transforms in a Compose, and the warning about slow ones."""

import numpy as np
import pytest
import torch
import torch.utils.data

import fastload
import fastload.transforms as T
from fastload import FolderDataset, PackedDataset
from tests.datasets.pipelines import MEAN, STD


class TestForeignTransforms:
    def test_any_callable_works_in_a_compose(self, packed):
        from torchvision.transforms import v2

        dataset = PackedDataset(packed("photos", "raw"))
        dataset.transform = T.Compose(
            [T.Resize((40, 40)), v2.RandomHorizontalFlip(1.0), lambda image: image, T.RandomVerticalFlip(1.0)]
        )
        image, _ = dataset[2]
        expected = T.Resize((40, 40))(PackedDataset(packed("photos", "raw"))[2][0]).flip(1, 2)
        assert torch.equal(image, expected)

    def test_torchvision_gets_pil_images_and_others_get_arrays(self, packed):
        import torchvision.transforms

        seen = []
        dataset = PackedDataset(packed("photos", "raw"))
        dataset.transform = T.Compose(
            [T.Resize((40, 30)), lambda array: seen.append(array) or array, torchvision.transforms.ToTensor()]
        )
        image, _ = dataset[0]
        assert isinstance(seen[0], np.ndarray)
        assert seen[0].shape == (40, 30, 3)
        assert image.dtype == torch.float32

    def test_tensor_stays_a_tensor(self, packed):
        from torchvision.transforms import v2

        steps = [v2.ToImage(), T.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)]
        image, _ = PackedDataset(packed("thumbnails", "raw"), T.Compose(steps))[0]
        expected = PackedDataset(packed("thumbnails", "raw"))[0][0].flip(2) / 255
        assert torch.allclose(image, expected)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_final_dtype_may_be_any_floating_type(self, packed, dtype):
        import torchvision.transforms

        transform = T.Compose([torchvision.transforms.ToTensor(), T.Normalize(MEAN, STD), T.ToDtype(dtype)])
        image, _ = PackedDataset(packed("thumbnails", "raw"), transform)[0]
        assert image.dtype == dtype
        assert image.shape == (3, 32, 32)

    def test_fastload_transforms_work_in_torchvisions_compose(self, photos):
        from torchvision import datasets, transforms

        pipeline = transforms.Compose([T.RandomResizedCrop(20), transforms.ToTensor()])
        image, _ = datasets.ImageFolder(str(photos), pipeline)[0]
        assert image.shape == (3, 20, 20)

    def test_torchvision_transforms_draw_the_same_as_for_an_imagefolder(self, tmp_path, thumbnails, packed):
        from torchvision import datasets
        from torchvision.transforms import v2

        def drawn(dataset, loader):
            torch.manual_seed(5)
            options = {"batch_size": 8, "shuffle": True, "num_workers": 0}
            return [images.clone() for images, _ in loader(dataset, **options)]

        pipeline = v2.Compose([v2.RandomCrop(20), v2.RandomHorizontalFlip(), v2.PILToTensor()])
        reference = drawn(datasets.ImageFolder(str(thumbnails), pipeline), torch.utils.data.DataLoader)
        dataset = PackedDataset(packed("thumbnails", "raw"), pipeline)
        for loader in (torch.utils.data.DataLoader, fastload.DataLoader):
            for actual, expected in zip(drawn(dataset, loader), reference, strict=True):
                assert torch.equal(actual, expected)

    def test_pipeline_without_draws_leaves_torchs_generator_unchanged(self, packed):
        for transform in (None, T.Compose([T.Resize((20, 20)), T.CenterCrop(16)])):
            before = torch.get_rng_state()
            PackedDataset(packed("photos", "raw"), transform)[3]
            assert torch.equal(torch.get_rng_state(), before)


class TestHints:
    def test_prefetch_changes_no_sample_and_accepts_any_indices(self, packed, photos):
        for dataset in (
            PackedDataset(packed("photos", "jpeg")),
            PackedDataset(packed("photos", "jpeg", "lmdb")),
            FolderDataset(photos),
        ):
            before = dataset[3][0]
            dataset.prefetch([3, 1, 2])
            dataset.prefetch([])
            assert torch.equal(dataset[3][0], before)

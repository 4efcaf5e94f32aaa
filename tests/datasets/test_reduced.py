"""Images decoded at a reduced size, or turned by their EXIF orientation."""

import functools

import numpy as np
import pytest
import torch
import torch.utils.data
from PIL import Image, ImageOps

import fastload
import fastload.transforms as T
from fastload import FolderDataset, PackedDataset
from fastload.errors import OptionError
from fastload.transforms.draws import EpochDraws, draws_for
from fastload.transforms.pipeline import Pipeline
from tests.datasets.pipelines import PIPELINES
from tests.datasets.reference import SEED, filled
from tests.images.samples import exif, file_of, photo

MEAN_LEVELS_APART = 3  # of 255; scaled cosine transforms are another low-pass filter than the resize


class TestReducedDecoding:
    def test_default_is_off(self, packed):
        assert PackedDataset(packed("photos", "keep")).reducing_gap is None

    @pytest.mark.parametrize("encoding", ["keep", "jpeg", "raw"])
    def test_small_results_are_close_to_those_of_full_decoding(self, packed, photos, encoding):
        transform = T.Compose([T.Resize((12, 12)), T.RandomHorizontalFlip()])
        exact, _ = filled(PackedDataset(packed("photos", encoding), transform), list(range(24)))
        for dataset in (
            PackedDataset(packed("photos", encoding), transform, reducing_gap=1.5),
            FolderDataset(photos, transform, reducing_gap=1.5),
        ):
            reduced, _ = filled(dataset, list(range(24)))
            assert (reduced.int() - exact.int()).abs().float().mean() < MEAN_LEVELS_APART
        assert torch.equal(reduced, filled(FolderDataset(photos, transform), range(24))[0]) is False

    def test_large_results_are_equal(self, packed):
        exact, _ = filled(PackedDataset(packed("photos", "keep"), PIPELINES["train"]), [1, 2, 3])
        asked, _ = filled(
            PackedDataset(packed("photos", "keep"), PIPELINES["train"], reducing_gap=4), [1, 2, 3]
        )
        assert torch.equal(exact, asked)

    def test_a_gap_below_one_is_refused(self, photos):
        with pytest.raises(OptionError, match="reducing_gap must be at least 1"):
            FolderDataset(photos, reducing_gap=0.5)


@pytest.fixture(scope="module")
def turned(tmp_path_factory):
    root = tmp_path_factory.mktemp("turned") / "turned"
    root.mkdir()
    for orientation in range(1, 9):
        data = file_of(photo(64, 90, seed=orientation), exif=exif(orientation))
        (root / f"{orientation}.jpg").write_bytes(data)
    return root


class TestOrientation:
    @pytest.mark.parametrize("encoding", ["keep", "jpeg"])
    def test_orientation_is_applied_only_on_request_and_like_pil(self, turned, tmp_path, encoding):
        fastload.pack(turned, tmp_path / "turned.fl", encode=encoding, workers=1)
        for make in (
            functools.partial(PackedDataset, tmp_path / "turned.fl"),
            functools.partial(FolderDataset, turned),
        ):
            stored, applied = make(), make(apply_orientation=True)
            for index in range(8):
                as_stored = stored[index][0].permute(1, 2, 0).numpy()
                assert as_stored.shape == (64, 90, 3)
                image = Image.fromarray(as_stored)
                image.getexif()[0x0112] = index + 1
                expected = np.asarray(ImageOps.exif_transpose(image))
                assert np.array_equal(applied[index][0].permute(1, 2, 0).numpy(), expected)

    @pytest.mark.parametrize("name", ["train", "evaluation", "crop that fits"])
    def test_crops_of_turned_images_equal_those_of_the_whole(self, turned, tmp_path, name):
        fastload.pack(turned, tmp_path / "turned.fl", encode="jpeg", workers=1)
        transform = PIPELINES[name]
        dataset = PackedDataset(tmp_path / "turned.fl", transform, apply_orientation=True)
        full = PackedDataset(tmp_path / "turned.fl", apply_orientation=True)
        images, _ = filled(dataset, range(8))
        for index, image in enumerate(images):
            with EpochDraws(SEED):
                draws = draws_for([index])
            pixels = np.ascontiguousarray(full[index][0].permute(1, 2, 0).numpy())
            assert torch.equal(image, Pipeline(transform).run(pixels, draws))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF"])
@pytest.mark.parametrize("cache", [None, "ram"])
def test_files_of_every_format_are_turned_if_asked_to(tmp_path, kind, cache):
    for orientation in range(1, 9):
        turn = {"tiffinfo": {0x0112: orientation}} if kind == "TIFF" else {"exif": exif(orientation)}
        lossless = {"lossless": True} if kind == "WEBP" else {}
        data = file_of(photo(24, 40, seed=orientation), kind, **turn, **lossless)
        (tmp_path / f"{orientation}.png").write_bytes(data)  # formats are recognised by the content
    turned = FolderDataset(tmp_path, apply_orientation=True, cache=cache)
    stored = FolderDataset(tmp_path, cache=cache)
    for epoch in range(2):
        for index, file in enumerate(sorted(tmp_path.iterdir())):
            with Image.open(file) as image:
                pairs = (turned, ImageOps.exif_transpose(image)), (stored, image)
                for dataset, expected in pairs:
                    found = dataset[index][0].permute(1, 2, 0).numpy()
                    expected = np.asarray(expected.convert("RGB"), int)
                    assert np.abs(found - expected).max() <= 1, (epoch, file)

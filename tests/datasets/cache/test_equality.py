"""Samples are bit-equal with and without a cache, whatever its kind and form."""

import itertools
import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastload
import fastload.transforms as T
from fastload import FolderDataset, OptionError, PackedDataset
from tests.datasets.pipelines import PIPELINES, TINY_PIPELINES
from tests.datasets.reference import check_against_plain, filled
from tests.images.samples import exif, file_of, photo
from tests.products import sampled

FORMS = ["encoded", "decoded"]

# Every pipeline; and every encoding for the pipelines whose decoding differs.
CASES = [(name, "jpeg") for name in PIPELINES]
CASES += itertools.product(["train", "evaluation", "crop that pads"], ["keep", "yuv420", "raw"])

INDICES = [5, 0, 23, 11, 5, 16, 7, 8]


def check_cold_and_warm(dataset, plain_one, transform, indices):
    """Check the epoch that fills the cache and one that reads from it."""
    for _ in range(2):
        expected = filled(plain_one, indices)
        batch = filled(dataset, indices)
        assert torch.equal(batch[0], expected[0])
        assert torch.equal(batch[1], expected[1])
    check_against_plain(dataset, transform, indices)
    assert dataset.cached.hits


class TestEqual:
    @pytest.mark.parametrize(("case", "form"), sampled(CASES, FORMS))
    def test_packed_photos(self, packed, cache, case, form):
        name, encoding = case
        path = packed("photos", encoding)
        dataset = PackedDataset(path, PIPELINES[name], cache=cache("ram", form))
        check_cold_and_warm(dataset, PackedDataset(path, PIPELINES[name]), PIPELINES[name], INDICES)

    @pytest.mark.parametrize(("name", "form"), sampled([*PIPELINES], FORMS))
    def test_photos_in_files(self, photos, cache, name, form):
        dataset = FolderDataset(photos, PIPELINES[name], cache=cache("ram", form))
        check_cold_and_warm(dataset, FolderDataset(photos, PIPELINES[name]), PIPELINES[name], INDICES)

    @pytest.mark.parametrize("form", ["encoded", "decoded"])
    def test_packed_tiles(self, packed, cache, form, require_tool):
        require_tool("jpegtran")
        path = packed("photos", "tiled")
        dataset = PackedDataset(path, PIPELINES["train"], cache=cache("ram", form))
        check_cold_and_warm(dataset, PackedDataset(path, PIPELINES["train"]), PIPELINES["train"], INDICES)

    @pytest.mark.parametrize(
        ("name", "encoding", "form", "container"),
        sampled([*TINY_PIPELINES], ["raw", "keep"], FORMS, ["hdf5", "lmdb"]),
    )
    def test_packed_thumbnails(self, packed, cache, name, encoding, form, container):
        path = packed("thumbnails", encoding, container)
        dataset = PackedDataset(path, TINY_PIPELINES[name], cache=cache("ram", form))
        plain_one = PackedDataset(path, TINY_PIPELINES[name])
        check_cold_and_warm(dataset, plain_one, TINY_PIPELINES[name], [39, 0, 3, 3, 21, 17])

    @pytest.mark.parametrize(("name", "form"), sampled([*TINY_PIPELINES], FORMS))
    def test_thumbnails_in_files(self, thumbnails, cache, name, form):
        dataset = FolderDataset(thumbnails, TINY_PIPELINES[name], cache=cache("tmpfs", form))
        plain_one = FolderDataset(thumbnails, TINY_PIPELINES[name])
        check_cold_and_warm(dataset, plain_one, TINY_PIPELINES[name], [39, 0, 3, 3, 21, 17])

    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(st.data())
    def test_any_order_of_batches(self, packed, photos, cache, data):
        steps = [T.RandomResizedCrop(20), T.CenterCrop(24), T.RandomCrop(18, padding=3), T.Pad((1, 2))]
        transform = T.Compose([*data.draw(st.lists(st.sampled_from(steps), max_size=3)), T.Resize((22, 22))])
        form = data.draw(st.sampled_from(["encoded", "decoded"]))
        batches = data.draw(st.lists(st.lists(st.integers(0, 23), min_size=1, max_size=9), max_size=5))
        path = data.draw(st.sampled_from([photos, packed("photos", "jpeg"), packed("photos", "raw")]))
        kind = FolderDataset if path == photos else PackedDataset
        dataset, plain_one = kind(path, transform, cache=cache("ram", form)), kind(path, transform)
        for batch in batches:
            assert torch.equal(filled(dataset, batch)[0], filled(plain_one, batch)[0])

    @pytest.mark.parametrize("encoding", ["keep", "jpeg"])
    def test_reduced_while_decoding(self, packed, photos, cache, encoding):
        transform = T.Compose([T.Resize(20), T.CenterCrop(16)])
        for kind, path in ((PackedDataset, packed("photos", encoding)), (FolderDataset, photos)):
            dataset = kind(path, transform, reducing_gap=1.0, cache=cache())
            plain_one = kind(path, transform, reducing_gap=1.0)
            for _ in range(2):
                assert torch.equal(filled(dataset, INDICES)[0], filled(plain_one, INDICES)[0])

    @pytest.mark.parametrize("form", ["encoded", "decoded"])
    def test_exif_orientation_is_applied(self, tmp_path, cache, form):
        root = tmp_path / "turned"
        root.mkdir()
        for number in range(8):
            data = file_of(photo(30, 44, seed=number), exif=exif(number + 1))
            (root / f"{number}.jpg").write_bytes(data)
        fastload.pack(root, tmp_path / "turned.fl", encode="keep", workers=1)
        for kind, path in ((PackedDataset, tmp_path / "turned.fl"), (FolderDataset, root)):
            options = {"transform": T.CenterCrop(30), "apply_orientation": True}
            for _ in range(2):  # a new object knows no headers
                dataset = kind(path, cache=cache("ram", form), **options)
                for _ in range(2):
                    expected = filled(kind(path, **options), list(range(8)))[0]
                    assert torch.equal(filled(dataset, list(range(8)))[0], expected)
                again = kind(path, cache=cache("ram", form), **options)
                assert torch.equal(filled(again, list(range(8)))[0], expected)
                assert again.cached.misses == 0

    def test_grey_images_and_formats_without_a_parsed_header(self, tmp_path, cache):
        root = tmp_path / "mixed"
        root.mkdir()
        for number, (suffix, mode) in enumerate(
            itertools.product(
                (("bmp", "BMP"), ("png", "PNG"), ("jpg", "JPEG"), ("webp", "WEBP")), ("RGB", "L")
            )
        ):
            data = file_of(photo(30, 44, seed=number), suffix[1], mode=mode)
            (root / f"{number}.{suffix[0]}").write_bytes(data)
        fastload.pack(root, tmp_path / "mixed.fl", encode="keep", workers=1)
        for form, (kind, path) in itertools.product(
            ("encoded", "decoded"), ((PackedDataset, tmp_path / "mixed.fl"), (FolderDataset, root))
        ):
            dataset, plain_one = kind(path, cache=cache("ram", form)), kind(path)
            for _ in range(2):
                assert torch.equal(filled(dataset, list(range(8)))[0], filled(plain_one, list(range(8)))[0])

    def test_fields_beside_the_image(self, tmp_path, cache):
        class Samples:
            fields = None

            def __len__(self):
                return 6

            def __getitem__(self, index):
                boxes = np.arange(4 * (index % 3), dtype=np.float32).reshape(-1, 4)
                return {
                    "image": photo(20, 24, seed=index),
                    "label": index,
                    "boxes": boxes,
                    "name": f"sample {index}",
                }

        fastload.pack(Samples(), tmp_path / "fields.fl", encode="keep", workers=1)
        plain_one = PackedDataset(tmp_path / "fields.fl")
        for form in ("encoded", "decoded"):
            dataset = PackedDataset(tmp_path / "fields.fl", cache=cache("ram", form))
            for index in [*range(6), *range(6)]:
                (image, target), (other, expected) = dataset[index], plain_one[index]
                assert torch.equal(image, other)
                assert target.keys() == expected.keys()
                for name in expected:
                    assert np.array_equal(target[name], expected[name])
                    assert type(target[name]) is type(expected[name])


class TestSharing:
    def test_cached_samples_are_not_read_from_the_disk(self, tmp_path, photos, packed, cache):
        for form in ("encoded", "decoded"):
            for kind, path in ((PackedDataset, packed("photos", "jpeg")), (FolderDataset, photos)):
                dataset = kind(path, PIPELINES["train"], cache=cache("ram", form))
                expected = filled(dataset, list(range(24)))
                again = kind(path, PIPELINES["train"], cache=cache("ram", form))
                os.rename(path, tmp_path / "away")
                try:
                    assert torch.equal(filled(again, list(range(24)))[0], expected[0])
                finally:
                    os.rename(tmp_path / "away", path)
                assert again.cached.misses == 0

    @pytest.mark.parametrize("method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.soak)])
    @pytest.mark.parametrize("kind", ["ram", "tmpfs"])
    def test_workers_of_torchs_loader_share_a_cache(self, photos, cache, method, kind):
        transform = T.Compose([T.CenterCrop(32)])
        dataset = FolderDataset(photos, transform, cache=cache(kind))
        options = {"batch_size": 5, "num_workers": 2, "multiprocessing_context": method}
        loader = torch.utils.data.DataLoader(dataset, **options)
        expected = list(torch.utils.data.DataLoader(FolderDataset(photos, transform), batch_size=5))
        for _ in range(2):
            for (images, labels), (plain_images, plain_labels) in zip(loader, expected, strict=True):
                assert torch.equal(images, plain_images)
                assert torch.equal(labels, plain_labels)
            assert dataset.cached.ready == 1
        before = dataset.cached
        filled(dataset, list(range(24)))
        assert (dataset.cached.hits - before.hits, dataset.cached.misses) == (24, before.misses)

    def test_pickled_dataset_finds_the_cache_again(self, packed, cache):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["train"], cache=cache())
        expected = filled(dataset, INDICES)
        again = pickle.loads(pickle.dumps(dataset))
        assert torch.equal(filled(again, INDICES)[0], expected[0])
        assert again.cached.misses == 0

    def test_writing_to_a_batch_does_not_change_the_cache(self, packed, cache):
        for form in ("encoded", "decoded"):
            dataset = PackedDataset(packed("thumbnails", "raw"), cache=cache("ram", form))
            for _ in range(2):
                before = filled(dataset, [1, 2])[0].clone()
                filled(dataset, [1, 2])[0].zero_()
                dataset[1][0].zero_()
                assert torch.equal(filled(dataset, [1, 2])[0], before)


class TestOptions:
    def test_cached_pixels_and_reducing_gap_cannot_be_combined(self, photos, cache):
        with pytest.raises(OptionError, match="cannot be combined with reducing_gap"):
            FolderDataset(photos, reducing_gap=2.0, cache=cache("ram", "decoded"))

    @pytest.mark.parametrize("wrong", ["page", "memory", 3, fastload])
    def test_unknown_cache_is_refused(self, photos, wrong):
        with pytest.raises(OptionError, match="cache must be None, auto, ram, tmpfs, disk, device"):
            FolderDataset(photos, cache=wrong)

    def test_missing_folder_is_refused(self, photos, tmp_path):
        with pytest.raises(OptionError, match="must exist and be writable"):
            FolderDataset(photos, cache=fastload.Cache("tmpfs", tmp_path / "nowhere"))

    def test_without_a_cache_the_reason_is_that_none_was_asked_for(self, photos):
        assert FolderDataset(photos).cached.reason == "no cache: not requested"

"""Batches made by a dataset are bit-equal to transforms applied image by image."""

import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import fastload
import fastload.transforms as T
from fastload import FolderDataset, PackedDataset
from fastload.errors import OptionError
from fastload.images.encoding_names import ENCODING_NAMES
from tests.datasets.pipelines import MEAN, PIPELINES, STD, TINY_PIPELINES
from tests.datasets.reference import check_against_plain, filled, plain
from tests.images.samples import file_of, photo
from tests.products import sampled


class TestFastPathEqualsPlainPath:
    @pytest.mark.parametrize(("name", "encoding"), sampled([*PIPELINES], ENCODING_NAMES))
    def test_photos(self, packed, name, encoding, require_tool):
        if encoding == "tiled":
            require_tool("jpegtran")
        dataset = PackedDataset(packed("photos", encoding), PIPELINES[name])
        check_against_plain(dataset, PIPELINES[name], [5, 0, 23, 11, 5, 16, 7, 8])

    @pytest.mark.parametrize("name", PIPELINES)
    def test_photos_in_files(self, photos, name):
        dataset = FolderDataset(photos, PIPELINES[name])
        check_against_plain(dataset, PIPELINES[name], [5, 0, 23, 11, 5])

    @pytest.mark.parametrize("name", ["train", "evaluation"])
    def test_lossless_tiles(self, packed, name, require_tool):
        require_tool("jpegtran")
        dataset = PackedDataset(packed("photos", "tiled"), PIPELINES[name])
        check_against_plain(dataset, PIPELINES[name], list(range(24)))

    @pytest.mark.parametrize(("name", "container"), sampled([*TINY_PIPELINES], ["hdf5", "lmdb"]))
    def test_thumbnails(self, packed, name, container):
        dataset = PackedDataset(packed("thumbnails", "raw", container), TINY_PIPELINES[name])
        check_against_plain(dataset, TINY_PIPELINES[name], [39, 0, 3, 3, 21, 17])

    @settings(max_examples=40)
    @given(st.data())
    def test_pipelines_in_any_order(self, packed, data):
        steps = [
            T.RandomResizedCrop(20),
            T.Resize((30, 26)),
            T.CenterCrop(24),
            T.RandomCrop(18, padding=3),
            T.RandomHorizontalFlip(),
            T.RandomVerticalFlip(),
            T.Pad((1, 2)),
        ]
        chosen = data.draw(st.lists(st.sampled_from(steps), max_size=5))
        transform = T.Compose([*chosen, T.Resize((22, 22))])
        dataset = PackedDataset(packed("photos", "jpeg"), transform)
        images, _ = filled(dataset, [1, 2, 3])
        expected = [plain(dataset, transform, index) for index in (1, 2, 3)]
        assert torch.equal(images, torch.stack(expected))


class TestLayout:
    @pytest.mark.parametrize("name", ["train", "normalised"])
    def test_memory_formats_have_equal_values_and_channels_last_is_the_default(self, packed, name):
        path = packed("photos", "jpeg")
        last, _ = filled(PackedDataset(path, PIPELINES[name]), [1, 2, 3])
        planar_format = torch.contiguous_format
        planar, _ = filled(PackedDataset(path, PIPELINES[name], memory_format=planar_format), [1, 2, 3])
        assert last.is_contiguous(memory_format=torch.channels_last)
        assert planar.is_contiguous()
        assert torch.equal(last, planar)

    def test_unknown_memory_format_is_refused(self, photos):
        with pytest.raises(OptionError, match=r"memory_format must be torch\.channels_last"):
            FolderDataset(photos, memory_format=torch.preserve_format)

    def test_batch_is_writable(self, packed):
        for name in TINY_PIPELINES:
            dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES[name])
            first, _ = filled(dataset, [1, 2])
            before = first.clone()
            first.zero_()
            assert torch.equal(filled(dataset, [1, 2])[0], before)


class TestEdges:
    @pytest.mark.parametrize("size", [(1, 8), (8, 1), (1, 1)])
    def test_side_of_one_pixel_is_flipped(self, tmp_path, size):
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "a.png").write_bytes(file_of(photo(*size), "PNG"))
        flips = [T.RandomVerticalFlip(1.0), T.RandomHorizontalFlip(1.0)]
        for steps in (
            [T.Grayscale(3), *flips, T.Resize((4, 4))],
            [T.Grayscale(3), *flips, T.ToDtype(torch.float32, scale=True)],
            [T.CenterCrop(size), T.Grayscale(3), *flips, torch.from_numpy],
        ):
            transform = T.Compose(steps)
            dataset = FolderDataset(tmp_path / "photos", transform)
            assert torch.equal(torch.as_tensor(dataset[0][0]), torch.as_tensor(plain(dataset, transform, 0)))

    @pytest.mark.parametrize("loader", [fastload.DataLoader, torch.utils.data.DataLoader])
    def test_empty_batch_is_not_made_as_a_batch(self, packed, loader):
        dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES["cifar"])
        assert list(loader(dataset, batch_sampler=[[], [1]], collate_fn=len)) == [0, 1]

    def test_values_are_rounded_only_at_the_end(self, packed):
        steps = [T.ToDtype(torch.float32), T.Normalize((0,) * 3, (2,) * 3), T.ToDtype(torch.uint8)]
        halved, _ = filled(PackedDataset(packed("thumbnails", "raw"), T.Compose(steps)), [1, 2])
        full, _ = filled(PackedDataset(packed("thumbnails", "raw")), [1, 2])
        assert torch.equal(halved, full // 2)

    def test_changed_parameter_takes_effect(self, packed):
        normalize = T.Normalize(MEAN, STD)
        transform = T.Compose([T.ToDtype(torch.float32, scale=True), normalize])
        dataset = PackedDataset(packed("thumbnails", "raw"), transform)
        before, _ = filled(dataset, [1])
        normalize.mean = [0.0, 0.0, 0.0]
        assert not torch.equal(filled(dataset, [1])[0], before)

    def test_batch_as_a_view_of_what_a_transform_was_given_is_copied_right(self, packed):
        transform = T.Compose([T.RandomCrop(24, padding=4), Transposed()])
        dataset = PackedDataset(packed("thumbnails", "raw"), transform)
        check_against_plain(dataset, transform, [39, 0, 3])


class Transposed(T.Transform):
    """A user's own transform, whose batch is a view of the one that it gets."""

    def apply(self, image, parameters):
        return image.swapaxes(0, 1)

    def apply_batch(self, images, parameters):
        return images.swapaxes(1, 2)

"""Batches that a dataset fills: to the bit what transforms make of each picture, whoever makes them."""

import functools
import itertools
import multiprocessing
import os
import pickle
import shutil
import warnings

import cv2
import h5py
import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

import fastload
import fastload.transforms as T
from fastload import FolderDataset, PackedDataset
from fastload.errors import OptionError, SlowTransformWarning
from fastload.images.decode import decode
from fastload.images.encodings import encoding_named
from fastload.transforms.draws import draws_for, epoch_seed
from fastload.transforms.pipeline import Pipeline
from fastload.transport.filling import OrdinaryMemory
from tests.images.pictures import exif, file_of, photo

SEED = 20_240_229
MEAN_LEVELS_APART = 3  # of 255; scaled cosine transforms are another low-pass filter than ours
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = [(60, 85), (97, 64), (33, 120), (128, 128), (75, 75), (64, 90)]

PIPELINES = {
    "train": T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip()]),
    "train, linear": T.Compose([T.RandomResizedCrop(48, antialias=False), T.RandomVerticalFlip()]),
    "train, flipped first": T.Compose([T.RandomHorizontalFlip(), T.RandomResizedCrop((40, 56))]),
    "evaluation": T.Compose([T.Resize(40), T.CenterCrop(32)]),
    "crop after resize": T.Compose([T.Resize(50), T.RandomCrop(32, padding=4), T.RandomVerticalFlip()]),
    "crop that fits": T.Compose([T.CenterCrop(32), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]),
    "crop that pads": T.Compose([T.CenterCrop(100)]),
    "normalised": T.Compose(
        [T.RandomResizedCrop(32), T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    ),
    "half": T.Compose([T.Resize((24, 24)), T.ToDtype(torch.float16, scale=True)]),
    "numbers in between": T.Compose(
        [T.Resize((24, 24)), T.ToDtype(torch.float32, scale=True), T.RandomHorizontalFlip(), T.Pad(2)]
    ),
    "nested": T.Compose([T.Compose([T.Resize((30, 30))]), T.RandomApply([T.RandomHorizontalFlip(1.0)])]),
    "grey": T.Compose([T.Resize((24, 24)), T.RandomHorizontalFlip(), T.Grayscale(1)]),
    "grey numbers": T.Compose(
        [T.Resize((24, 24)), T.Grayscale(1), T.ToDtype(torch.float32, scale=True), T.Normalize([0.5], [0.5])]
    ),
    "colours": T.Compose(
        [T.RandomResizedCrop(40), T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1)]), T.RandomErasing()]
    ),
    "policy": T.Compose([T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.RandAugment()]),
    "policy, then numbers": T.Compose(
        [
            T.RandomResizedCrop(40),
            T.TrivialAugmentWide(),
            T.ToDtype(torch.float32, scale=True),
            T.Normalize(MEAN, STD),
            T.RandomErasing(p=1.0, value="random"),
        ]
    ),
    "turned": T.Compose(
        [T.Resize(40), T.RandomRotation(20), T.RandomAffine(5, (0.1, 0.1)), T.CenterCrop(32)]
    ),
    "one": T.RandomResizedCrop(16, interpolation="bicubic"),
}
TINY_PIPELINES = {
    "cifar": T.Compose([T.RandomCrop(32, padding=4), T.RandomHorizontalFlip()]),
    "turned and resized": T.Compose([T.RandomRotation(40, expand=True), T.Resize((32, 32))]),
    "cifar, mirrored edges": T.Compose([T.RandomCrop(32, padding=4, padding_mode="reflect")]),
    "cifar, coloured edges": T.Compose([T.RandomCrop(32, padding=(1, 2, 3, 4), fill=(9, 8, 7))]),
    "crop alone": T.Compose([T.RandomCrop(24), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]),
    "nothing": None,
    "blurred and grey": T.Compose([T.RandomCrop(30), T.GaussianBlur(3), T.RandomGrayscale(0.5)]),
    "resized": T.Compose([T.Resize(20), T.RandomHorizontalFlip()]),
    "cifar, normalised": T.Compose(
        [
            T.RandomCrop(32, padding=4),
            T.RandomHorizontalFlip(),
            T.ToDtype(torch.float32, scale=True),
            T.Normalize(MEAN, STD),
        ]
    ),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return _folder(tmp_path_factory.mktemp("photos") / "photos", SIZES, 24)


@pytest.fixture(scope="module")
def thumbnails(tmp_path_factory):
    return _folder(tmp_path_factory.mktemp("thumbs") / "thumbs", [(32, 32)], 40, ".png")


def _folder(root, sizes, count, suffix=".jpg"):
    for number in range(count):
        place = root / "abc"[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        pixels = photo(*sizes[number % len(sizes)], seed=number)
        data = file_of(pixels, "PNG" if suffix == ".png" else "JPEG")
        (place / f"{number:02d}{suffix}").write_bytes(data)
    return root


@pytest.fixture(scope="module")
def packed(photos, thumbnails, tmp_path_factory):
    """Gives `packed(folder name, encoding, container)`: the path, packed once."""
    root, made = tmp_path_factory.mktemp("packed"), {}

    def path_of(name, encoding, container="hdf5"):
        key = f"{name}-{encoding}-{container}"
        if key not in made:
            made[key] = root / f"{key}.fl"
            source = {"photos": photos, "thumbnails": thumbnails}[name]
            options = {"encode": encoding, "format": container, "shard_size": 30_000}
            fastload.pack(source, made[key], workers=1, **options)
        return made[key]

    return path_of


def plain(dataset, transform, index, seed=SEED):
    """One sample the plain way: all decoded, then one transform after the other."""
    with epoch_seed(seed):
        draws = draws_for([index])
    if isinstance(dataset, FolderDataset):
        pixels = decode(dataset.source.read(index).image)
    else:
        record = dataset.read(index)
        name = dataset._records.manifest.image.encoding
        pixels = encoding_named(name).decode(record.stored("image"), record.image_shape()).copy()
    return Pipeline(transform).run(pixels, draws)


def filled(dataset, indices, seed=SEED):
    with epoch_seed(seed):
        return dataset.fetch_into(indices, OrdinaryMemory())


def check_against_plain(dataset, transform, indices):
    images, labels = filled(dataset, indices)
    expected = [plain(dataset, transform, index) for index in indices]
    assert images.dtype == expected[0].dtype
    assert torch.equal(images, torch.stack(expected))
    assert labels.tolist() == [dataset.targets[index] for index in indices]
    with epoch_seed(SEED):
        samples = dataset.__getitems__(indices)
    assert all(torch.equal(image, one) for (image, _), one in zip(samples, expected, strict=True))
    assert [label for _, label in samples] == labels.tolist()


class TestFastPathIsThePlainPath:
    @pytest.mark.parametrize("encoding", ["keep", "jpeg", "yuv420", "raw"])
    @pytest.mark.parametrize("name", PIPELINES)
    def test_of_photos(self, packed, name, encoding):
        dataset = PackedDataset(packed("photos", encoding), PIPELINES[name])
        check_against_plain(dataset, PIPELINES[name], [5, 0, 23, 11, 5, 16, 7, 8])

    @pytest.mark.parametrize("name", PIPELINES)
    def test_of_photos_in_files(self, photos, name):
        dataset = FolderDataset(photos, PIPELINES[name])
        check_against_plain(dataset, PIPELINES[name], [5, 0, 23, 11, 5])

    @pytest.mark.parametrize("name", ["train", "evaluation"])
    def test_of_lossless_tiles(self, packed, name, require_tool):
        require_tool("jpegtran")
        dataset = PackedDataset(packed("photos", "tiled"), PIPELINES[name])
        check_against_plain(dataset, PIPELINES[name], list(range(24)))

    @pytest.mark.parametrize("container", ["hdf5", "lmdb"])
    @pytest.mark.parametrize("name", TINY_PIPELINES)
    def test_of_thumbnails(self, packed, name, container):
        dataset = PackedDataset(packed("thumbnails", "raw", container), TINY_PIPELINES[name])
        check_against_plain(dataset, TINY_PIPELINES[name], [39, 0, 3, 3, 21, 17])

    @settings(max_examples=40)
    @given(st.data())
    def test_of_pipelines_of_any_order(self, packed, data):
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
    def test_channels_last_is_the_default_and_the_other_holds_the_same(self, packed, name):
        path = packed("photos", "jpeg")
        last, _ = filled(PackedDataset(path, PIPELINES[name]), [1, 2, 3])
        planar_format = torch.contiguous_format
        planar, _ = filled(PackedDataset(path, PIPELINES[name], memory_format=planar_format), [1, 2, 3])
        assert last.is_contiguous(memory_format=torch.channels_last)
        assert planar.is_contiguous()
        assert torch.equal(last, planar)

    def test_another_format_is_refused(self, photos):
        with pytest.raises(OptionError, match=r"memory_format must be torch\.channels_last"):
            FolderDataset(photos, memory_format=torch.preserve_format)

    def test_a_batch_is_the_users_to_write_to(self, packed):
        for name in TINY_PIPELINES:
            dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES[name])
            first, _ = filled(dataset, [1, 2])
            before = first.clone()
            first.zero_()
            assert torch.equal(filled(dataset, [1, 2])[0], before)


def epochs(dataset, count=2, clone=True, **options):
    """The batches of some epochs."""
    loader = fastload.DataLoader(dataset, batch_size=5, **{"seed": 7, "shuffle": True, **options})
    return [[(images.clone(), labels.clone()) for images, labels in loader] for _ in range(count)]


def assert_same_epochs(one, other):
    for a, b in zip(itertools.chain(*one), itertools.chain(*other), strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])


class TestCountedRandomness:
    @pytest.mark.filterwarnings("ignore:This DataLoader will create 5 worker processes")
    @pytest.mark.parametrize("workers", [1, 2, 5])
    @pytest.mark.parametrize("is_persistent", [False, True])
    def test_any_number_of_workers_gives_the_same_batches(self, packed, workers, is_persistent):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["train"])
        assert_same_epochs(
            epochs(dataset), epochs(dataset, num_workers=workers, persistent_workers=is_persistent)
        )

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_any_start_method_gives_the_same_batches(self, packed, method):
        if method not in multiprocessing.get_all_start_methods():
            pytest.skip(f"{method} does not exist here")
        dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES["cifar"])
        assert_same_epochs(epochs(dataset), epochs(dataset, num_workers=2, multiprocessing_context=method))

    @pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}], ids=str)
    def test_epochs_differ_without_a_seed_and_follow_torchs(self, packed, options):
        dataset = PackedDataset(packed("photos", "raw"), PIPELINES["train"])
        torch.manual_seed(0)
        first, second = epochs(dataset, shuffle=False, seed=None, **options)
        torch.manual_seed(0)
        assert_same_epochs([first, second], epochs(dataset, shuffle=False, seed=None, **options))
        assert not torch.equal(first[0][0], second[0][0])

    def test_epochs_differ_and_so_do_seeds(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), PIPELINES["train"])
        first, second = epochs(dataset, shuffle=False)
        other = epochs(dataset, 1, shuffle=False, seed=8)[0]
        assert not torch.equal(first[0][0], second[0][0])
        assert not torch.equal(first[0][0], other[0][0])

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("options", [{"seed": 7}, {"seed": None}], ids=str)
    def test_a_resumed_epoch_goes_on_with_the_same_batches(self, packed, workers, options):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["train"])

        def loader():
            return fastload.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers, **options)

        whole, batches = loader(), []
        list(whole)
        iterator = iter(whole)
        for _ in range(2):
            next(iterator)
        state = pickle.loads(pickle.dumps(whole.state_dict()))
        batches = [images.clone() for images, _ in iterator]
        resumed = loader()
        resumed.load_state_dict(state)
        for expected, (images, _) in zip(batches, resumed, strict=True):
            assert torch.equal(expected, images)

    def test_a_collate_function_of_ones_own_is_given_the_same_images(self, packed):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["train"])
        own = epochs(dataset, num_workers=2, collate_fn=_stacked)
        assert_same_epochs(epochs(dataset), own)

    def test_parts_of_a_dataset_draw_as_the_whole(self, packed):
        dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES["cifar"])
        whole = next(iter(fastload.DataLoader(dataset, batch_size=40, seed=3)))[0]
        part = fastload.DataLoader(torch.utils.data.Subset(dataset, [7, 30, 2]), batch_size=3, seed=3)
        assert torch.equal(next(iter(part))[0], whole[[7, 30, 2]])
        joined = torch.utils.data.ConcatDataset([dataset])
        batch = next(iter(fastload.DataLoader(joined, batch_size=40, seed=3, num_workers=1)))
        assert torch.equal(batch[0], whole)

    def test_single_samples_without_batching_draw_the_same(self, packed):
        dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES["cifar"])
        whole = next(iter(fastload.DataLoader(dataset, batch_size=40, seed=3)))[0]
        single = [image for image, _ in fastload.DataLoader(dataset, batch_size=None, seed=3)]
        assert torch.equal(torch.stack(single), whole)

    def test_outside_of_the_loader_torchs_generator_decides(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), PIPELINES["train"])
        torch.manual_seed(1)
        first, second = dataset[3][0], dataset[3][0]
        torch.manual_seed(1)
        assert torch.equal(dataset[3][0], first)
        assert not torch.equal(first, second)

    def test_torchs_own_loader_gives_new_crops_in_every_epoch(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), PIPELINES["train"])
        loader = torch.utils.data.DataLoader(dataset, batch_size=24, num_workers=1, persistent_workers=True)
        first, second = (next(iter(loader))[0].clone() for _ in range(2))
        assert not torch.equal(first, second)


def _with_warnings_shown(worker):
    warnings.simplefilter("always")
    # pytest keeps warnings to itself, in a worker too.
    warnings.showwarning = lambda message, category, *_: os.write(2, f"{category.__name__}: \n".encode())


def _stacked(samples):
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), torch.tensor(labels)


class TestForeignTransforms:
    def test_any_callable_may_stand_among_ours(self, packed):
        from torchvision.transforms import v2

        dataset = PackedDataset(packed("photos", "raw"))
        dataset.transform = T.Compose(
            [T.Resize((40, 40)), v2.RandomHorizontalFlip(1.0), lambda image: image, T.RandomVerticalFlip(1.0)]
        )
        image, _ = dataset[2]
        expected = T.Resize((40, 40))(PackedDataset(packed("photos", "raw"))[2][0]).flip(1, 2)
        assert torch.equal(image, expected)

    def test_torchvisions_are_given_pil_images_and_others_arrays(self, packed):
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

    def test_what_they_cost_is_said_once(self, packed):
        dataset = PackedDataset(packed("thumbnails", "raw"))
        dataset.transform = T.Compose([T.RandomHorizontalFlip(), np.copy])
        loader = fastload.DataLoader(dataset, batch_size=8)
        with pytest.warns(SlowTransformWarning, match=r"numpy\.copy \d+ us") as caught:
            assert len([*loader, *loader]) == 2 * len(loader)
        assert len(caught) == 1

    def test_forked_workers_say_it_once_for_all_epochs(self, packed, capfd):
        dataset = PackedDataset(packed("thumbnails", "raw"), T.Compose([T.RandomHorizontalFlip(), np.copy]))
        for _ in range(2):
            options = {
                "num_workers": 2,
                "worker_init_fn": _with_warnings_shown,
                "multiprocessing_context": "fork",
            }
            for _ in fastload.DataLoader(dataset, batch_size=20, sampler=[*range(40)] * 2, **options):
                pass
        assert capfd.readouterr().err.count("SlowTransformWarning: ") == 1

    def test_what_was_made_a_tensor_stays_one(self, packed):
        from torchvision.transforms import v2

        steps = [v2.ToImage(), T.RandomHorizontalFlip(1.0), v2.ToDtype(torch.float32, scale=True)]
        image, _ = PackedDataset(packed("thumbnails", "raw"), T.Compose(steps))[0]
        expected = PackedDataset(packed("thumbnails", "raw"))[0][0].flip(2) / 255
        assert torch.allclose(image, expected)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_numbers_at_the_end_may_be_of_any_floating_type(self, packed, dtype):
        import torchvision.transforms

        transform = T.Compose([torchvision.transforms.ToTensor(), T.Normalize(MEAN, STD), T.ToDtype(dtype)])
        image, _ = PackedDataset(packed("thumbnails", "raw"), transform)[0]
        assert image.dtype == dtype
        assert image.shape == (3, 32, 32)

    def test_ours_may_stand_among_torchvisions(self, photos):
        from torchvision import datasets, transforms

        pipeline = transforms.Compose([T.RandomResizedCrop(20), transforms.ToTensor()])
        image, _ = datasets.ImageFolder(str(photos), pipeline)[0]
        assert image.shape == (3, 20, 20)

    def test_torchvisions_draw_what_they_draw_for_an_imagefolder(self, tmp_path, thumbnails, packed):
        from torchvision import datasets
        from torchvision.transforms import v2

        def drawn(dataset, loader):
            torch.manual_seed(5)
            return [images.clone() for images, _ in loader(dataset, batch_size=8, shuffle=True)]

        pipeline = v2.Compose([v2.RandomCrop(20), v2.RandomHorizontalFlip(), v2.PILToTensor()])
        reference = drawn(datasets.ImageFolder(str(thumbnails), pipeline), torch.utils.data.DataLoader)
        dataset = PackedDataset(packed("thumbnails", "raw"), pipeline)
        for loader in (torch.utils.data.DataLoader, fastload.DataLoader):
            for ours, theirs in zip(drawn(dataset, loader), reference, strict=True):
                assert torch.equal(ours, theirs)

    def test_what_draws_nothing_leaves_torchs_generator_alone(self, packed):
        for transform in (None, T.Compose([T.Resize((20, 20)), T.CenterCrop(16)])):
            before = torch.get_rng_state()
            PackedDataset(packed("photos", "raw"), transform)[3]
            assert torch.equal(torch.get_rng_state(), before)


class TestTargets:
    def test_a_target_transform_and_further_fields_are_collated_as_by_torch(self, packed, tmp_path):
        dataset = PackedDataset(packed("thumbnails", "raw"), target_transform=lambda label: {"class": label})
        images, targets = filled(dataset, [0, 20])
        assert images.shape == (2, 3, 32, 32)
        assert targets["class"].tolist() == [dataset.targets[0], dataset.targets[20]]

    def test_images_of_different_sizes_are_left_to_the_collate_function(self, packed):
        dataset = PackedDataset(packed("photos", "raw"))
        assert filled(dataset, [0, 1]) is NotImplemented
        with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
            next(iter(fastload.DataLoader(dataset, batch_size=2)))


class TestEdges:
    @pytest.mark.parametrize("size", [(1, 8), (8, 1), (1, 1)])
    def test_a_side_of_one_pixel_may_be_flipped(self, tmp_path, size):
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
    def test_an_empty_batch_is_left_to_the_collate_function(self, packed, loader):
        dataset = PackedDataset(packed("thumbnails", "raw"), TINY_PIPELINES["cifar"])
        assert list(loader(dataset, batch_sampler=[[], [1]], collate_fn=len)) == [0, 1]

    def test_numbers_are_made_whole_only_at_the_end(self, packed):
        steps = [T.ToDtype(torch.float32), T.Normalize((0,) * 3, (2,) * 3), T.ToDtype(torch.uint8)]
        halved, _ = filled(PackedDataset(packed("thumbnails", "raw"), T.Compose(steps)), [1, 2])
        whole, _ = filled(PackedDataset(packed("thumbnails", "raw")), [1, 2])
        assert torch.equal(halved, whole // 2)

    def test_a_parameter_that_is_changed_is_obeyed(self, packed):
        normalize = T.Normalize(MEAN, STD)
        transform = T.Compose([T.ToDtype(torch.float32, scale=True), normalize])
        dataset = PackedDataset(packed("thumbnails", "raw"), transform)
        before, _ = filled(dataset, [1])
        normalize.mean = [0.0, 0.0, 0.0]
        assert not torch.equal(filled(dataset, [1])[0], before)


class TestErrors:
    def test_a_file_that_is_cut_short_is_named(self, photos, tmp_path):
        whole = next((photos / "a").iterdir()).read_bytes()
        (tmp_path / "photos").mkdir()
        for number, data in enumerate([whole, whole[: len(whole) // 2]]):
            (tmp_path / "photos" / f"{number}.jpg").write_bytes(data)
        dataset = FolderDataset(tmp_path / "photos", PIPELINES["train"])
        for workers in (0, 1):
            with pytest.raises(fastload.DecodeError, match=r"1\.jpg: a JPEG must end"):
                next(iter(fastload.DataLoader(dataset, batch_size=2, num_workers=workers)))

    def test_a_header_that_says_another_size_than_the_picture_has_is_an_error(self, tmp_path):
        (tmp_path / "photos").mkdir()
        data = bytearray(file_of(photo(40, 40)))
        (tmp_path / "photos" / "0.bmp").write_bytes(cv2.imencode(".bmp", photo(40, 40))[1].tobytes())
        (tmp_path / "photos" / "1.jpg").write_bytes(bytes(data))
        images, _ = filled(FolderDataset(tmp_path / "photos", PIPELINES["train"]), [0, 1])
        assert images.shape == (2, 3, 48, 48)

    def test_another_sample_stands_in_for_one_that_cannot_be_read(self, packed, tmp_path):
        damaged = tmp_path / "damaged.fl"
        shutil.copytree(packed("photos", "raw"), damaged)
        shard = min(damaged.glob("*.h5"))
        content = bytearray(shard.read_bytes())
        content[20_000] ^= 1
        shard.write_bytes(content)
        transform = PIPELINES["train"]
        with pytest.raises(fastload.DamageError, match="checksum"):
            for _ in fastload.DataLoader(PackedDataset(damaged, transform), batch_size=4):
                pass
        stand_in = torch.zeros(3, 48, 48, dtype=torch.uint8), -7
        dataset = PackedDataset(damaged, transform, on_error=lambda index, error: stand_in)
        labels = torch.cat([labels for _, labels in fastload.DataLoader(dataset, batch_size=4)])
        assert labels.tolist().count(-7) == 1

    def test_a_damaged_shape_is_damage_and_never_room_for_its_pixels(self, packed, tmp_path):
        damaged = tmp_path / "damaged.fl"
        shutil.copytree(packed("photos", "raw"), damaged)
        shard = min(damaged.glob("*.h5"))
        with h5py.File(shard, "r+") as file:
            file["image/shape"][0] = (3_000_000_000, 3_000_000_000, 3)
        for transform in (None, T.Compose([T.RandomCrop(8, padding=2)])):
            with pytest.raises(fastload.DamageError, match="record 0"):
                PackedDataset(damaged, transform)[0]

    def test_pixels_of_another_type_are_refused_with_the_way_out(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), T.Compose([T.Normalize(MEAN, STD)]))
        with pytest.raises(OptionError, match="put ToDtype"):
            dataset[0]

    def test_a_crop_that_is_too_large_says_what_to_do(self, packed):
        dataset = PackedDataset(packed("photos", "raw"), T.RandomCrop(500))
        with pytest.raises(OptionError, match="pad_if_needed=True"):
            dataset[0]


class TestFinishing:
    def test_on_a_device_the_tail_gives_what_it_gives_in_the_batch(self, packed):
        class Leaving(OrdinaryMemory):
            def __init__(self):
                super().__init__(finishes_on_device=True)

        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["normalised"])
        expected, _ = filled(dataset, [1, 2, 3])
        with epoch_seed(SEED):
            left, _ = dataset.fetch_into([1, 2, 3], Leaving())
        assert left.dtype == torch.uint8
        assert torch.equal(dataset.finish(left), expected)
        assert torch.equal(dataset.finish(expected), expected)

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    @pytest.mark.parametrize("workers", [0, 2])
    def test_batches_on_a_gpu_are_those_on_the_cpu(self, packed, workers):
        dataset = PackedDataset(packed("photos", "jpeg"), PIPELINES["normalised"])
        on_gpu = fastload.DataLoader(dataset, batch_size=6, seed=1, num_workers=workers, device="cuda")
        on_cpu = fastload.DataLoader(dataset, batch_size=6, seed=1)
        for (there, _), (here, _) in zip(on_gpu, on_cpu, strict=True):
            assert there.device.type == "cuda"
            assert torch.allclose(there.cpu(), here, atol=1e-6)


class TestHints:
    def test_prefetching_changes_nothing_and_takes_any_indices(self, packed, photos):
        for dataset in (
            PackedDataset(packed("photos", "jpeg")),
            PackedDataset(packed("photos", "jpeg", "lmdb")),
            FolderDataset(photos),
        ):
            before = dataset[3][0]
            dataset.prefetch([3, 1, 2])
            dataset.prefetch([])
            assert torch.equal(dataset[3][0], before)


class TestReducedDecoding:
    def test_it_is_off_unless_asked_for(self, packed):
        assert PackedDataset(packed("photos", "keep")).reducing_gap is None

    @pytest.mark.parametrize("encoding", ["keep", "jpeg", "raw"])
    def test_small_results_are_close_to_those_of_the_whole(self, packed, photos, encoding):
        transform = T.Compose([T.Resize((12, 12)), T.RandomHorizontalFlip()])
        exact, _ = filled(PackedDataset(packed("photos", encoding), transform), list(range(24)))
        for dataset in (
            PackedDataset(packed("photos", encoding), transform, reducing_gap=1.5),
            FolderDataset(photos, transform, reducing_gap=1.5),
        ):
            reduced, _ = filled(dataset, list(range(24)))
            assert (reduced.int() - exact.int()).abs().float().mean() < MEAN_LEVELS_APART
        assert torch.equal(reduced, filled(FolderDataset(photos, transform), range(24))[0]) is False

    def test_results_that_are_not_small_are_the_same(self, packed):
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
    def test_it_is_not_applied_unless_asked_for_and_then_as_pil_does(self, turned, tmp_path, encoding):
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
    def test_crops_of_turned_pictures_are_those_of_the_whole(self, turned, tmp_path, name):
        fastload.pack(turned, tmp_path / "turned.fl", encode="jpeg", workers=1)
        transform = PIPELINES[name]
        dataset = PackedDataset(tmp_path / "turned.fl", transform, apply_orientation=True)
        whole = PackedDataset(tmp_path / "turned.fl", apply_orientation=True)
        images, _ = filled(dataset, range(8))
        for index, image in enumerate(images):
            with epoch_seed(SEED):
                draws = draws_for([index])
            pixels = np.ascontiguousarray(whole[index][0].permute(1, 2, 0).numpy())
            assert torch.equal(image, Pipeline(transform).run(pixels, draws))

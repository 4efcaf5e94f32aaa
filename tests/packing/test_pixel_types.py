"""Tests of datasets whose images have 16 bits, floats or many channels, from their files to batches."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fastload
import fastload.transforms as T
from fastload.errors import DecodeError, OptionError, SourceError
from fastload.images.pixel_types import RGB, PixelType
from fastload.shards.manifest import FORMAT_VERSION, read_manifest
from tests.folders import class_folders, encoded, pixels
from tests.images.wide import npy_of, png_of, scene, tiff_of

KINDS = {
    "png": (PixelType("uint16", 1), png_of, ".png"),
    "tiff": (PixelType("uint16", 4), tiff_of, ".tif"),
    "npy": (PixelType("float32", 7), npy_of, ".npy"),
    "signed": (PixelType("int16", 1), tiff_of, ".tif"),
    "half": (PixelType("float16", 2), npy_of, ".npy"),
    "bands of bytes": (PixelType("uint8", 6), tiff_of, ".tif"),
}
TO_FLOATS = [T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True)]
TRANSFORMS = [
    None,
    T.RandomCrop(24),
    T.Compose([T.RandomResizedCrop(24), *TO_FLOATS]),
    T.Compose([T.RandomResizedCrop(24, antialias=False), *TO_FLOATS]),
    T.Compose([T.RandomRotation(20), T.CenterCrop(20), T.ColorJitter(0.2, 0.2), T.GaussianBlur(3)]),
]


def folder_of(root: Path, kind: str, count: int = 12) -> list[np.ndarray]:
    """Write class folders of images; return these in the order of the records."""
    pixel_type, to_file, suffix = KINDS[kind]
    images = [scene(32, 40, pixel_type.channels, pixel_type.dtype, seed) for seed in range(count)]
    for number, image in enumerate(images):
        path = root / f"class{number % 2}" / f"{number:03d}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_file(image))
    return images[::2] + images[1::2]


def pixels_of(image: torch.Tensor) -> np.ndarray:
    return image.permute(1, 2, 0).numpy()


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=[("keep", "hdf5"), ("raw", "hdf5"), ("raw", "lmdb"), ("blosc", "lmdb")], ids="-".join)
def packed(request, kind, tmp_path):
    images = folder_of(tmp_path / "source", kind)
    encode, container = request.param
    options = {"encode": encode, "format": container, "workers": 1, "shard_size": "60KB"}
    fastload.pack(tmp_path / "source", tmp_path / "packed.fl", **options)
    return tmp_path / "packed.fl", images


def test_samples_have_the_numbers_of_the_files(packed, kind):
    path, images = packed
    dataset = fastload.PackedDataset(path)
    assert dataset.pixel_type == KINDS[kind][0]
    for (image, _), wanted in zip((dataset[at] for at in range(len(dataset))), images, strict=True):
        assert image.dtype == getattr(torch, wanted.dtype.name)
        np.testing.assert_array_equal(pixels_of(image), wanted)


def test_the_manifest_states_dtype_and_channels(packed, kind):
    path, _ = packed
    pixel_type = KINDS[kind][0]
    field = json.loads((path / "manifest.json").read_bytes())["fields"][0]
    assert (field["dtype"], field["shape"]) == (pixel_type.dtype, [pixel_type.channels])
    assert json.loads((path / "manifest.json").read_bytes())["version"] == FORMAT_VERSION
    assert read_manifest(path).image.pixel_type == pixel_type


@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format], ids=str)
def test_batches_are_equal_to_collated_samples(packed, transform, memory_format):
    path, _ = packed
    dataset = fastload.PackedDataset(path, transform, memory_format=memory_format)
    for workers in (0, 1):
        loader = fastload.DataLoader(dataset, batch_size=5, shuffle=True, num_workers=workers, seed=3)
        torch.manual_seed(0)
        batches = list(loader)
        samples = [sample for batch in _one_by_one(dataset, workers) for sample in batch[0]]
        together = torch.cat([batch[0] for batch in batches])
        assert together.dtype == samples[0].dtype
        torch.testing.assert_close(together, torch.stack(samples), rtol=0, atol=1e-6)


def _one_by_one(dataset, workers):
    torch.manual_seed(0)
    return fastload.DataLoader(
        dataset,
        batch_size=5,
        shuffle=True,
        num_workers=workers,
        seed=3,
        collate_fn=lambda batch: list(zip(*batch, strict=True)),
    )


def test_verify_finds_no_damage_and_unpack_gives_the_images_back(packed, kind, tmp_path):
    path, images = packed
    assert fastload.verify(path, check="pixels", workers=1).damages == ()
    fastload.unpack(path, tmp_path / "again")
    source, again = (sorted((tmp_path / name).rglob("*.*")) for name in ("source", "again"))
    assert len(again) == len(images)
    if fastload.PackedDataset(path).encoding == "keep":
        assert [file.read_bytes() for file in again] == [file.read_bytes() for file in source]
    fastload.pack(tmp_path / "again", tmp_path / "again.fl", workers=1)
    dataset = fastload.PackedDataset(tmp_path / "again.fl")
    for at, wanted in enumerate(images):
        np.testing.assert_array_equal(pixels_of(dataset[at][0]), wanted)


@pytest.mark.parametrize("cache", ["ram", fastload.Cache("ram", form="decoded")], ids=str)
def test_caches_in_memory_hold_the_same_numbers(packed, cache):
    path, images = packed
    if isinstance(cache, fastload.Cache) and fastload.PackedDataset(path).encoding == "raw":
        pytest.skip("raw pixels are not decoded")
    dataset = fastload.PackedDataset(path, cache=cache)
    for _ in range(2):
        for at, wanted in enumerate(images):
            np.testing.assert_array_equal(pixels_of(dataset[at][0]), wanted)
    assert dataset.cached.hits


def test_a_folder_is_read_without_packing(kind, tmp_path):
    images = folder_of(tmp_path / "source", kind)
    dataset = fastload.FolderDataset(tmp_path / "source", T.RandomCrop(24))
    assert dataset.pixel_type == KINDS[kind][0]
    loader = fastload.DataLoader(dataset, batch_size=4, num_workers=0)
    assert {batch[0].dtype for batch in loader} == {getattr(torch, images[0].dtype.name)}
    dataset.transform = None
    for at, wanted in enumerate(images):
        np.testing.assert_array_equal(pixels_of(dataset[at][0]), wanted)


@pytest.mark.parametrize("form", ["encoded", "decoded"])
def test_a_copy_on_a_disk_holds_the_same_numbers(form, tmp_path):
    images = folder_of(tmp_path / "source", "tiff")
    cache = fastload.Cache("disk", folder=tmp_path / "cache", form=form)
    dataset = fastload.FolderDataset(tmp_path / "source", cache=cache)
    dataset.fill_cache()
    while dataset.cached.ready < 1:
        assert not dataset.cached.stopped
    for at, wanted in enumerate(images):
        np.testing.assert_array_equal(pixels_of(dataset[at][0]), wanted)
    assert dataset.cached.hits == len(images)


@pytest.fixture
def mixed(tmp_path):
    """Pictures of 8 bits, and one of 16."""
    class_folders(tmp_path / "mixed", 6, 2)
    (tmp_path / "mixed" / "class1" / "9999.png").write_bytes(png_of(scene(24, 32, 3, "uint16")))
    return tmp_path / "mixed"


@pytest.mark.parametrize("encode", ["keep", "raw", "jpeg", "yuv420", "blosc"])
def test_images_of_two_types_are_an_error_that_names_the_file(mixed, encode, tmp_path):
    with pytest.raises(
        SourceError, match=r"class1/9999.png.*uint16 in 3 channels: pack with --convert uint8"
    ):
        fastload.pack(mixed, tmp_path / "packed.fl", encode=encode, workers=1)


def test_images_of_two_types_are_listed_if_they_may_be_skipped_or_kept(mixed, tmp_path):
    result = fastload.pack(mixed, tmp_path / "packed.fl", on_error="skip", workers=1)
    assert [each.key for each in result.splits[0].skipped] == ["class1/9999.png"]
    result = fastload.pack(mixed, tmp_path / "kept.fl", on_error="keep", encode="keep", workers=1)
    assert [each.key for each in result.splits[0].kept] == ["class1/9999.png"]
    with pytest.raises(DecodeError, match="packed although it is unreadable"):
        fastload.PackedDataset(tmp_path / "kept.fl")[6]


@pytest.mark.parametrize("encode", ["keep", "raw", "jpeg", "blosc"])
def test_convert_makes_one_type_of_them(mixed, encode, tmp_path):
    fastload.pack(mixed, tmp_path / "packed.fl", encode=encode, convert="uint8", workers=1)
    dataset = fastload.PackedDataset(tmp_path / "packed.fl")
    assert dataset.pixel_type == RGB
    if encode != "jpeg":
        np.testing.assert_array_equal(pixels_of(dataset[6][0]), scene(24, 32, 3, "uint16") >> 8)
    assert fastload.verify(tmp_path / "packed.fl", check="pixels", workers=1).damages == ()


def test_convert_to_more_bits_scales_as_torchvision_does(mixed, tmp_path):
    fastload.pack(mixed, tmp_path / "packed.fl", encode="raw", convert="uint16", workers=1)
    dataset = fastload.PackedDataset(tmp_path / "packed.fl")
    assert dataset.pixel_type == PixelType("uint16", 3)
    np.testing.assert_array_equal(pixels_of(dataset[6][0]), scene(24, 32, 3, "uint16"))
    assert not (pixels_of(dataset[0][0]) & 255).any()


def test_a_folder_of_two_types_is_an_error_that_names_the_file(mixed):
    dataset = fastload.FolderDataset(mixed)
    assert dataset[0][0].dtype == torch.uint8
    with pytest.raises(
        DecodeError, match=r"9999.png: the image must be uint8 in 3 channels, .*--convert uint8"
    ):
        dataset[6]


def test_an_unknown_dtype_is_refused(tmp_path):
    class_folders(tmp_path / "source", 2, 1)
    with pytest.raises(OptionError, match="convert must be one of uint8, uint16, int16, float16, float32"):
        fastload.pack(tmp_path / "source", tmp_path / "packed.fl", convert="float64")


@pytest.mark.parametrize("encode", ["tiled", "jpeg", "yuv420"])
def test_encodings_of_pictures_are_refused_before_anything_is_packed(encode, tmp_path, require_tool):
    require_tool("jpegtran")
    folder_of(tmp_path / "source", "tiff")
    with pytest.raises(OptionError, match=f"the {encode} encoding stores uint8 in 3 channels"):
        fastload.pack(tmp_path / "source", tmp_path / "packed.fl", encode=encode)
    assert not (tmp_path / "packed.fl").exists()


def test_auto_compresses_what_does_not_fit_as_it_is(tmp_path):
    for seed in range(6):
        path = tmp_path / "source" / "a" / f"{seed}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, np.zeros((200, 200, 5), np.uint16) + np.uint16(seed))
    result = fastload.pack(tmp_path / "source", tmp_path / "packed.fl", workers=1)
    assert result.encoding == "blosc"
    assert (fastload.PackedDataset(tmp_path / "packed.fl")[5][0] == 5).all()


def test_arrays_beside_pictures_are_left_out(tmp_path):
    class_folders(tmp_path / "source", 4, 2)
    (tmp_path / "source" / "class0" / "embeddings.npy").write_bytes(npy_of(scene(20, 30, 1, "float32")))
    result = fastload.pack(tmp_path / "source", tmp_path / "packed.fl", workers=1)
    assert [(each.key, each.reason) for each in result.splits[0].left_out] == [
        ("class0/embeddings.npy", "an array, where other files are images")
    ]


@pytest.mark.parametrize(("dtype", "channels"), [("uint16", 4), ("int16", 1), ("float32", 3), ("uint8", 5)])
def test_a_dataset_of_arrays_is_packed(dtype, channels, tmp_path):
    images = [scene(32, 40, channels, dtype, seed) for seed in range(5)]

    class Arrays(torch.utils.data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, index):
            depth = images[index].astype(np.float32)[:, :, 0]
            return {"image": images[index], "label": index, "depth": depth}

    fields = [fastload.Field.label(), fastload.Field.image("depth", "raw", PixelType("float32", 1))]
    fastload.pack(Arrays(), tmp_path / "packed.fl", fields=fields, workers=1)
    dataset = fastload.PackedDataset(tmp_path / "packed.fl")
    for at, wanted in enumerate(images):
        image, target = dataset[at]
        np.testing.assert_array_equal(pixels_of(image), wanted)
        np.testing.assert_array_equal(target["depth"][0].numpy(), wanted.astype(np.float32)[:, :, 0])


def test_masks_belong_to_images_of_any_type(tmp_path):
    for number in range(4):
        for folder, data in (
            ("images", tiff_of(scene(32, 40, 5, "uint16", number))),
            ("masks", encoded((pixels(number, 32, 40)[:, :, 0] > 90).astype(np.uint8), ".png")),
        ):
            path = tmp_path / "source" / folder / f"{number}.{'tif' if folder == 'images' else 'png'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    fastload.pack(tmp_path / "source", tmp_path / "packed.fl", workers=1)
    dataset = fastload.PackedDataset(
        tmp_path / "packed.fl", T.Compose([T.RandomHorizontalFlip(1.0), T.CenterCrop(20)])
    )
    image, target = dataset[2]
    wanted = scene(32, 40, 5, "uint16", 2)[6:26, ::-1][:, 10:30]
    np.testing.assert_array_equal(pixels_of(image), wanted)
    assert target["mask"].shape == (20, 20)

"""A shard written by any release stays readable by every later one.

`python -m tests.shards.test_released_formats` creates the data of the current version.
"""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import fastload
from fastload.shards.schema import Field
from tests.folders import encoded

DATA = Path(__file__).resolve().parent.parent / "data"


def make(container: str) -> None:
    """Pack four gradients of 24x32 with boxes and polygons; the red channel identifies the image."""
    rows, columns = np.mgrid[:24, :32]
    boxes = [
        {"id": at, "image_id": at, "category_id": 7, "bbox": [at, 2, 3.25, 4], "area": 13} for at in range(3)
    ]
    polygon = {"iscrowd": 0, "segmentation": [[1, 2, 3, 4.5, 5, 6], [0, 0, 9, 0, 9, 9]]}
    content = {
        "images": [{"id": at, "file_name": f"{at}.png"} for at in range(4)],
        "annotations": [box | polygon for box in boxes],
        "categories": [{"id": 7, "name": "cat"}],
    }
    with TemporaryDirectory() as folder:
        for index in range(4):
            image = np.stack([np.full_like(rows, index * 60), rows * 10, columns * 8], axis=-1)
            file = Path(folder) / "tiny" / f"{index}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encoded(image.astype(np.uint8), ".png"))
        (Path(folder) / "tiny/x.json").write_text(json.dumps(content))
        dest = DATA / f"format3-{container}.fl"
        os.chdir(folder)
        fastload.pack("tiny", dest, format=container, encode="jpeg", overwrite=True)


FIELDS = (
    Field.keypoints((2, 3)),
    Field.corners(),
    Field("names", "texts", per_object=True),
    Field("masks", "image", encoding="keep", format="masks"),
)


def image_of(index: int) -> np.ndarray:
    """Return a grey gradient of 24x32, the brighter the larger the index."""
    rows, columns = np.mgrid[:24, :32]
    return np.stack([20 * index + 6 * rows + 2 * columns] * 3, axis=-1).astype(np.uint8)


def objects_of(index: int) -> dict[str, object]:
    """Return one object more than `index`, each with all that FIELDS name."""
    places = range(index + 1)
    return {
        "keypoints": [[[at, 2.5, 2], [0, index, 1]] for at in places],
        "corners": [[[at, 1], [5, 1.25], [5, 4], [at, 4]] for at in places],
        "names": [f"bird {at} \N{BIRD}" for at in places],
        "masks": np.stack([np.eye(24, 32, at, np.uint8) for at in places]),
    }


def make_encoded(encode: str) -> None:
    """Pack three JPEG files with objects in one encoding."""
    samples = [{"image": encoded(image_of(index)), **objects_of(index)} for index in range(3)]
    dest = DATA / f"format3-{encode}.fl"
    fastload.pack(samples, dest, encode=encode, fields=FIELDS, overwrite=True)


VALUES = [
    (np.arange(4, dtype=np.float32) + index, {"id": index, "text": f"line {index} é"}) for index in range(3)
]


def make_values(container: str) -> None:
    """Pack three records without an image."""
    fastload.pack(VALUES, DATA / f"format4-{container}.fl", format=container, overwrite=True)


def bands_of(index: int, dtype: str) -> np.ndarray:
    """Return a gradient of 24x32 in 5 channels, beyond 8 bits."""
    rows, columns, channels = np.mgrid[:24, :32, :5]
    return (rows * 300 + columns * 70 + channels * 5000 + index).astype(dtype)


BANDS = {"keep": "uint16", "raw": "float32", "blosc": "int16"}


def make_bands(encode: str) -> None:
    """Pack three images of five channels."""
    samples = [{"image": bands_of(index, BANDS[encode]), "label": index} for index in range(3)]
    fastload.pack(samples, DATA / f"format5-{encode}.fl", encode=encode, overwrite=True)


@pytest.mark.parametrize("encode", BANDS)
def test_images_of_other_types_of_version_5_are_read(encode):
    path = DATA / f"format5-{encode}.fl"
    dataset = fastload.PackedDataset(path, verify="always")
    for index in range(3):
        image, label = dataset[index]
        assert label == index
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), bands_of(index, BANDS[encode]))
    assert fastload.verify(path, check="pixels").damages == ()


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_records_without_an_image_of_version_4_are_read(container):
    path = DATA / f"format4-{container}.fl"
    dataset = fastload.PackedDataset(path, verify="always")
    for index, (vector, values) in enumerate(VALUES):
        np.testing.assert_array_equal(dataset[index][0], vector)
        assert dataset[index][1] == values
    assert fastload.verify(path, check="pixels").damages == ()


@pytest.mark.parametrize("encode", ["tiled", "yuv420", "raw"])
def test_encodings_and_fields_of_version_3_are_read(encode):
    path = DATA / f"format3-{encode}.fl"
    dataset = fastload.PackedDataset(path, verify="always")
    for index in range(3):
        image, target = dataset[index]
        assert abs(image.numpy().astype(int).transpose(1, 2, 0) - image_of(index)).mean() < 3
        for name, value in objects_of(index).items():
            np.testing.assert_array_equal(target[name], value, name)
    assert fastload.verify(path, check="pixels").damages == ()


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_objects_of_version_3_are_read(container):
    path = DATA / f"format3-{container}.fl"
    dataset = fastload.PackedDataset(path, verify="always")
    assert dataset.classes == ["cat"]
    for index in range(4):
        image, target = dataset[index]
        count = int(index < 3)
        assert abs(image[0].numpy().astype(int) - index * 60).mean() < 3
        assert target["image_id"].item() == index
        assert target["boxes"].tolist() == [[index, 2, index + 3.25, 6]] * count
        assert [[len(each) for each in polygons] for polygons in target["polygons"]] == [[3, 3]] * count
    assert fastload.verify(path).damages == ()


@pytest.mark.parametrize("container", ["hdf5", "lmdb"])
def test_labels_of_version_2_are_read(container):
    path = DATA / f"format2-{container}.fl"
    dataset = fastload.PackedDataset(path, verify="always")
    assert dataset.classes == ["class0", "class1"]
    assert dataset.targets == [0, 0, 1, 1]
    keys = [dataset.read(index).key for index in range(4)]
    assert keys == ["class0/0.png", "class0/2.png", "class1/1.png", "class1/3.png"]
    rows, columns = np.mgrid[:24, :32]
    for index, key in enumerate(keys):
        red, green, blue = dataset[index][0].numpy().astype(int)
        assert abs(red - int(key[7]) * 60).mean() < 3
        assert abs(green - rows * 10).mean() < 3
        assert abs(blue - columns * 8).mean() < 3
    assert fastload.verify(path).damages == ()


if __name__ == "__main__":
    for container in ("hdf5", "lmdb"):
        make(container)
        make_values(container)
    for encode in ("tiled", "yuv420", "raw"):
        make_encoded(encode)
    for encode in BANDS:
        make_bands(encode)

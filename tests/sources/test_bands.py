"""Tests of images whose channels are files of their own."""

from pathlib import Path

import numpy as np
import pytest

import fastload
from fastload.errors import OptionError, SourceError
from fastload.images.pixel_types import PixelType
from tests.commands import run
from tests.images.wide import png_of, scene, tiff_of

BANDS = ("red", "nir", "swir")


@pytest.fixture
def fields(tmp_path):
    """Six images of three bands, whose files are named in two ways, and a file of another band for each."""
    for number in range(6):
        image = scene(24, 32, 4, "uint16", number)
        for channel, band in enumerate((*BANDS, "blue")):
            stem = f"{number}_{band}" if number % 2 else f"{number}/{band}"
            path = tmp_path / "fields" / f"class{number // 3}" / f"{stem}.tif"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tiff_of(image[:, :, channel : channel + 1]))
    return tmp_path / "fields"


@pytest.mark.parametrize("encode", ["keep", "raw"])
def test_files_of_a_folder_are_joined_in_the_order_of_the_bands(fields, encode, tmp_path):
    result = fastload.pack(fields, tmp_path / "x.fl", bands=BANDS, encode=encode, workers=1)
    dataset = fastload.PackedDataset(tmp_path / "x.fl")
    assert dataset.pixel_type == PixelType("uint16", 3)
    keys = [dataset.read(at).key for at in range(6)]
    assert sorted(keys) == [f"class{number // 3}/{number}" for number in range(6)]
    for at, key in enumerate(keys):
        wanted = scene(24, 32, 4, "uint16", int(key[-1]))[:, :, :3]
        np.testing.assert_array_equal(dataset[at][0].permute(1, 2, 0).numpy(), wanted)
        assert dataset[at][1] == int(key[5])
    assert (result.account.records, result.account.left_out) == (18, 6)
    assert {each.reason for each in result.splits[0].left_out} == {"of no band that was named"}


def test_the_command_takes_bands(fields, tmp_path):
    run("pack", fields, tmp_path / "x.fl", "--bands", "nir,red", "--on-error", "skip", "--workers", "1")
    dataset = fastload.PackedDataset(tmp_path / "x.fl")
    assert dataset.pixel_type == PixelType("uint16", 2)


def test_columns_of_a_table_are_joined(tmp_path):
    rows = ["red,nir,label"]
    for number in range(4):
        for channel, band in enumerate(("red", "nir")):
            path = tmp_path / f"{number}{band}.png"
            path.write_bytes(png_of(scene(24, 32, 2, "uint16", number)[:, :, channel : channel + 1]))
        rows.append(f"{number}red.png,{number}nir.png,{number % 2}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    fastload.pack(tmp_path / "table.csv", tmp_path / "x.fl", bands=("nir", "red"), workers=1)
    dataset = fastload.PackedDataset(tmp_path / "x.fl")
    for at in range(4):
        image, label = dataset[at]
        wanted = scene(24, 32, 2, "uint16", at)[:, :, ::-1]
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), wanted)
        assert label == at % 2


def pack_error(folder: Path, dest: Path, **options) -> str:
    with pytest.raises(SourceError) as raised:
        fastload.pack(folder, dest, workers=1, **options)
    return str(raised.value)


def test_a_missing_band_is_an_error_that_names_the_image(fields, tmp_path):
    (fields / "class0" / "1_nir.tif").unlink()
    assert "class0/1" in (error := pack_error(fields, tmp_path / "x.fl", bands=BANDS))
    assert "must have a file for the band 'nir'" in error
    result = fastload.pack(fields, tmp_path / "x.fl", bands=BANDS, on_error="skip", workers=1)
    assert [each.key for each in result.splits[0].skipped] == ["class0/1"]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (scene(24, 30, 1, "uint16"), "must have the size and dtype of the other bands, uint16 (24, 32)"),
        (scene(24, 32, 1, "float32"), "got float32 (24, 32)"),
        (scene(24, 32, 3, "uint16"), "must have one channel to be a band, got 3"),
    ],
    ids=["size", "dtype", "channels"],
)
def test_bands_that_do_not_belong_together_are_an_error_that_names_the_file(fields, image, message, tmp_path):
    (fields / "class0" / "1_nir.tif").write_bytes(tiff_of(image))
    error = pack_error(fields, tmp_path / "x.fl", bands=BANDS)
    assert "1_nir.tif" in error
    assert message in error


def test_two_files_of_one_band_are_refused(fields, tmp_path):
    (fields / "class0" / "1-nir.tif").write_bytes(tiff_of(scene(24, 32, 1, "uint16")))
    assert "must be the only file of the band 'nir'" in pack_error(fields, tmp_path / "x.fl", bands=BANDS)


def test_bands_that_no_file_has_are_refused(fields, tmp_path):
    assert "must have files of the bands B1, B2" in pack_error(fields, tmp_path / "x.fl", bands=("B1", "B2"))


@pytest.mark.parametrize("bands", [(), ("red",), ("red", "red"), ("red", "")])
def test_bands_must_be_different_names(fields, bands, tmp_path):
    with pytest.raises(OptionError, match="bands must be two or more different names"):
        fastload.pack(fields, tmp_path / "x.fl", bands=bands)


def test_bands_of_a_dataset_in_python_are_refused(tmp_path):
    with pytest.raises(OptionError, match="bands are for folders of images and for tables"):
        fastload.pack([{"image": scene(9, 9, 2, "uint16"), "label": 1}], tmp_path / "x.fl", bands=BANDS)

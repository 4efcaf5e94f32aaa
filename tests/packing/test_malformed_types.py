"""Malformed and mixed files of 16 bits, floats and bands: each is an error that names it, or listed."""

import io
import struct
from pathlib import Path

import cv2
import numpy as np
import pydicom
import pytest
import tifffile
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

import fastload
from fastload.errors import SourceError
from tests.images.wide import npy_of, png_of, scene, tiff_of

GOOD = scene(32, 40, 4, "uint16")
TIFF = tiff_of(GOOD, compression="zlib", rowsperstrip=8)
NPY = npy_of(GOOD)


def saved(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def pages(*images: np.ndarray) -> bytes:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for image in images:
            writer.write(image, photometric="minisblack", metadata=None)
    return file.getvalue()


def dicom_of(image: np.ndarray, **changes: object) -> bytes:
    """A grey image as a DICOM file without compression, with some attributes changed."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    dataset.Rows, dataset.Columns = image.shape[:2]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 8 * image.itemsize
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(image.dtype.kind == "i")
    dataset.PixelData = image.tobytes()
    for name, value in changes.items():
        setattr(dataset, name, value)
    file = io.BytesIO()
    pydicom.dcmwrite(file, dataset, enforce_file_format=True)
    return file.getvalue()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


# Entries of a TIFF's directory: tag, type, count and value.
COMPRESSION, UNKNOWN_COMPRESSION = (struct.pack("<HHIH", 259, 3, 1, value) for value in (1, 60_000))
PFM = cv2.imencode(".pfm", GOOD[:, :, :3].astype(np.float32))[1].tobytes()
OBJECTS_HEADER = b"{'descr': '|O', 'fortran_order': False, 'shape': (4, 4), }".ljust(69) + b"\n"
OBJECTS = b"\x93NUMPY\x01\x00" + struct.pack("<H", 70) + OBJECTS_HEADER


MALFORMED = {
    "an empty tiff": ("tif", b""),
    "a tiff of eight bytes": ("tif", TIFF[:8]),
    "a tiff without its directory": ("tif", TIFF[: len(TIFF) // 2]),
    "a tiff without its last byte": ("tif", TIFF[:-1]),
    "a tiff whose directory lies beyond it": ("tif", TIFF[:4] + struct.pack("<I", 1 << 30) + TIFF[8:]),
    "a tiff with a damaged strip": ("tif", TIFF[:-40] + bytes(40)),
    "a tiff of an unknown compression": ("tif", tiff_of(GOOD).replace(COMPRESSION, UNKNOWN_COMPRESSION)),
    "a tiff of noise": ("tif", b"II*\0" + np.random.default_rng(0).bytes(500)),
    "a tiff of doubles": ("tif", tiff_of(GOOD.astype(np.float64))),
    "a tiff of 32 bits": ("tif", tiff_of(GOOD.astype(np.uint32))),
    "a tiff of complex numbers": ("tif", tiff_of(GOOD.astype(np.complex64))),
    "a tiff of 65 bands": ("tif", tiff_of(scene(66, 66, 65, "uint16"))),
    "a tiff of three pages": ("tif", pages(*[GOOD[:, :, 0]] * 3)),
    "a tiff of pages of two sizes": ("tif", pages(GOOD[:, :, 0], GOOD[:9, :9, 0])),
    "a tiff of three bands": ("tif", tiff_of(GOOD[:, :, :3])),
    "a tiff of five bands": ("tif", tiff_of(scene(32, 40, 5, "uint16"))),
    "a tiff of signed numbers": ("tif", tiff_of(GOOD.astype(np.int16))),
    "a tiff of floats": ("tif", tiff_of(GOOD.astype(np.float32))),
    "a tiff of 8 bits": ("tif", tiff_of(GOOD.astype(np.uint8))),
    "a text named tiff": ("tif", b"red,nir\n1,2\n"),
    "an npy without its end": ("npy", NPY[:-1]),
    "an npy with more bytes": ("npy", NPY + b"x"),
    "an npy without its header's end": ("npy", NPY[:40]),
    "an npy with a damaged header": ("npy", flipped(NPY, 20)),
    "an npy of objects": ("npy", OBJECTS),
    "an npy of doubles": ("npy", npy_of(GOOD.astype(np.float64))),
    "an npy of booleans": ("npy", npy_of(GOOD > 9)),
    "an npy with channels first": ("npy", npy_of(GOOD.transpose(2, 0, 1))),
    "an npy of one dimension": ("npy", npy_of(GOOD.reshape(-1))),
    "an npy of four dimensions": ("npy", npy_of(GOOD[None])),
    "an npy without pixels": ("npy", npy_of(GOOD[:0])),
    "an npy of another type": ("npy", npy_of((GOOD / 65535).astype(np.float16))),
    "an npz of two arrays": ("npz", saved(a=GOOD, b=GOOD)),
    "an npz without its end": ("npz", saved(a=GOOD)[:-30]),
    "an npz with a damaged array": ("npz", flipped(saved(a=GOOD), 400)),
    "a png of 16 bits in three channels": ("png", png_of(GOOD[:, :, :3])),
    "a png of 8 bits": ("png", png_of(GOOD[:, :, :3].astype(np.uint8))),
    "a png without its end": ("png", png_of(GOOD)[:-20]),
    "a png with a damaged chunk": ("png", flipped(png_of(GOOD), 60)),
    "a jpeg": ("jpg", cv2.imencode(".jpg", GOOD[:, :, :3].astype(np.uint8))[1].tobytes()),
    "a pfm": ("pfm", PFM),
    "a pfm without its end": ("pfm", PFM[:-9]),
    "a dicom of one channel": ("dcm", dicom_of(GOOD[:, :, 0])),
    "a dicom of two frames": ("dcm", dicom_of(GOOD[:, :, 0], NumberOfFrames=2)),
    "a dicom without pixels": ("dcm", dicom_of(GOOD[:, :, 0], PixelData=b"")),
    "a dicom of more rows than it has": ("dcm", dicom_of(GOOD[:, :, 0], Rows=900)),
    "a dicom without its end": ("dcm", dicom_of(GOOD[:, :, 0])[:-100]),
    "an exr of noise": ("exr", b"\x76\x2f\x31\x01" + bytes(200)),
}  # fmt: skip


def folder_with(root: Path, suffix: str, data: bytes) -> Path:
    """Two good images of four bands, and a file after them."""
    for number, (name, good) in enumerate([("tif", TIFF), ("png", png_of(GOOD))]):
        path = root / "source" / "a" / f"{number}.{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(good)
    (root / "source" / "a" / f"odd.{suffix}").write_bytes(data)
    return root / "source"


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("encode", ["keep", "raw"])
def test_each_is_an_error_that_names_the_file_or_a_listed_skip(kind, encode, tmp_path):
    suffix, data = MALFORMED[kind]
    source = folder_with(tmp_path, suffix, data)
    # Arrays beside images, and formats that OpenCV does not read here, are left out.
    if suffix in ("npy", "npz", "exr"):
        result = fastload.pack(source, tmp_path / "beside.fl", encode=encode, workers=1)
        assert [each.key for each in result.splits[0].left_out] == [f"a/odd.{suffix}"]
        for name in ("0.tif", "1.png"):
            (source / "a" / name).unlink()
        np.save(source / "a" / "0.npy", GOOD)
    if suffix == "exr":
        return
    with pytest.raises(SourceError, match=rf"odd\.{suffix}"):
        fastload.pack(source, tmp_path / "failed.fl", encode=encode, workers=1)
    result = fastload.pack(source, tmp_path / "rest.fl", encode=encode, on_error="skip", workers=1)
    listed = [each.key for each in (*result.splits[0].left_out, *result.splits[0].skipped)]
    assert listed == [f"a/odd.{suffix}"]
    dataset = fastload.PackedDataset(tmp_path / "rest.fl")
    for at in range(len(dataset)):
        np.testing.assert_array_equal(dataset[at][0].permute(1, 2, 0).numpy(), GOOD)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize("encode", ["keep", "raw", "blosc"])
def test_dicom_files_keep_their_stored_values(dtype, encode, tmp_path):
    images = [scene(32, 40, 1, dtype, seed) for seed in range(3)]
    for number, image in enumerate(images):
        path = tmp_path / "source" / "a" / f"{number}.dcm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dicom_of(image, RescaleSlope=2, RescaleIntercept=-1024))
    fastload.pack(tmp_path / "source", tmp_path / "x.fl", encode=encode, workers=1)
    dataset = fastload.PackedDataset(tmp_path / "x.fl")
    for at, image in enumerate(images):
        wanted = np.repeat(image, 3, axis=2) if dtype == "uint8" else image
        np.testing.assert_array_equal(dataset[at][0].permute(1, 2, 0).numpy(), wanted)
    fastload.unpack(tmp_path / "x.fl", tmp_path / "again")
    if encode == "keep":
        again = sorted((tmp_path / "again").rglob("*.dcm"))
        assert [file.read_bytes() for file in again] == [
            file.read_bytes() for file in sorted((tmp_path / "source").rglob("*.dcm"))
        ]

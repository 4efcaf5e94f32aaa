"""Image files of every format and mode: a compiled dataset has PIL's pixels, bit for bit."""

import copy
import struct
import zlib

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

import fastload
from fastload.datasets.compiled.late_files import decoded_late
from tests.images.samples import photo

PIXELS = photo(41, 50, seed=3)
ALPHA = Image.fromarray(np.dstack([PIXELS, PIXELS[:, :, 1]]))


def _turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return {"exif": exif}


def _frames():
    return {"save_all": True, "append_images": [Image.fromarray(PIXELS[::-1].copy())]}


# By file name: the mode, and PIL's options. OpenCV decodes what it decodes as PIL does, and PIL the rest.
FILES = {
    "rgb.jpg": ("RGB", {"quality": 90}),
    "progressive.jpg": ("RGB", {"progressive": True}),
    "full colour.jpg": ("RGB", {"subsampling": 0}),
    "colours in rows.jpg": ("RGB", {"subsampling": 1}),
    "restarts.jpg": ("RGB", {"restart_marker_rows": 1}),
    "kept rgb.jpg": ("RGB", {"keep_rgb": True}),
    "turned.jpg": ("RGB", _turned(6)),
    "mirrored.jpg": ("RGB", _turned(2)),
    "profile and resolution.jpg": ("RGB", {"icc_profile": b"profile", "dpi": (300, 200), "comment": b"text"}),
    "grey.jpg": ("L", {}),
    "cmyk.jpg": ("CMYK", {}),
    "rgb.png": ("RGB", {}),
    "turned.png": ("RGB", _turned(8)),
    "profile and resolution.png": ("RGB", {"icc_profile": b"profile", "dpi": (300, 200)}),
    "one transparent colour.png": ("RGB", {"transparency": tuple(PIXELS[3, 4].tolist())}),
    "alpha.png": ("RGBA", {}),
    "grey.png": ("L", {}),
    "grey and alpha.png": ("LA", {}),
    "bits.png": ("1", {}),
    "palette.png": ("P", {}),
    "palette of four.png": ("P", {"bits": 2}),
    "palette, transparent.png": ("P", {"transparency": 3}),
    "deep grey.png": ("I;16", {}),
    "rgb.webp": ("RGB", {"quality": 80}),
    "lossless.webp": ("RGB", {"lossless": True}),
    "alpha.webp": ("RGBA", {}),
    "moving.webp": ("RGB", _frames()),
    "rgb.bmp": ("RGB", {}),
    "grey.bmp": ("L", {}),
    "bits.bmp": ("1", {}),
    "palette.bmp": ("P", {}),
    "rgb.tiff": ("RGB", {}),
    "packed.tiff": ("RGB", {"compression": "tiff_lzw"}),
    "turned.tiff": ("RGB", _turned(6)),
    "cmyk.tiff": ("CMYK", {}),
    "deep grey.tiff": ("I;16", {}),
    "palette.gif": ("P", {}),
    "transparent.gif": ("P", {"transparency": 5}),
    "moving.gif": ("RGB", _frames()),
    "rgb.ppm": ("RGB", {}),
    "grey.pgm": ("L", {}),
}


def _image(mode):
    if mode in ("RGBA", "LA"):
        return ALPHA.convert(mode)
    if mode == "I;16":
        return Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 201)
    return Image.fromarray(PIXELS).convert(mode)


def _with_text_behind(path):
    """Return a PNG file with a text behind its pixels, where ImageMagick puts it."""
    chunk = b"tEXt" + b"Author\0somebody"
    text = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    data = path.read_bytes()
    return data[:-12] + text + data[-12:]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """ImageFolders, plain and compiled."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    root = tmp_path_factory.mktemp("formats")
    (root / "class").mkdir()
    for name, (mode, options) in FILES.items():
        _image(mode).save(root / "class" / name, **options)
    cv2.imwrite(str(root / "class" / "deep.png"), PIXELS.astype(np.uint16) * 257)
    (root / "class" / "text behind.png").write_bytes(_with_text_behind(root / "class" / "rgb.png"))
    theirs = ImageFolder(str(root), transform=transforms.PILToTensor(), is_valid_file=lambda path: True)
    assert len(theirs) == len(FILES) + 2
    return theirs, fastload.compile(theirs)


@pytest.mark.parametrize("name", [*FILES, "deep.png", "text behind.png"])
def test_pixels_are_pils(folders, name):
    theirs, ours = folders
    index = [path.rpartition("/")[2] for path, _ in theirs.samples].index(name)
    expected = theirs[index][0]
    for _ in range(2):  # the first time the header is read too
        assert torch.equal(ours[index][0], expected)
    assert torch.equal(ours.__getitems__([index])[0][0], expected)


def test_images_without_a_transform_are_pils(folders):
    theirs, ours = map(copy.copy, folders)
    ours.theirs = copy.copy(ours.theirs)
    ours.transform = theirs.transform = None
    for index in range(len(theirs)):
        image, expected = ours[index][0], theirs[index][0]
        assert (type(image), image.mode, image.size) == (type(expected), expected.mode, expected.size)


@pytest.mark.parametrize("name", FILES)
def test_images_that_are_decoded_late_are_pils(folders, name):
    theirs, _ = folders
    path = next(path for path, _ in theirs.samples if path.endswith(f"/{name}"))
    with decoded_late(2.0):
        late = theirs.loader(path)
    assert np.array_equal(np.asarray(late), np.asarray(theirs.loader(path)))


def test_metadata_are_pils(folders):
    from torchvision import transforms

    theirs, ours = map(copy.copy, folders)
    ours.theirs = copy.copy(ours.theirs)
    ours.transform = theirs.transform = transforms.Lambda(lambda image: (image.info, dict(image.getexif())))
    for _ in range(2):
        for index in range(len(theirs)):
            assert ours[index][0] == theirs[index][0]
    assert [info for info, _ in ours.__getitems__([0, 1])] == [theirs[0][0], theirs[1][0]]


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_images_that_are_decoded_late_are_pils(folders, name):
    theirs, _ = folders
    path = next(path for path, _ in theirs.samples if path.endswith(f"/{name}"))
    with decoded_late(2.0):
        late = theirs.loader(path)
    assert late.info == theirs.loader(path).info

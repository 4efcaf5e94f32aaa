"""Images of 16 bits and of floats, and files of them, for tests."""

import io

import cv2
import numpy as np
import tifffile

DTYPES = ("uint8", "uint16", "int16", "float16", "float32")


def scene(height: int, width: int, channels: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Noise over soft shapes, over the range of a dtype; below 0 too, if it has such numbers."""
    rng = np.random.default_rng(seed)
    coarse = rng.random((height // 16 + 2, width // 16 + 2, channels), np.float32)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    levels = smooth.reshape(height, width, channels) * 0.8 + rng.random((height, width, channels)) * 0.2
    if dtype.startswith("float"):
        return (levels - 0.1).astype(dtype)
    bounds = np.iinfo(dtype)
    return (bounds.min + levels.clip(0, 1) * (float(bounds.max) - bounds.min)).astype(dtype)


def tiff_of(image: np.ndarray, **options: object) -> bytes:
    """An image as a TIFF of bands."""
    file = io.BytesIO()
    options = {"photometric": "minisblack", "planarconfig": "contig", **options}
    if image.shape[2] == 1:
        image, options["planarconfig"] = image[:, :, 0], None
    elif options["planarconfig"] == "separate":
        image = np.moveaxis(image, 2, 0)
    tifffile.imwrite(file, image, **options)
    return file.getvalue()


def npy_of(image: np.ndarray) -> bytes:
    """An image as an .npy file."""
    file = io.BytesIO()
    np.save(file, image)
    return file.getvalue()


def png_of(image: np.ndarray) -> bytes:
    """An image as a PNG with its channels in the order RGB(A)."""
    order = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[image.shape[2]]
    return cv2.imencode(".png", image[:, :, order])[1].tobytes()

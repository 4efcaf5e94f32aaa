"""Images in NumPy's files: an array (height, width) or (height, width, channels) in .npy, or alone in .npz.

The pixels of an .npy file are a view of its bytes, so a region of it reads no others.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Any

import numpy as np

from fastload.errors import DecodeError
from fastload.images.arrays import Pixels, StoredBytes, with_last_axis
from fastload.images.encoding_names import DTYPES
from fastload.images.pixel_types import MOST_CHANNELS, is_image_shape

NPY_SIGNATURE = b"\x93NUMPY"

# NumPy pads headers to a multiple of 64 bytes; that of an image has 128 at most, and format 1.0 below 64 KiB.
_HEADER_BYTES = 1 << 16


def read_npy(data: StoredBytes) -> Pixels:
    """Return the image of an .npy file, a read-only view where its bytes allow one; may raise DecodeError."""
    try:
        file = io.BytesIO(bytes(data[:_HEADER_BYTES]))
        version = np.lib.format.read_magic(file)
        reads: Any = np.lib.format
        read = reads.read_array_header_1_0 if version == (1, 0) else reads.read_array_header_2_0
        shape, is_by_columns, dtype = read(file)
    except ValueError as error:
        raise DecodeError(f"an .npy file must have a header of NumPy, got: {error}: save it again") from error
    _require_image(shape, dtype)
    begin, size_bytes = file.tell(), int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(data) - begin != size_bytes:
        raise DecodeError(
            f"an .npy file of shape {shape} must have {size_bytes:,} bytes of {dtype}, got "
            f"{len(data) - begin:,}: it is truncated or damaged"
        )
    flat = np.frombuffer(data, np.uint8)[begin:].view(dtype)
    return _as_image(flat.reshape(shape, order="F" if is_by_columns else "C"))


def read_npz(data: StoredBytes) -> Pixels:
    """Return the only array of an .npz file as an image; raise DecodeError if it has several or none."""
    try:
        with np.load(io.BytesIO(bytes(data)), allow_pickle=False) as arrays:
            names = list(arrays)
            if len(names) != 1:
                raise DecodeError(
                    f"an .npz file must have one array to be an image, got {names}: save each as a file"
                )
            array = arrays[names[0]]
    except (ValueError, OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(f"an .npz file must be one of NumPy's, got: {error}: save it again") from error
    _require_image(array.shape, array.dtype)
    return _as_image(array)


def as_npy(pixels: Pixels) -> bytes:
    """Return an image as an .npy file, (height, width) if it has one channel."""
    file = io.BytesIO()
    array = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    np.lib.format.write_array(file, np.ascontiguousarray(array), (1, 0), allow_pickle=False)
    return file.getvalue()


def _as_image(array: Pixels) -> Pixels:
    """Return an array with its channel axis, in the byte order of this machine."""
    return with_last_axis(array.astype(array.dtype.newbyteorder("="), copy=False))


def _require_image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not is_image_shape(shape) or dtype.name not in DTYPES:
        raise DecodeError(
            f"an array must be (height, width) or (height, width, channels), of at most {MOST_CHANNELS} "
            f"channels and of {', '.join(DTYPES)}, to be an image, got {dtype} {tuple(shape)}: convert it, "
            "or move the channels to the end"
        )

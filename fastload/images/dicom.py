"""Images of DICOM files, read by pydicom: the stored values, without rescaling or windowing."""

from __future__ import annotations

import io
from typing import Any

from fastload.errors import DecodeError, LibraryMissingError
from fastload.images.arrays import Pixels, StoredBytes, with_last_axis


def read_dicom(data: StoredBytes) -> Pixels:
    """Return the image of a DICOM file, uint8, uint16 or int16 (height, width, channels).

    Raises DecodeError for a file with several frames, and for one that pydicom cannot read.
    """
    try:
        import pydicom
    except ImportError as error:
        raise LibraryMissingError(
            "DICOM files are read by pydicom, which is not installed: pip install pydicom"
        ) from error
    try:
        dataset: Any = pydicom.dcmread(io.BytesIO(bytes(data)))
        frames = int(dataset.get("NumberOfFrames") or 1)
        if frames != 1:
            raise DecodeError(
                f"a DICOM file must have one frame to be an image, got {frames}: write each as a file"
            )
        pixels: Pixels = dataset.pixel_array
    except (MemoryError, DecodeError):
        raise
    except Exception as error:  # its readers raise anything on a damaged file
        raise DecodeError(
            f"a DICOM file must have an image that pydicom reads, got: {error}: the file is damaged, has no "
            "image, or is compressed in a way that needs another package of pydicom's documentation"
        ) from error
    return with_last_axis(pixels)

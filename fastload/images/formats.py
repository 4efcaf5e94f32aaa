"""Image formats, recognised by the first bytes of a file, and OpenCV's support for them."""

from __future__ import annotations

import importlib.util
import re
import struct
import tempfile
from pathlib import Path

HEAD_BYTES = 512
"""The bytes needed to recognise a file's format: as many as OpenCV itself reads, for AVIF."""

MOST_BYTES = (1 << 31) - 1
"""The largest file that can be decoded: OpenCV counts bytes with an int."""

_RAW = "camera raw"
_SIGNATURES = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "TIFF": (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"),  # the latter two are BigTIFF
    "JPEG 2000": (b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
    "Sun raster": (b"\x59\xa6\x6a\x95",),
    "PAM": (b"P7\nWIDTH",),
    "JPEG XL": (b"\x00\x00\x00\x0cJXL \r\n\x87\n", b"\xff\x0a"),
    "JPEG XR": (b"II\xbc\x01",),
    "Photoshop": (b"8BPS",),
    "QOI": (b"qoif",),
    "DDS": (b"DDS |",),
    "ICNS": (b"icns",),
    "ICO": (b"\x00\x00\x01\x00",),
    "GIMP": (b"gimp xcf",),
    _RAW: (b"FUJIFILMCCD-RAW", b"IIRO", b"IIU\x00", b"FOVb"),
    "FITS": (b"SIMPLE  =",),
    "PFM": (b"PF\n", b"Pf\n"),
    "Radiance HDR": (b"#?RADIANCE", b"#?RGBE"),
    "OpenEXR": (b"\x76\x2f\x31\x01",),
    "NumPy": (b"\x93NUMPY",),
}
NUMPY_FORMATS = ("NumPy", "NumPy archive")
"""Formats of arrays, which need not be images."""

# A zip archive, whose first entry has its name at byte 30 (APPNOTE 6.3.10, section 4.3.7).
_ZIP, _ZIP_NAME, _NPY = b"PK\x03\x04", 30, b".npy"

# The packages that read these, which OpenCV does not.
_PACKAGES = {"DICOM": "pydicom"}

# The sizes of BMP's headers, from OS/2's to Windows 98's: text files may begin with "BM" too.
_BMP_HEADERS = {12, 16, 40, 52, 56, 64, 108, 124}
_PNM = re.compile(rb"P[1-6]\s+(#[^\n]*\n\s*)*[0-9]+\s+(#[^\n]*\n\s*)*[0-9]+\s")

# ISO/IEC 23008-12 (HEIF): brands of files with images in HEVC; the first two leave the codec open.
_HEIF_BRANDS = {b"mif1", b"msf1", b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"}
_AVIF_BRANDS = {b"avif", b"avis"}

# By their content, most are TIFFs, of which OpenCV would read the thumbnail.
_RAW_SUFFIXES = frozenset({
    ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".kdc", ".mef", ".mos", ".mrw",
    ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f",
})  # fmt: skip

# Trying OpenCV takes 0.3 ms. Refusals are not kept: they may be due to damaged files.
_readable: set[str] = set()


def format_of(head: bytes, suffix: str = "") -> str | None:
    """Return the name of the image format of a file, or None if it is not an image.

    `head` is the file's first `HEAD_BYTES` bytes; without a suffix, such as `.nef`, camera raws cannot be
    distinguished from TIFFs.
    """
    if head[128:132] == b"DICM":  # after a preamble, which may be that of a TIFF (PS3.10, section 7.1)
        return "DICOM"
    found = next((name for name, starts in _SIGNATURES.items() if head.startswith(starts)), None)
    if found == "TIFF" and suffix.lower() in _RAW_SUFFIXES:
        return _RAW
    if found is not None:
        return found
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP"
    if head[4:8] == b"ftyp":
        return _iso_format(head)
    if head[:2] == b"BM" and len(head) >= 18 and struct.unpack_from("<I", head, 14)[0] in _BMP_HEADERS:
        return "BMP"
    if _PNM.match(head):
        return "PNM"
    if head.startswith(_ZIP) and head[_ZIP_NAME:][: int.from_bytes(head[26:28], "little")].endswith(_NPY):
        return "NumPy archive"
    return "SVG" if head.lstrip().startswith(b"<") and b"<svg" in head else None


def _iso_format(head: bytes) -> str | None:
    """Return the format of a file in ISO's media container, by its brands."""
    end = min(struct.unpack_from(">I", head)[0], len(head))
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, end - 3, 4))}
    if brands & _AVIF_BRANDS:
        return "AVIF"
    if b"crx " in brands:
        return _RAW
    return "HEIC" if brands & _HEIF_BRANDS else None


def unreadable_reason(format: str, head: bytes) -> str | None:
    """Return why images of a format cannot be read, or None if OpenCV or an installed package reads them.

    `format` is a result of `format_of`, `head` the first `HEAD_BYTES` bytes of a file of the format.
    """
    if format == _RAW:
        return f"{format}, of which OpenCV reads only previews"
    if (package := _PACKAGES.get(format)) is not None:
        is_installed = importlib.util.find_spec(package) is not None
        return None if is_installed else f"{format}, which {package} reads (pip install {package})"
    if format in NUMPY_FORMATS:
        return None
    if format not in _readable and _has_reader(head):
        _readable.add(format)
    return None if format in _readable else f"{format}, which OpenCV does not read here"


def _has_reader(head: bytes) -> bool:
    """Return True if OpenCV has a reader, which it chooses by the first bytes of a file."""
    from fastload.images.opencv import cv2  # listing a folder must work without OpenCV

    with tempfile.TemporaryDirectory(prefix="fastload-") as folder:
        file = Path(folder, "head")
        file.write_bytes(head)
        return bool(cv2.haveImageReader(str(file)))

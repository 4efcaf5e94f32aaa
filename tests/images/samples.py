"""Test images, and the tolerances of comparisons."""

import io
import subprocess

import cv2
import numpy as np
from hypothesis import strategies as st
from PIL import Image

# The largest difference of two pixels, in levels of 255, and the reason.
TOLERANCES = {
    "antialiased resize against PIL": 1,  # both round products of integers, in another order
    "luma against BT.601 in float": 1,  # rounded once more, to studio range
    "grey through NV12": 1,  # 219 levels of luma stand for 256 of grey
    "one colour through NV12": 2,  # the same, and 224 levels of chroma
    "CMYK against PIL": 1,  # both multiply by black, one rounds down
}

ODD_SIZES = [(1, 1), (1, 5000), (5000, 1), (2, 3), (17, 33), (64, 64), (75, 131)]


def photo(height: int, width: int, seed: int = 0, noise: int = 12) -> np.ndarray:
    """Make an RGB image with soft shapes and some grain, so that its JPEG is coded like a photo's."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 24 + 2, width // 24 + 2, 3), dtype=np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(int)
    grain = rng.integers(-noise, noise + 1, (height, width, 3))
    return np.clip(smooth + grain, 0, 255).astype(np.uint8)


def file_of(pixels: np.ndarray, file_format: str = "JPEG", mode: str | None = None, **options):
    """Encode pixels as a file with PIL, in one of its modes such as L, CMYK or P."""
    image = Image.fromarray(pixels)
    stream = io.BytesIO()
    image.convert(mode or image.mode).save(stream, file_format, **options)
    return stream.getvalue()


def exif(orientation: int, endian: str = "<") -> Image.Exif:
    """Return EXIF with an orientation between other entries."""
    block = Image.Exif()
    block.endian = endian
    block[0x010F], block[0x0112], block[0x0131] = "maker", orientation, "software"
    return block


def pil_rgb(data: bytes) -> np.ndarray:
    """Decode a file like PIL and torchvision's ImageFolder."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def rewritten(data: bytes, *options: str) -> bytes:
    """Return the output of jpegtran for a file."""
    return subprocess.run(["jpegtran", *options], input=data, stdout=subprocess.PIPE, check=True).stdout


@st.composite
def sizes(draw: st.DrawFn, largest: int = 160) -> tuple[int, int]:
    """Draw (height, width), from one pixel up, mostly not multiples of JPEG's blocks."""
    return draw(st.integers(1, largest)), draw(st.integers(1, largest))

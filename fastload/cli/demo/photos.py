"""Makes photo-like JPEG files, so that the demo needs neither a download nor the visitor's own images.

In natural images the amplitude falls as one over the frequency (Field 1987, "Relations between the
statistics of natural images and the response properties of cortical cells"): noise of that kind, with
a few sharp edges over it, costs a JPEG decoder what a photo costs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastload.images.decode import encode
from fastload.images.opencv import cv2
from fastload.system.cpus import usable_cpus

_Color: TypeAlias = "tuple[int, int, int]"
_Plane: TypeAlias = "NDArray[np.float32]"


@dataclass(frozen=True, slots=True)
class Scene:
    """What the photos of one class have in common: the mean colours of their two parts, RGB."""

    above: _Color
    below: _Color


# Near enough to each other that a small network needs some tens of steps to tell them apart.
SCENES = {
    "coast": Scene((126, 160, 196), (92, 134, 146)),
    "desert": Scene((166, 172, 178), (178, 146, 104)),
    "dusk": Scene((178, 134, 128), (92, 84, 102)),
    "forest": Scene((138, 156, 148), (84, 112, 74)),
    "meadow": Scene((146, 170, 186), (134, 148, 88)),
}

# The sides and proportions that most photos of ImageNet have.
_LONGER_SIDE = (400, 500)
_PROPORTIONS = (2 / 3, 3 / 4, 3 / 4, 3 / 4, 4 / 5, 1.0)
_JPEG_OPTIONS = (cv2.IMWRITE_JPEG_QUALITY, 92)

# Noise is made in squares of a power of two, which transform fastest, and then cut. Colour varies more
# slowly than brightness in photos too, which is why JPEG may store it at half the resolution.
_LUMA_SIDE, _CHROMA_SIDE = 512, 128
_LUMA_CONTRAST, _CHROMA_CONTRAST = 38.0, 10.0
_WORDS = ("CAFE", "HOTEL", "exit 7", "No. 12", "open", "taxi", "LIBRARY", "km 40")


def make_photos(folder: Path, count: int, seed: int, progress: Callable[[int, int], None]) -> dict[str, int]:
    """Writes photos as `folder/<class>/<number>.jpg`, the classes taking turns.

    Args:
        folder: Made where it does not exist.
        count: The number of photos.
        seed: Equal seeds make equal photos.
        progress: Called with how many of how many are written.

    Returns:
        The number of photos of each class.
    """
    scenes = list(SCENES)
    names = [scenes[index % len(scenes)] for index in range(count)]
    for name in {*names}:
        (folder / name).mkdir(parents=True, exist_ok=True)

    def write(index: int) -> None:
        photo = draw_photo(SCENES[names[index]], np.random.default_rng((seed, index)))
        path = folder / names[index] / f"{index:04d}.jpg"
        path.write_bytes(encode(photo, ".jpg", _JPEG_OPTIONS))

    # Threads will do: NumPy and OpenCV let go of the interpreter where the time goes. They end here,
    # before the loaders fork.
    threads_before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with ThreadPoolExecutor(usable_cpus()) as pool:
            for done, _ in enumerate(pool.map(write, range(count)), start=1):
                progress(done, count)
    finally:
        cv2.setNumThreads(threads_before)
    return {name: names.count(name) for name in SCENES if name in names}


def draw_photo(scene: Scene, random: np.random.Generator) -> NDArray[np.uint8]:
    """Draws one photo.

    Args:
        scene: What it shows.
        random: Everything else about it.

    Returns:
        RGB, uint8, (height, width, 3).
    """
    longer = int(random.integers(*_LONGER_SIDE, endpoint=True))
    shorter = round(longer * random.choice(_PROPORTIONS))
    height, width = (longer, shorter) if random.random() < 0.3 else (shorter, longer)
    drawing = _landscape(scene, height, width, random)
    for _ in range(random.integers(2, 7)):
        _draw_thing(drawing, random)
    if random.random() < 0.4:
        _draw_words(drawing, random)
    # Over the things as well: nothing in a photo is of one colour.
    canvas = drawing.astype(np.float32)
    canvas += _LUMA_CONTRAST * _noise(_LUMA_SIDE, random)[:height, :width, None]
    for channel, weight in ((0, 1.0), (2, -1.0)):
        chroma = cv2.resize(_noise(_CHROMA_SIDE, random), (_LUMA_SIDE, _LUMA_SIDE))
        canvas[:, :, channel] += weight * _CHROMA_CONTRAST * chroma[:height, :width]
    return canvas.clip(0, 255).astype(np.uint8)


def _landscape(scene: Scene, height: int, width: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """Two parts that meet at a soft, sloping horizon, under a light of any colour."""
    rows = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    slope = np.linspace(-0.5, 0.5, width, dtype=np.float32) * float(random.normal(0, 0.2))
    share_below = 1 / (1 + np.exp((float(random.uniform(0.3, 0.7)) + slope - rows) * 25))
    light = random.normal(1, 0.12) + random.normal(0, 0.05, 3)
    above, below = (np.array((scene.above, scene.below)) * light).astype(np.float32)
    blend = above + share_below[:, :, None] * (below - above)
    return np.asarray(blend.clip(0, 255), np.uint8)


def _draw_thing(canvas: NDArray[np.uint8], random: np.random.Generator) -> None:
    height, width = canvas.shape[:2]
    x, y = int(random.integers(width)), int(random.integers(height))
    color = tuple(random.uniform(10, 245, 3).tolist())
    radius = int(random.integers(8, 60))
    kind = random.integers(3)
    if kind == 0:
        cv2.circle(canvas, (x, y), radius, color, cv2.FILLED, cv2.LINE_AA)
    elif kind == 1:
        end = (x + radius, y + int(random.integers(8, 90)))
        cv2.rectangle(canvas, (x, y), end, color, cv2.FILLED, cv2.LINE_AA)
    else:
        corners = np.array((x, y)) + random.integers(-radius, radius, (3, 2))
        cv2.fillConvexPoly(canvas, corners.astype(np.int32), color, cv2.LINE_AA)


def _draw_words(canvas: NDArray[np.uint8], random: np.random.Generator) -> None:
    height, width = canvas.shape[:2]
    place = int(random.integers(width // 2)), int(random.integers(30, height))
    color = (245.0,) * 3 if random.random() < 0.5 else (15.0,) * 3
    scale = float(random.uniform(0.6, 1.6))
    word = str(random.choice(_WORDS))
    cv2.putText(canvas, word, place, cv2.FONT_HERSHEY_SIMPLEX, scale, color, 2, cv2.LINE_AA)


def _noise(side: int, random: np.random.Generator) -> _Plane:
    """Noise whose amplitude is one over the frequency: (side, side), mean 0, deviation 1."""
    parts = random.standard_normal((side, side // 2 + 1, 2), np.float32)
    spectrum = parts.view(np.complex64)[:, :, 0] * _falloff(side)
    noise = np.fft.irfft2(spectrum, s=(side, side)).astype(np.float32)
    return np.asarray(noise / noise.std(), np.float32)


@functools.cache
def _falloff(side: int) -> _Plane:
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None])
    frequency[0, 0] = np.inf  # no mean of its own
    return np.asarray(1 / frequency, np.float32)

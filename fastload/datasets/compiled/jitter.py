"""Colour changes of PIL images by OpenCV, as PIL does them: with its integers, and its truncation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2

# PIL's weights of red, green and blue in a grey level, and what it adds to round it; exact in float32.
_GREY = np.array([[19595, 38470, 7471, 32768]], np.float32) / 65536


# Both compute in float32: their results differ by less than 1e-4, measured for all colours.
_BETWEEN = 0.4995


# Pixels of a band: its floats take 200 KB. Saturation at 320x320 took 2.1 times as long in one piece.
_BAND = 1 << 14


def jittered(pixels: Pixels, order: Sequence[int], amounts: Sequence[float | None]) -> Pixels:
    """Apply the changes of torchvision's ColorJitter to a PIL image, RGB or grey, with equal pixels.

    Args:
        pixels: (height, width, 1 or 3), uint8.
        order: The order of the four changes.
        amounts: Factors of brightness, contrast and saturation, and the shift of the hue; None: no change.
    """
    for change in order:
        amount = amounts[change]
        if amount is not None and (change < 2 or pixels.shape[2] == 3):
            pixels = _CHANGES[change](pixels, amount)
    return pixels


def _in_bands(change: Callable[[Pixels, float], Pixels]) -> Callable[[Pixels, float], Pixels]:
    """Return a function that changes an image in bands of rows, whose floats fit the processor's cache."""

    def changed(pixels: Pixels, amount: float) -> Pixels:
        bands = _bands(pixels)
        return (
            change(pixels, amount)
            if len(bands) == 1
            else np.concatenate([change(band, amount) for band in bands])
        )

    return changed


def _bands(pixels: Pixels) -> Sequence[Pixels]:
    height, width = pixels.shape[:2]
    rows = max(1, _BAND // width)
    return [pixels[top : top + rows] for top in range(0, height, rows)]


def _brightness(pixels: Pixels, factor: float) -> Pixels:
    return _looked_up(pixels, 0, factor)


def _contrast(pixels: Pixels, factor: float) -> Pixels:
    total = sum(cv2.sumElems(_grey(band))[0] for band in _bands(pixels))
    return _looked_up(pixels, int(total / (pixels.shape[0] * pixels.shape[1]) + 0.5), factor)


def _saturation(pixels: Pixels, factor: float) -> Pixels:
    # In float32, each operation rounded, as PIL's blend, which leaves grey pixels as they are.
    grey = cv2.cvtColor(_grey(pixels), cv2.COLOR_GRAY2RGB)
    difference = cv2.subtract(pixels, grey, dtype=cv2.CV_32F)
    blended = np.multiply(difference, np.float32(factor), out=difference)
    np.add(blended, grey, out=blended)
    return np.clip(blended, 0, 255, out=blended).astype(np.uint8)


def _grey(pixels: Pixels) -> Pixels:
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    return np.asarray(cv2.transform(pixels.astype(np.float32), _GREY)).astype(np.uint8)


def _looked_up(pixels: Pixels, level: int, factor: float) -> Pixels:
    """Return a blend of the image with one level, as PIL's `Image.blend`."""
    levels = np.arange(256, dtype=np.float32)
    blended = np.clip(level + np.float32(factor) * (levels - level), 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(pixels, blended)).reshape(pixels.shape)


def _hue(pixels: Pixels, shift: float) -> Pixels:
    """Return the image with another hue, which PIL rounds to a byte, as it does the saturation."""
    hue, saturation, value = _hsv(pixels)
    hue += np.int32(shift * 255).astype(np.uint8)
    floats = (plane.astype(np.float32) * scale for plane, scale in ((hue, 360 / 255), (saturation, 1 / 255)))
    exact = np.asarray(cv2.cvtColor(cv2.merge([*floats, value.astype(np.float32)]), cv2.COLOR_HSV2RGB))
    rgb = np.asarray(cv2.convertScaleAbs(exact))
    # PIL may round what lies between two levels the other way: a few pixels, which it converts itself.
    between = np.flatnonzero(np.abs(exact - rgb) > _BETWEEN) // 3
    if len(between):
        parts = [plane.reshape(-1)[between].astype(np.uint8) for plane in (hue, saturation, value)]
        image = PIL.Image.merge("HSV", [PIL.Image.fromarray(part[None]) for part in parts])
        rgb.reshape(-1, 3)[between] = np.asarray(image.convert("RGB"))[0]
    return rgb


def _hsv(pixels: Pixels) -> tuple[Pixels, NDArray[np.float32], Pixels]:
    """Return the hue, as PIL rounds it, the saturation (0 to 255) and the value of each pixel."""
    red, green, blue = cv2.split(pixels)
    value = cv2.max(cv2.max(red, green), blue)
    least = cv2.min(cv2.min(red, green), blue)
    is_red = cv2.compare(red, value, cv2.CMP_EQ)
    is_green = cv2.compare(green, value, cv2.CMP_EQ)

    def chosen(of_red: Pixels, of_green: Pixels, of_blue: Pixels) -> Pixels:
        """Return the values of the greatest channel, of equal ones the first."""
        result = of_blue.copy()
        cv2.copyTo(of_green, is_green, result)
        return np.asarray(cv2.copyTo(of_red, is_red, result))

    # One of the other two channels is the least; the hue depends on the distance of the one in the middle.
    first = cv2.subtract(chosen(green, blue, red), least)
    second = cv2.subtract(chosen(blue, red, green), least)
    sector = chosen(*(np.full_like(red, 2 * number) for number in range(3)))
    sector = cv2.add(sector, np.minimum(second, 1))
    chroma = cv2.subtract(value, least)
    parts = [chroma, cv2.max(first, second), sector, np.zeros_like(red)]
    index = cv2.merge(parts).view("<u4")[:, :, 0]
    saturation = cv2.divide(chroma, value, scale=255, dtype=cv2.CV_32F)
    return np.take(_hues(), index), np.floor(saturation + np.float32(1e-4)), value


@functools.cache
def _hues() -> Pixels:
    """Return PIL's hues, flat: (sector and the greater of the other channels, middle - least, chroma)."""
    chroma = np.maximum(np.arange(256, dtype=np.float32), 1)
    # In the precision of PIL's C code: quotients and results in float32, sums in float64.
    middle = np.float64(np.subtract.outer(chroma, np.arange(256, dtype=np.float32)).T / chroma)
    tables = []
    for sector in (0.0, 2.0, 4.0):
        for hue in (sector + 1 - middle, sector + middle - 1):
            part = np.fmod(np.float64(np.float32(hue)) / 6 + 1, 1)
            tables.append(np.clip(np.float64(np.float32(part)) * 255, 0, 255).astype(np.uint8))
    return np.stack(tables).reshape(-1)


_CHANGES = (_brightness, _contrast, _in_bands(_saturation), _in_bands(_hue))

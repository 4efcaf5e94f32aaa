"""Pillow's side: the reference for every picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from fastload.bench import operations as do
from fastload.bench.sides.side import Side, Way, normalised_tensor, unit_tensor

_Filter = Image.Resampling
_FILTERS = {
    "nearest": _Filter.NEAREST,
    "box": _Filter.BOX,
    "bilinear": _Filter.BILINEAR,
    "bicubic": _Filter.BICUBIC,
    "lanczos": _Filter.LANCZOS,
}


def make(size: int) -> Side:
    """Makes Pillow's ways, with crops and resizes of `size` × `size` pixels."""
    resizes = [
        Way(f"{kind}-{name}", f"Image.resize({name.upper()})", _resize(size, how))
        for name, how in _FILTERS.items()
        for kind in ("shrink", "enlarge")
        if (kind, name) != ("enlarge", "box")
    ]
    return Side(
        "PIL",
        Image.fromarray,
        (
            Way("read", "Image.open, convert", _open),
            Way("decode", "Image.open, convert", lambda data: _open(io.BytesIO(data))),
            Way("decode-half", "Image.draft", _open_half),
            Way("to-rgb", "Image.frombytes(BGR)", _from_bgr),
            *resizes,
            Way("crop", "Image.crop", lambda image: _middle(image, size)),
            Way("resized-crop", "Image.crop, resize(BILINEAR)", lambda image: _resized_crop(image, size)),
            Way("pad", "ImageOps.expand", lambda image: ImageOps.expand(image, do.PAD)),
            Way("flip-horizontal", "Image.transpose", lambda i: i.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
            Way("flip-vertical", "Image.transpose", lambda i: i.transpose(Image.Transpose.FLIP_TOP_BOTTOM)),
            Way("rotate", "Image.rotate", lambda image: image.rotate(do.ANGLE, _Filter.BILINEAR)),
            Way("affine", "Image.transform", _affine),
            Way("brightness", "ImageEnhance.Brightness", _brighten),
            Way("contrast", "ImageEnhance.Contrast", lambda i: ImageEnhance.Contrast(i).enhance(do.CONTRAST)),
            Way("saturation", "ImageEnhance.Color", lambda i: ImageEnhance.Color(i).enhance(do.SATURATION)),
            Way("hue", "Image.convert(HSV)", _turn_hue),
            Way("jitter", "ImageEnhance, HSV", lambda image: _turn_hue(_jitter(image))),
            Way("grey", "Image.convert(L)", lambda image: image.convert("L")),
            Way(
                "blur",
                "ImageFilter.GaussianBlur",
                lambda i: i.filter(ImageFilter.GaussianBlur(do.BLUR_SIGMA)),
            ),
            Way("to-tensor", "NumPy, torch", lambda image: unit_tensor(np.array(image))),
            Way("normalise", "NumPy, torch", lambda image: normalised_tensor(np.array(image))),
            Way("training", "Pillow, torch", lambda sample: _train(sample, size, False)),
            Way("training-jitter", "Pillow, torch", lambda sample: _train(sample, size, True)),
            Way("evaluation", "Pillow, torch", lambda sample: _evaluate(sample, size)),
        ),
    )


def _resize(size: int, how: Image.Resampling) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.resize((size, size), how)


def _open(file: Any) -> Image.Image:
    return Image.open(file).convert("RGB")


def _open_half(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    full = image.size
    image.draft("RGB", (full[0] // 2, full[1] // 2))
    # Only the JPEG decoder can draft.
    return image.convert("RGB") if image.size != full else image.convert("RGB").reduce(2)


def _from_bgr(pixels: Any) -> Image.Image:
    height, width = pixels.shape[:2]
    return Image.frombytes("RGB", (width, height), pixels, "raw", "BGR")


def _middle(image: Image.Image, size: int) -> Image.Image:
    top, left = do.middle((image.height, image.width), size)
    return image.crop((left, top, left + size, top + size))


def _resized_crop(image: Image.Image, size: int) -> Image.Image:
    top, left, height, width = do.middle_half((image.height, image.width))
    return image.crop((left, top, left + width, top + height)).resize((size, size), _Filter.BILINEAR)


def _affine(image: Image.Image) -> Image.Image:
    matrix = do.affine_matrix((image.height, image.width), do.AFFINE_ANGLE, do.AFFINE_SCALE)
    backwards = tuple(do.inverse(matrix).ravel())
    return image.transform(image.size, Image.Transform.AFFINE, backwards, _Filter.BILINEAR)


def _brighten(image: Image.Image) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(do.BRIGHTNESS)


def _jitter(image: Image.Image) -> Image.Image:
    contrasted = ImageEnhance.Contrast(_brighten(image)).enhance(do.CONTRAST)
    return ImageEnhance.Color(contrasted).enhance(do.SATURATION)


def _turn_hue(image: Image.Image) -> Image.Image:
    """As torchvision does for PIL images."""
    hue, saturation, value = image.convert("HSV").split()
    turned = np.array(hue) + np.uint8(do.HUE * 255)
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def _train(sample: do.Sample, size: int, has_jitter: bool) -> Any:
    top, left, height, width, is_flipped = sample.box
    image = _open(io.BytesIO(sample.data)).crop((left, top, left + width, top + height))
    image = image.resize((size, size), _Filter.BILINEAR)
    if is_flipped:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return normalised_tensor(np.array(_jitter(image) if has_jitter else image))


def _evaluate(sample: do.Sample, size: int) -> Any:
    image = _open(io.BytesIO(sample.data))
    height, width = do.evaluation_size((image.height, image.width), size)
    image = image.resize((width, height), _Filter.BILINEAR)
    return normalised_tensor(np.array(_middle(image, size)))

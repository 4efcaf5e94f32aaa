"""Pillow, the reference for the pixels of every operation."""

from __future__ import annotations

import io

import numpy as np
import PIL
from PIL import Image, ImageEnhance, ImageFilter, ImageOps, features

from fastload.bench import _operations as op
from fastload.bench._peers import Call, Peer, Steps, composed, normalised_tensor

_BILINEAR = Image.Resampling.BILINEAR
_ENHANCERS = {"brightness": "Brightness", "contrast": "Contrast", "saturation": "Color"}


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""

    def resize(operation: str) -> Call:
        name = operation.partition("-")[2].upper()
        how = Image.Resampling[name]
        return operation, f"Image.resize({name})", lambda image: image.resize((size, size), how)

    def enhance(operation: str) -> Call:
        enhancer, factor = getattr(ImageEnhance, _ENHANCERS[operation]), op.COLOURS[operation]
        return operation, f"ImageEnhance.{enhancer.__name__}", lambda image: enhancer(image).enhance(factor)

    steps = Steps(
        decode=decode,
        crop=lambda image, top, left, height, width: image.crop((left, top, left + width, top + height)),
        resize=lambda image, height, width: image.resize((width, height), _BILINEAR),
        flip=lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        normalise=lambda image: normalised_tensor(np.array(image)),
        size_of=lambda image: (image.height, image.width),
    )
    calls = [
        ("decode", "Image.open, convert", steps.decode),
        ("decode-half", "Image.draft", _open_half),
        *(resize(operation) for operation in op.RESIZES),
        ("pad", "ImageOps.expand", lambda image: ImageOps.expand(image, op.PAD)),
        ("flip", "Image.transpose", steps.flip),
        ("rotate", "Image.rotate", lambda image: image.rotate(op.ANGLE, _BILINEAR)),
        *(enhance(operation) for operation in _ENHANCERS),
        ("hue", "Image.convert(HSV)", _shift_hue),
        ("grey", "Image.convert(L)", lambda image: image.convert("L")),
        (
            "blur",
            "ImageFilter.GaussianBlur",
            lambda image: image.filter(ImageFilter.GaussianBlur(op.BLUR_SIGMA)),
        ),
        ("normalise", "NumPy, torch", steps.normalise),
        *composed(steps, size, crop="Image.crop", resized_crop="Image.crop, resize(BILINEAR)"),
        *composed(steps, size, training="Pillow, torch", evaluation="Pillow, torch"),
    ]
    turbo = features.version_feature("libjpeg_turbo")
    return Peer(
        "PIL",
        PIL.__version__,
        calls,
        Image.fromarray,
        jpeg=f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version_codec('jpg')}",
        # Pillow-SIMD marks its releases with "post".
        simd="Pillow-SIMD's" if "post" in PIL.__version__ else "libjpeg-turbo's only" if turbo else "none",
    )


def decode(data: bytes) -> Image.Image:
    """Return the decoded image."""
    return Image.open(io.BytesIO(data)).convert("RGB")


def _open_half(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    full = image.size
    image.draft("RGB", (full[0] // 2, full[1] // 2))
    # Only the JPEG decoder supports draft.
    return image.convert("RGB") if image.size != full else image.convert("RGB").reduce(2)


def _shift_hue(image: Image.Image) -> Image.Image:
    # The same as torchvision for PIL images.
    hue, saturation, value = image.convert("HSV").split()
    shifted = np.array(hue) + np.uint8(op.HUE * 255)
    return Image.merge("HSV", (Image.fromarray(shifted), saturation, value)).convert("RGB")

"""Pillow, the reference for the pixels of every operation."""

from __future__ import annotations

import io

import numpy as np
import PIL
from PIL import Image, ImageEnhance, features

from fastload.bench import _operations as op
from fastload.bench._peers import Peer, Run, Steps, detection, normalised_tensor


def decode(data: bytes) -> Image.Image:
    """Return the decoded image."""
    return Image.open(io.BytesIO(data)).convert("RGB")


STEPS = Steps(
    decode=decode,
    crop=lambda image, top, left, height, width: image.crop((left, top, left + width, top + height)),
    resize=lambda image, height, width: image.resize((width, height), Image.Resampling.BILINEAR),
    flip=lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    normalise=lambda image: normalised_tensor(np.array(image)),
    size_of=lambda image: (image.height, image.width),
)


def make() -> Peer:
    """Return the peer."""
    calls: list[tuple[str, str, Run]] = [
        ("decode", "Image.open, convert", decode),
        ("resize", "Image.resize(BILINEAR)", STEPS.resized),
        ("resized-crop", "Image.crop, resize(BILINEAR)", STEPS.resized_crop),
        ("flip", "Image.transpose", STEPS.flip),
        ("jitter", "ImageEnhance, HSV", _jitter),
        ("normalise", "NumPy, torch", STEPS.normalise),
        ("detection", "Pillow", detection(STEPS, _pad)),
        ("training", "Pillow", STEPS.training),
    ]
    turbo = features.version_feature("libjpeg_turbo")
    return Peer(
        "PIL",
        PIL.__version__,
        calls,
        Image.fromarray,
        jpeg=f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version_codec('jpg')}",
    )


def _pad(image: Image.Image, top: int, left: int) -> Image.Image:
    sheet = Image.new("RGB", (op.DETECTION_SIDE,) * 2, (op.PADDING,) * 3)
    sheet.paste(image, (left, top))
    return sheet


def _jitter(image: Image.Image) -> Image.Image:
    image = ImageEnhance.Brightness(image).enhance(op.BRIGHTNESS)
    image = ImageEnhance.Contrast(image).enhance(op.CONTRAST)
    image = ImageEnhance.Color(image).enhance(op.SATURATION)
    # The same as torchvision for PIL images.
    hue, saturation, value = image.convert("HSV").split()
    shifted = np.array(hue) + np.uint8(op.HUE * 255)
    return Image.merge("HSV", (Image.fromarray(shifted), saturation, value)).convert("RGB")

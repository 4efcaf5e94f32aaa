"""Pillow, the reference for the pixels of every operation."""

from __future__ import annotations

import io

import numpy as np
import PIL
from PIL import Image, ImageEnhance, ImageFilter, ImageOps, features

from fastload.bench import operations as op
from fastload.bench.peers.peer import Call, Peer, Steps, normalised_tensor, pipelines

_FILTERS = {
    name.lower(): Image.Resampling[name] for name in ("NEAREST", "BOX", "BILINEAR", "BICUBIC", "LANCZOS")
}
_BILINEAR = Image.Resampling.BILINEAR


def make(size: int) -> Peer:
    """Return the peer for crops and resizes of `size` × `size` pixels."""
    steps = Steps(
        decode=lambda data: Image.open(io.BytesIO(data)).convert("RGB"),
        size_of=lambda image: (image.height, image.width),
        crop=_crop,
        resize=lambda image, height, width: image.resize((width, height), _BILINEAR),
        flip=lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        normalise=lambda image: normalised_tensor(np.array(image)),
    )
    resizes = {
        f"{kind}-{name}": {f"Image.resize({name.upper()})": lambda i, how=how: i.resize((size, size), how)}
        for name, how in _FILTERS.items()
        for kind in ("shrink", "enlarge")
        if (kind, name) != ("enlarge", "box")
    }

    def crop_middle(image: Image.Image) -> Image.Image:
        return _crop(image, *op.middle(steps.size_of(image), size), size, size)

    def resized_crop(image: Image.Image) -> Image.Image:
        return steps.resize(_crop(image, *op.middle_half(steps.size_of(image))), size, size)  # type: ignore[no-any-return]

    def enhance(name: str, factor: float) -> dict[str, Call]:
        enhancer = getattr(ImageEnhance, name)
        return {f"ImageEnhance.{name}": lambda image: enhancer(image).enhance(factor)}

    turbo = features.version_feature("libjpeg_turbo")
    return Peer(
        "PIL",
        PIL.__version__,
        Image.fromarray,
        {
            "decode": {"Image.open, convert": steps.decode},
            "decode-half": {"Image.draft": _open_half},
            **resizes,
            "crop": {"Image.crop": crop_middle},
            "resized-crop": {"Image.crop, resize(BILINEAR)": resized_crop},
            "pad": {"ImageOps.expand": lambda image: ImageOps.expand(image, op.PAD)},
            "flip": {"Image.transpose": steps.flip},
            "rotate": {"Image.rotate": lambda image: image.rotate(op.ANGLE, _BILINEAR)},
            "brightness": {
                "ImageEnhance.Brightness": lambda i: ImageEnhance.Brightness(i).enhance(op.BRIGHTNESS)
            },
            "contrast": {"ImageEnhance.Contrast": lambda i: ImageEnhance.Contrast(i).enhance(op.CONTRAST)},
            "saturation": {"ImageEnhance.Color": lambda i: ImageEnhance.Color(i).enhance(op.SATURATION)},
            "hue": {"Image.convert(HSV)": _shift_hue},
            "grey": {"Image.convert(L)": lambda image: image.convert("L")},
            "blur": {"ImageFilter.GaussianBlur": lambda i: i.filter(ImageFilter.GaussianBlur(op.BLUR_SIGMA))},
            "normalise": {"NumPy, torch": steps.normalise},
            **{key: {"Pillow, torch": run} for key, run in pipelines(steps, size).items()},
        },
        jpeg=f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version_codec('jpg')}",
        # Pillow-SIMD marks its releases with "post".
        simd="Pillow-SIMD's" if "post" in PIL.__version__ else "libjpeg-turbo's only" if turbo else "none",
    )


def _open_half(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    full = image.size
    image.draft("RGB", (full[0] // 2, full[1] // 2))
    # Only the JPEG decoder supports draft.
    return image.convert("RGB") if image.size != full else image.convert("RGB").reduce(2)


def _crop(image: Image.Image, top: int, left: int, height: int, width: int) -> Image.Image:
    return image.crop((left, top, left + width, top + height))


def _shift_hue(image: Image.Image) -> Image.Image:
    # The same as torchvision for PIL images.
    hue, saturation, value = image.convert("HSV").split()
    shifted = np.array(hue) + np.uint8(op.HUE * 255)
    return Image.merge("HSV", (Image.fromarray(shifted), saturation, value)).convert("RGB")

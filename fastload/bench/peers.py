"""Libraries that are compared; Pillow, OpenCV and fastload always are."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, features

import fastload.transforms as T
from fastload._version import __version__
from fastload.bench import operations as op
from fastload.images.decode import decode
from fastload.images.opencv import cv2
from fastload.images.resize import resize

Picture: TypeAlias = Any
"""A library's own kind of image."""

Run: TypeAlias = "Callable[[Any], Picture]"

_MEAN, _STD = torch.tensor(op.MEAN)[:, None, None], torch.tensor(op.STD)[:, None, None]
_MEAN_LEVELS = tuple(255 * value for value in op.MEAN)


@dataclass(frozen=True, slots=True)
class Steps:
    """Functions of a library from which its pipelines are made; sizes and boxes are in pixels.

    `crop(image, top, left, height, width)`; `resize(image, height, width)`; `size_of(image)` returns
    (height, width).
    """

    decode: Callable[[bytes], Picture]
    crop: Callable[[Picture, int, int, int, int], Picture]
    resize: Callable[[Picture, int, int], Picture]
    flip: Run
    normalise: Run
    size_of: Callable[[Picture], tuple[int, int]] = lambda pixels: pixels.shape[:2]

    def resized(self, image: Picture) -> Picture:
        """Resize an image to the side of a training image."""
        return self.resize(image, op.IMAGE_SIDE, op.IMAGE_SIDE)

    def resized_crop(self, image: Picture) -> Picture:
        """Crop the middle half and resize it."""
        return self.resized(self.crop(image, *op.middle_half(self.size_of(image))))

    def augmented(self, image: Picture, box: op.DrawnCrop) -> Picture:
        """Crop, resize and perhaps flip an image."""
        image = self.resized(self.crop(image, *box[:4]))
        return self.flip(image) if box.is_flipped else image

    def training(self, sample: op.Sample) -> Picture:
        """Return a training sample: decoded, cropped, resized, perhaps flipped, normalised."""
        return self.normalise(self.augmented(self.decode(sample.data), sample.box))


def crop_pixels(pixels: Picture, top: int, left: int, height: int, width: int) -> Picture:
    """Return a view of a part of an array (height, width, channels)."""
    return pixels[top : top + height, left : left + width]


def normalised_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Return torchvision's ToTensor and Normalize of pixels: float32, (3, height, width)."""
    tensor = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
    return tensor.to(torch.float32).div_(255).sub_(_MEAN).div_(_STD)


def float_tensor(image: object) -> torch.Tensor:
    """Return torchvision's ToTensor of a PIL image or an array: float32 of 0…1, (3, height, width)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().to(torch.float32).div_(255)


def detection(steps: Steps, pad: Callable[[Picture, int, int], Picture], to_float: Run = float_tensor) -> Run:
    """Return the pipeline of a detector: decode, op.letterbox, a float tensor of 0…1.

    `pad(image, top, left)` places an image on a grey square.
    """

    def run(data: bytes) -> Picture:
        image = steps.decode(data)
        height, width, top, left = op.letterbox(steps.size_of(image))
        return to_float(pad(steps.resize(image, height, width), top, left))

    return run


@dataclass(frozen=True, slots=True)
class Peer:
    """A library and its calls: the key of an operation, the name in tables, and the function.

    `from_pixels` converts uint8 RGB pixels (height, width, 3) into the library's own kind of image. `jpeg`
    names its JPEG decoder.
    """

    library: str
    version: str
    calls: Sequence[tuple[str, str, Run]]
    from_pixels: Run = np.ascontiguousarray
    jpeg: str = ""

    def calls_for(self, operation: str) -> list[tuple[str, Run]]:
        """Return the names and functions of an operation's calls."""
        return [(name, run) for key, name, run in self.calls if key == operation]


def decode_by_pil(data: bytes) -> Image.Image:
    """Return the decoded image."""
    return Image.open(io.BytesIO(data)).convert("RGB")


PIL_STEPS = Steps(
    decode=decode_by_pil,
    crop=lambda image, top, left, height, width: image.crop((left, top, left + width, top + height)),
    resize=lambda image, height, width: image.resize((width, height), Image.Resampling.BILINEAR),
    flip=lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    normalise=lambda image: normalised_tensor(np.array(image)),
    size_of=lambda image: (image.height, image.width),
)


def pil_peer() -> Peer:
    """Return Pillow, the reference for the pixels of every operation."""
    calls: list[tuple[str, str, Run]] = [
        ("decode", "Image.open, convert", decode_by_pil),
        ("resize", "Image.resize(BILINEAR)", PIL_STEPS.resized),
        ("resized-crop", "Image.crop, resize(BILINEAR)", PIL_STEPS.resized_crop),
        ("flip", "Image.transpose", PIL_STEPS.flip),
        ("jitter", "ImageEnhance, HSV", _jitter_by_pil),
        ("normalise", "NumPy, torch", PIL_STEPS.normalise),
        ("detection", "Pillow", detection(PIL_STEPS, _pad_by_pil)),
        ("training", "Pillow", PIL_STEPS.training),
    ]
    turbo = features.version_feature("libjpeg_turbo")
    jpeg = f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version_codec('jpg')}"
    return Peer("PIL", PIL.__version__, calls, Image.fromarray, jpeg)


def _pad_by_pil(image: Image.Image, top: int, left: int) -> Image.Image:
    sheet = Image.new("RGB", (op.DETECTION_SIDE,) * 2, (op.PADDING,) * 3)
    sheet.paste(image, (left, top))
    return sheet


def _jitter_by_pil(image: Image.Image) -> Image.Image:
    image = ImageEnhance.Brightness(image).enhance(op.BRIGHTNESS)
    image = ImageEnhance.Contrast(image).enhance(op.CONTRAST)
    image = ImageEnhance.Color(image).enhance(op.SATURATION)
    # The same as torchvision for PIL images.
    hue, saturation, value = image.convert("HSV").split()
    shifted = np.array(hue) + np.uint8(op.HUE * 255)
    return Image.merge("HSV", (Image.fromarray(shifted), saturation, value)).convert("RGB")


def opencv_peer() -> Peer:
    """Return OpenCV on NumPy arrays, with torch for tensors."""
    linear, area = _steps("INTER_LINEAR"), _steps("INTER_AREA")
    calls: list[tuple[str, str, Run]] = [
        ("decode", "imdecode(COLOR_RGB)", linear.decode),
        ("decode", "imdecode, cvtColor", lambda data: cv2.cvtColor(_decode(data), cv2.COLOR_BGR2RGB)),
        ("resize", "INTER_LINEAR", linear.resized),
        ("resize", "INTER_AREA", area.resized),
        ("resized-crop", "INTER_LINEAR", linear.resized_crop),
        ("resized-crop", "INTER_AREA", area.resized_crop),
        ("flip", "flip", linear.flip),
        ("jitter", "convertScaleAbs, cvtColor, addWeighted", _jitter),
        ("normalise", "torch", normalised_tensor),
        ("normalise", "dnn.blobFromImage, torch", _blob),
        ("detection", "INTER_LINEAR", detection(linear, pad)),
        ("training", "INTER_LINEAR", linear.training),
        ("training", "INTER_AREA", area.training),
    ]
    return Peer("OpenCV", cv2.__version__, calls, jpeg=_jpeg())


def _steps(flag: str) -> Steps:
    return steps_with(lambda data: _decode(data, cv2.IMREAD_COLOR_RGB), flag)


def steps_with(decode: Callable[[bytes], Picture], flag: str = "INTER_LINEAR") -> Steps:
    """Return OpenCV's steps after any decoder, resizing with the interpolation of that name."""
    how = getattr(cv2, flag)
    return Steps(
        decode=decode,
        crop=crop_pixels,
        resize=lambda pixels, height, width: cv2.resize(pixels, (width, height), interpolation=how),
        flip=lambda pixels: cv2.flip(pixels, 1),
        normalise=normalised_tensor,
    )


def _decode(data: bytes, flags: int = cv2.IMREAD_COLOR) -> Picture:
    return cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)


def pad(pixels: Picture, top: int, left: int) -> Picture:
    """Place an image on a grey square."""
    bottom, right = (op.DETECTION_SIDE - each for each in (top + pixels.shape[0], left + pixels.shape[1]))
    return cv2.copyMakeBorder(pixels, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(op.PADDING,) * 3)


def _jitter(pixels: Picture) -> Picture:
    pixels = cv2.convertScaleAbs(pixels, alpha=op.BRIGHTNESS)
    mean = round(cv2.mean(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))[0])
    pixels = cv2.convertScaleAbs(pixels, alpha=op.CONTRAST, beta=(1 - op.CONTRAST) * mean)
    grey = cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    pixels = cv2.addWeighted(pixels, op.SATURATION, grey, 1 - op.SATURATION, 0)
    hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV_FULL)
    hsv[:, :, 0] += np.uint8(op.HUE * 255)  # wraps around, as the circle does
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


def _blob(pixels: Picture) -> torch.Tensor:
    return torch.from_numpy(cv2.dnn.blobFromImage(pixels, 1 / 255, mean=_MEAN_LEVELS)[0]).div_(_STD)


def _jpeg() -> str:
    found = re.search(r"^\s*JPEG:\s*(.+)$", cv2.getBuildInformation(), re.MULTILINE)
    library = found[1].strip() if found else "none"
    turbo = re.search(r"libjpeg-turbo \(ver ([\d.]+)", library)
    return f"libjpeg-turbo {turbo[1]}" if turbo else library


def fastload_peer() -> Peer:
    """Return the functions and transforms that fastload's datasets apply to an image."""
    # One after the other, because a ColorJitter of all four applies them in random order.
    strengths = {
        "brightness": op.BRIGHTNESS,
        "contrast": op.CONTRAST,
        "saturation": op.SATURATION,
        "hue": op.HUE,
    }
    jitter = T.Compose([T.ColorJitter(**{name: (value,) * 2}) for name, value in strengths.items()])
    to_float = T.ToDtype(torch.float32, scale=True)
    letterbox = T.LetterBox(op.DETECTION_SIDE)
    steps = Steps(
        decode=decode,
        crop=crop_pixels,
        resize=resize,
        flip=lambda pixels: np.asarray(cv2.flip(pixels, 1), np.uint8),
        normalise=T.Compose([to_float, T.Normalize(op.MEAN, op.STD)]),
    )
    size = (op.IMAGE_SIDE, op.IMAGE_SIDE)
    calls: list[tuple[str, str, Run]] = [
        ("decode", "FolderDataset", decode),
        ("resize", "Resize(bilinear)", T.Resize(size)),
        ("resize", "Resize(antialias=False)", T.Resize(size, antialias=False)),
        ("resized-crop", "Resize(bilinear)", steps.resized_crop),
        ("flip", "RandomHorizontalFlip", T.RandomHorizontalFlip(1.0)),
        ("jitter", "ColorJitter, four times", jitter),
        ("normalise", "ToDtype, Normalize", steps.normalise),
        ("detection", "LetterBox", lambda data: to_float(letterbox(decode(data)))),
        ("training", "antialiased", steps.training),
    ]
    return Peer("fastload", __version__, calls, jpeg="OpenCV's")

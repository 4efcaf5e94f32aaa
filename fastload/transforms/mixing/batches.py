"""MixUp and CutMix: each image of a batch is mixed with the one before it, and so are their labels.

They work on batches as a DataLoader returns them, on any device, and draw from torch's global generator.

MixUp: Zhang et al., https://arxiv.org/abs/1710.09412. CutMix: Yun et al., https://arxiv.org/abs/1905.04899.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2
from fastload.transforms.options import ABOVE_0, require, to_number, to_whole
from fastload.transforms.pixels import as_tv_image
from fastload.transforms.samples import SampleParts
from fastload.transforms.transform import BatchTransform

_LabelsGetter = Callable[[Any], object] | str


_INTEGERS = (torch.uint8, torch.uint16, torch.int16)


class Mix(BatchTransform):
    """Base class of MixUp and CutMix.

    Args:
        alpha: Both parameters of the beta distribution of random shares, above 0.
        num_classes: The number of classes, required if labels are class indices.
        labels_getter: A function of the batch that returns its labels; by default they come second, or have
            a name with "label" in it.
    """

    def __init__(
        self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: _LabelsGetter = "default"
    ) -> None:
        self.alpha = to_number(alpha, "alpha", ABOVE_0)
        self.num_classes = None if num_classes is None else to_whole(num_classes, "num_classes", 1)
        is_valid = labels_getter == "default" or callable(labels_getter)
        require(is_valid, "labels_getter must be 'default' or a function", labels_getter)
        self.labels_getter = labels_getter

    def __call__(self, *batch: object) -> Any:
        """Mix a batch of images and labels, or a list, tuple or dict of both; raise OptionError for others.

        Images are (images, channels, height, width), uint8 or floating-point; labels are class indices
        (images,), or shares (images, classes). Returns the same structure, with new images of the same dtype
        and memory format and labels (images, classes); anything else in it is unchanged.
        """
        parts = batch if len(batch) > 1 else batch[0]
        is_batch = isinstance(parts, Mapping) or (isinstance(parts, (list, tuple)) and len(parts) > 1)
        name = type(self).__name__
        if not is_batch:
            raise OptionError(f"{name} must be given images and labels, got {type(parts).__name__}")
        labels = self.labels_getter(parts) if callable(self.labels_getter) else _labels_of(parts)
        sample = SampleParts(parts)
        rule = f"{name} takes one tensor of images, without boxes, masks or keypoints"
        require(len(sample.images) == 1 and not sample.has_annotations, rule, type(parts))
        images, labels = self._checked(sample.images[0], labels)
        mixed, share = self._mixed(images.as_subclass(torch.Tensor))
        shares = self._one_hot(labels)
        shares = shares.roll(1, 0).mul_(1.0 - share).add_(shares.mul(share))
        mixed = as_tv_image(mixed, images)
        return sample.converted([mixed], lambda leaf, _: shares if leaf is labels else leaf)

    def _mixed(self, images: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return new images, and the weight that each original image has in its own."""
        raise NotImplementedError

    def _draw(self) -> float:
        alpha = torch.tensor([self.alpha])
        return float(torch.distributions.Beta(alpha, alpha).sample())

    def _checked(self, images: object, labels: object) -> tuple[torch.Tensor, torch.Tensor]:
        name = type(self).__name__
        if not isinstance(images, torch.Tensor) or not isinstance(labels, torch.Tensor):
            kinds = f"{type(images).__name__} and {type(labels).__name__}"
            raise OptionError(f"{name} takes tensors of images and labels, got {kinds}")
        is_valid = images.ndim == 4 and (images.is_floating_point() or images.dtype in _INTEGERS)
        rule = f"{name} takes uint8, uint16, int16 or floating-point images (images, channels, height, width)"
        _require(is_valid, rule, images)
        is_valid = labels.ndim in (1, 2) and len(labels) == len(images)
        rule = f"labels must be (images,) or (images, classes), for {len(images)} images"
        _require(is_valid, rule, labels)
        if labels.ndim == 1:
            is_valid = self.num_classes is not None and not labels.is_floating_point()
            rule = f"labels must be whole numbers below num_classes={self.num_classes}, or shares"
        else:
            is_valid = self.num_classes in (None, labels.shape[1])
            rule = f"labels must be shares of {self.num_classes} classes"
        _require(is_valid, rule, labels)
        return images, labels

    def _one_hot(self, labels: torch.Tensor) -> torch.Tensor:
        if labels.ndim == 2:
            return labels if labels.is_floating_point() else labels.float()
        assert self.num_classes is not None
        # Checking labels on a device would make the CPU wait for it; there, torch itself raises later.
        if labels.device.type == "cpu" and labels.numel():
            low, high = int(labels.min()), int(labels.max())
            if not 0 <= low <= high < self.num_classes:
                raise OptionError(f"labels must be from 0 to {self.num_classes - 1}, got {low} to {high}")
        classes = torch.zeros(len(labels), self.num_classes, device=labels.device)
        return classes.scatter_(1, labels.long()[:, None], 1.0)


class MixUp(Mix):
    """Blends each image of a batch with the one before it, by a random share."""

    def _mixed(self, images: torch.Tensor) -> tuple[torch.Tensor, float]:
        share = self._draw()
        previous = torch.empty_like(images)
        previous[1:], previous[:1] = images[:-1], images[-1:]
        if images.is_floating_point():
            return torch.lerp(previous, images, share, out=previous), share
        own, mixed = (_as_rows(pixels) for pixels in (images, previous)) if images.is_cpu else (None, None)
        if own is None or mixed is None or not own.size or images.dtype != torch.uint8:
            return torch.lerp(previous.float(), images.float(), share).round_().to(images.dtype), share
        cv2.addWeighted(own, share, mixed, 1 - share, 0, dst=mixed)
        return previous, share


class CutMix(Mix):
    """Replaces a random rectangle of each image of a batch by that of the one before it."""

    def _mixed(self, images: torch.Tensor) -> tuple[torch.Tensor, float]:
        height, width = images.shape[2:]
        half = 0.5 * math.sqrt(1.0 - self._draw())
        x, y = int(torch.randint(width, (1,))), int(torch.randint(height, (1,)))
        half_width, half_height = int(half * width), int(half * height)
        left, right = max(x - half_width, 0), min(x + half_width, width)
        top, bottom = max(y - half_height, 0), min(y + half_height, height)
        mixed = images.clone()
        mixed[1:, :, top:bottom, left:right] = images[:-1, :, top:bottom, left:right]
        mixed[:1, :, top:bottom, left:right] = images[-1:, :, top:bottom, left:right]
        return mixed, 1.0 - (right - left) * (bottom - top) / (width * height)


def _labels_of(batch: Any) -> object:
    """Return a batch's labels, found as torchvision finds them."""
    second = batch if isinstance(batch, Mapping) else batch[1]
    if not isinstance(second, Mapping):
        return second
    names = [name for name in second if isinstance(name, str) and "label" in name.lower()]
    return second[min(names, key=lambda name: name.lower() != "labels")] if names else None


def _require(is_valid: bool, rule: str, given: torch.Tensor) -> None:
    if not is_valid:
        raise OptionError(f"{rule}, got {given.dtype} {tuple(given.shape)}")


def _as_rows(images: torch.Tensor) -> Pixels | None:
    """Return the memory of images as an array with one row for each; None if it is not contiguous."""
    for pixels in (images, images.permute(0, 2, 3, 1)):
        if pixels.is_contiguous():
            return pixels.detach().numpy().reshape(len(images), -1)
    return None

"""Training steps of a ResNet-18, for compare_loaders.py with a device."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torchvision_operators import declare_operators

# The means and deviations of ImageNet's channels, in levels of 255.
_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_CLASSES = 1000


class Training:
    """A ResNet-18 with its optimizer on a device; in bfloat16 on a GPU."""

    def __init__(self, device: str) -> None:
        declare_operators()
        from torchvision.models import resnet18

        self._device = torch.device(device)
        self._model = resnet18(num_classes=_CLASSES).to(self._device, memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1, momentum=0.9)
        self._mean, self._std = (
            torch.tensor(values, device=self._device).view(1, 3, 1, 1) for values in (_MEAN, _STD)
        )

    def step(self, batch: Any) -> None:
        """Train with one batch of images, uint8 or normalised, and labels."""
        images, labels = (part.to(self._device, non_blocking=True) for part in (batch[0], batch[1]))
        if images.dtype == torch.uint8:
            images = (images.float() - self._mean) / self._std
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            loss: Any = cross_entropy(self._model(images), labels.long() % _CLASSES)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()

    def finish(self) -> None:
        """Wait until the device has done all steps."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

"""Pixels looked up at given places by PyTorch, in torchvision's own steps: the same pixels, at its speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional

from fastload.transforms.layout import contiguous
from fastload.transforms.transform import Pixels, to_colour


def affine_grid(matrix: Sequence[float], size: tuple[int, int], new_size: tuple[int, int]) -> torch.Tensor:
    """Where each pixel of a result comes from, by an affine map.

    Args:
        matrix: What `inverse_matrix` made.
        size: (height, width) of the image.
        new_size: Of the result.

    Returns:
        (1, height, width, 2): x and y, from -1 to 1 within the image, in single precision.
    """
    (height, width), (new_height, new_width) = size, new_size
    places = torch.empty(1, new_height, new_width, 3)
    places[..., 0] = torch.linspace((1.0 - new_width) * 0.5, (new_width - 1.0) * 0.5, new_width)
    places[..., 1] = torch.linspace((1.0 - new_height) * 0.5, (new_height - 1.0) * 0.5, new_height)[:, None]
    places[..., 2] = 1
    theta = torch.tensor(matrix, dtype=torch.float32).reshape(1, 2, 3).transpose(1, 2)
    theta = theta / torch.tensor([0.5 * width, 0.5 * height])
    return places.view(1, -1, 3).bmm(theta).view(1, new_height, new_width, 2)


def sampled(image: Pixels, grid: torch.Tensor, interpolation: str, fill: Any) -> Pixels:
    """Looks up pixels.

    Args:
        image: (height, width, channels), uint8.
        grid: What `affine_grid` makes.
        interpolation: `nearest` or `bilinear`.
        fill: The colour of what lies outside of the image; None is 0, and mixed with it once.

    Returns:
        (height, width, channels), uint8.
    """
    channels = image.shape[2]
    planes = torch.from_numpy(np.moveaxis(contiguous(image), 2, 0).astype(np.float32))[None]
    if fill is not None:
        planes = torch.cat((planes, torch.ones(1, 1, *planes.shape[2:])), dim=1)
    looked_up = torch.nn.functional.grid_sample(
        planes, grid, mode=interpolation, padding_mode="zeros", align_corners=False
    )
    if fill is not None:
        looked_up, share = looked_up[:, :channels], looked_up[:, channels:]
        colour = torch.tensor(to_colour(fill, channels)[:channels], dtype=torch.float32).view(1, -1, 1, 1)
        if interpolation == "nearest":
            looked_up = torch.where(share < 0.5, colour, looked_up)
        else:
            looked_up = looked_up.sub(colour).mul_(share).add_(colour)
    result: Pixels = looked_up[0].round_().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return result

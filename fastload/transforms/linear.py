"""LinearTransformation: all numbers of an image by a matrix, as in whitening."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.transforms.transform import Pixels, Transform


class LinearTransformation(Transform):
    """Subtracts a mean from all numbers of an image, and multiplies them by a matrix.

    Args:
        transformation_matrix: (D, D), with D for channels × height × width.
        mean_vector: (D,), of the same type and device.

    Raises:
        OptionError: A parameter is none of these; on use, the image has other sides, or is of bytes in a
            dataset's pipeline, where results are of the image's own type.
    """

    takes_any_dtype = True

    def __init__(self, transformation_matrix: torch.Tensor, mean_vector: torch.Tensor) -> None:
        matrix, mean = transformation_matrix, mean_vector
        if matrix.ndim != 2 or mean.ndim != 1 or {*matrix.shape} != {*mean.shape}:
            raise OptionError(
                "transformation_matrix must be (D, D) and mean_vector (D,), got "
                f"{tuple(matrix.shape)} and {tuple(mean.shape)}"
            )
        if matrix.dtype != mean.dtype or matrix.device != mean.device:
            raise OptionError(
                "transformation_matrix and mean_vector must have one type and one device, got "
                f"{matrix.dtype} on {matrix.device} and {mean.dtype} on {mean.device}"
            )
        self.transformation_matrix = matrix
        self.mean_vector = mean

    def __call__(self, image: Any) -> Any:
        """See `Transform`; a tensor is transformed where it lies."""
        return self._transformed(image) if isinstance(image, torch.Tensor) else super().__call__(image)

    def require_dtype(self, dtype: np.dtype[Any]) -> None:
        """Requires floating-point numbers.

        Raises:
            OptionError: They are none.
        """
        if not np.issubdtype(dtype, np.floating):
            raise OptionError(
                f"LinearTransformation must be given floating-point pixels, got {dtype}: "
                "put ToTensor before it"
            )

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Transforms; the result has the image's type."""
        planes = torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, 2, 0)))
        return np.moveaxis(self._transformed(planes).to(planes.dtype).numpy(), 0, 2)

    def _transformed(self, planes: torch.Tensor) -> torch.Tensor:
        count = planes.shape[-3:].numel()
        if planes.ndim < 3 or count != len(self.mean_vector):
            raise OptionError(
                f"an image must have {len(self.mean_vector)} numbers, as LinearTransformation's matrix has "
                f"rows, got {tuple(planes.shape)}"
            )
        flat = planes.reshape(-1, count) - self.mean_vector
        return torch.mm(flat, self.transformation_matrix.to(flat.dtype)).reshape(planes.shape)

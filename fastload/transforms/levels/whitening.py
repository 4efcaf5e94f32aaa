"""A matrix applied to all numbers of an image: LinearTransformation."""

from __future__ import annotations

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.images.arrays import DType, Pixels
from fastload.transforms.pixels import Image
from fastload.transforms.transform import ColourTransform, Row


class LinearTransformation(ColourTransform):
    """Subtracts a mean from all numbers of an image and multiplies them by a matrix, as in whitening.

    Parameters are as in torchvision: `transformation_matrix` (D, D) and `mean_vector` (D,), with D = channels
    × height × width. Using it raises `OptionError` if an image has another size, or is uint8 in a dataset's
    pipeline, where results have the image's dtype.
    """

    def __init__(self, transformation_matrix: torch.Tensor, mean_vector: torch.Tensor) -> None:
        matrix, mean = transformation_matrix, mean_vector
        is_valid = matrix.ndim == 2 and mean.ndim == 1 and {*matrix.shape} == {*mean.shape}
        if not is_valid or matrix.dtype != mean.dtype or matrix.device != mean.device:
            raise OptionError(
                "transformation_matrix must be (D, D) and mean_vector (D,), of one dtype and on one device, "
                f"got {matrix.dtype} {tuple(matrix.shape)} on {matrix.device} and "
                f"{mean.dtype} {tuple(mean.shape)} on {mean.device}"
            )
        self.transformation_matrix = matrix
        self.mean_vector = mean

    def of_image(self, image: Image) -> Image:
        """Transform an image; see `Transform`. A tensor is transformed on its device."""
        return self._transformed(image) if isinstance(image, torch.Tensor) else super().of_image(image)

    def require_dtype(self, dtype: DType) -> None:
        if not np.issubdtype(dtype, np.floating):
            raise OptionError(
                f"LinearTransformation must be given floating-point pixels, got {dtype}: "
                "put ToTensor before it"
            )

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        planes = torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, 2, 0)))
        # In the image's dtype, whatever the matrix's.
        return np.moveaxis(self._transformed(planes).to(planes.dtype).numpy(), 0, 2)

    def _transformed(self, planes: torch.Tensor) -> torch.Tensor:
        count = planes.shape[-3:].numel()
        if planes.ndim < 3 or count != len(self.mean_vector):
            raise OptionError(
                f"an image must have {len(self.mean_vector)} numbers, as LinearTransformation's mean_vector, "
                f"got {tuple(planes.shape)}"
            )
        flat = planes.reshape(-1, count) - self.mean_vector
        return torch.mm(flat, self.transformation_matrix.to(flat.dtype)).reshape(planes.shape)

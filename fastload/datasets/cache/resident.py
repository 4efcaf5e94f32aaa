"""A small dataset on a device: all its pixels as one uint8 tensor, cropped, flipped and normalised there.

    resident = Resident.load(dataset, "cuda")
    images, labels = resident.batch(indices, seed)

The random parameters are those that the dataset itself draws for the same seed and indices, so the pixels are
the same. Crops, padding and flips of a whole batch are one gather (`GatheredView`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets.cache._limits import CacheLimits
from fastload.errors import OptionError
from fastload.system.buffers import reusable_tensor
from fastload.system.units import format_size
from fastload.transforms.compose import flattened
from fastload.transforms.converting import (
    Conversion,
    ConvertImageDtype,
    Identity,
    PILToTensor,
    ToImage,
    ToPureTensor,
    ToTensor,
)
from fastload.transforms.cropping import CenterCrop, Pad, RandomCrop
from fastload.transforms.degradation import RandomErasing
from fastload.transforms.draws import draws_for, epoch_seed
from fastload.transforms.flipping import RandomHorizontalFlip, RandomVerticalFlip
from fastload.transforms.options import to_colour
from fastload.transforms.rescaling import Normalize, Rescale, ToDtype
from fastload.transforms.transform import Parameters, Transform

Ints = NDArray[np.int64]

# Memory of the device that stays free for the model: a tenth of all, at least 2 GiB.
_LEAST_MARGIN_BYTES = 2 << 30
_MARGIN_SHARE = 0.1

_LOADED_AT_ONCE = 512
_AXES = {RandomVerticalFlip: 0, RandomHorizontalFlip: 1}


class LoadableDataset(Protocol):
    """A dataset that can be loaded onto a device."""

    transform: Any
    memory_format: torch.memory_format

    def __len__(self) -> int:
        """Return the number of samples."""

    def fetch_into(self, indices: Sequence[int], out: Any) -> Any:
        """Make a batch; see `fastload.datasets`."""


class HostMemory:
    """Reused memory of the host for batches that are made outside a loader."""

    finishes_on_device = False

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialised tensor."""
        return reusable_tensor(shape, dtype)


def device_room(device: str | torch.device) -> int:
    """Return the memory of a device that a dataset may take, in bytes."""
    if torch.device(device).type != "cuda":
        return CacheLimits().room()
    free, total = torch.cuda.mem_get_info(device)
    return room_of(free, total)


def room_of(free_bytes: int, total_bytes: int) -> int:
    """Return how much of a device's memory a dataset may take, in bytes."""
    return max(0, free_bytes - max(_LEAST_MARGIN_BYTES, int(total_bytes * _MARGIN_SHARE)))


def require_resident(transform: Any) -> list[Transform]:
    """Return the steps of a transform; raise OptionError if one cannot be done on a device."""
    steps: list[Transform] = []
    for step in flattened([] if transform is None else [transform]):
        is_noise = isinstance(step, RandomErasing) and step.value == "random"
        if type(step) not in _STEPS or is_noise:
            name = type(step).__name__ + (" with random values" if is_noise else "")
            raise OptionError(
                f'cache="device" can do {", ".join(kind.__name__ for kind in _STEPS)}, and not {name}: '
                'leave that out, or use cache="ram"'
            )
        assert isinstance(step, Transform)
        steps.append(step)
    return steps


class Resident:
    """A dataset's pixels (samples, height, width, 3), uint8, and its targets (samples, …) on one device.

    The dataset's transform is applied as it is when a batch is made.
    """

    def __init__(self, pixels: torch.Tensor, targets: torch.Tensor, dataset: LoadableDataset) -> None:
        self.pixels = pixels
        self.targets = targets
        self._dataset = dataset

    @classmethod
    def load(
        cls, dataset: LoadableDataset, device: str | torch.device, room_bytes: int | None = None
    ) -> Resident:
        """Decode a whole dataset onto a device.

        Raises OptionError if it does not fit into `room_bytes` (None: `device_room`), if its images or labels
        differ in shape, or if its transform cannot be done there.
        """
        require_resident(dataset.transform)
        room = device_room(device) if room_bytes is None else room_bytes
        pixels = targets = torch.empty(0)
        done = 0
        for images, labels in _batches(dataset):
            if not done:
                size = len(dataset) * images[0].numel()
                if size > room:
                    raise OptionError(
                        f'cache="device": the {format_size(size)} of pixels must fit into the '
                        f'{format_size(room)} that {device} has to spare: use cache="ram"'
                    )
                pixels = images.new_empty((len(dataset), *images.shape[1:]), device=device)
                targets = labels.new_empty((len(dataset), *labels.shape[1:]), device=device)
            if images.shape[1:] != pixels.shape[1:]:
                raise OptionError(
                    f'cache="device" must have images of one size, got {tuple(pixels.shape[1:3])} and '
                    f'{tuple(images.shape[1:3])}: use cache="ram"'
                )
            if (labels.dtype, labels.shape[1:]) != (targets.dtype, targets.shape[1:]):
                raise OptionError(
                    f'cache="device" must have labels of one dtype and shape, got {targets.dtype} and '
                    f'{labels.dtype}: make target_transform give one, or use cache="ram"'
                )
            pixels[done : done + len(images)] = images.to(device)
            targets[done : done + len(images)] = labels.to(device)
            done += len(images)
        if not done:
            raise OptionError('cache="device" must have samples, got none: use cache=None')
        return cls(pixels, targets, dataset)

    def batch(self, indices: Sequence[int] | Ints, seed: int | None = None) -> list[torch.Tensor]:
        """Make a batch on the device: [images (batch, channels, height, width), targets].

        Without a seed of the epoch, transforms draw from torch's global generator. Negative indices count
        from the end. Raises OptionError if the transform cannot be done there.
        """
        steps = require_resident(self._dataset.transform)
        positions = np.asarray(indices, np.int64)
        positions = np.where(positions < 0, positions + len(self.pixels), positions)
        with epoch_seed(seed):
            draws = draws_for(positions)
        view = GatheredView(self.pixels, positions)
        # ToTensor, ToDtype and Normalize at the end are done as one step.
        last = len(steps)
        while last and isinstance(steps[last - 1], (ToDtype, Normalize, Conversion)):
            last -= 1
        for place, step in enumerate(steps[:last]):
            parameters = step.draw(draws.at(place), view.sizes)
            _STEPS[type(step)](view, step, parameters)
        images = view.images().permute(0, 3, 1, 2)
        rescaling = [step for step in steps[last:] if not isinstance(step, Conversion)]
        if rescaling:
            images = Rescale.of(rescaling, images.dtype).on(images)
        chosen = torch.from_numpy(positions).to(self.targets.device)
        return [images.contiguous(memory_format=self._dataset.memory_format), self.targets[chosen]]


def _batches(dataset: LoadableDataset) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield images (batch, height, width, 3) and labels of a dataset without its transform."""
    plain = copy.copy(dataset)
    plain.transform = None
    for first in range(0, len(dataset), _LOADED_AT_ONCE):
        indices = range(first, min(first + _LOADED_AT_ONCE, len(dataset)))
        batch = plain.fetch_into(indices, HostMemory())
        if batch is NotImplemented or not isinstance(batch[1], torch.Tensor):
            raise OptionError(
                'cache="device" must have images of one size, and labels beside them: use cache="ram"'
            )
        yield batch[0].permute(0, 2, 3, 1), batch[1]


class GatheredView:
    """Images whose every row and column is one of a stored image, or padding (-1).

    `source` is (any number, height, width, channels); `chosen` are the numbers of the images.
    """

    def __init__(self, source: torch.Tensor, chosen: Ints) -> None:
        self._reset(source, chosen)

    def _reset(self, source: torch.Tensor, chosen: Ints) -> None:
        self._source = source
        self._chosen = chosen
        self._axes = [np.tile(np.arange(side), (len(chosen), 1)) for side in source.shape[1:3]]
        self._fill: NDArray[Any] | None = None

    @property
    def sizes(self) -> Ints:
        """Heights and widths: (images, 2)."""
        return np.tile(np.array([axis.shape[1] for axis in self._axes]), (len(self._chosen), 1))

    def flip(self, axis: int, which: NDArray[np.bool_]) -> None:
        """Flip some images."""
        rows = self._axes[axis].copy()
        rows[which] = rows[which, ::-1]
        self._axes[axis] = rows

    def window(self, boxes: Ints, fill: Any, mode: str) -> None:
        """Crop a window (top, left, height, width) of each image; it may reach beyond the image."""
        colour = np.array(to_colour(fill, self._source.shape[3])[: self._source.shape[3]])
        if self._fill is not None and mode == "constant" and not np.array_equal(self._fill, colour):
            self.replace(self.images())
        for axis in (0, 1):
            side = self._axes[axis].shape[1]
            wanted = boxes[:, axis, None] + np.arange(int(boxes[0, axis + 2]))
            within = _source_places(wanted, side, mode)
            taken = np.take_along_axis(self._axes[axis], np.maximum(within, 0), axis=1)
            self._axes[axis] = np.where(within < 0, -1, taken)
        if mode == "constant":
            self._fill = colour

    def images(self) -> torch.Tensor:
        """Return the images: (images, height, width, channels)."""
        device = self._source.device
        rows, columns = (torch.from_numpy(np.ascontiguousarray(axis)).to(device) for axis in self._axes)
        chosen = torch.from_numpy(self._chosen).to(device)
        images = self._source[
            chosen[:, None, None], rows.clamp(min=0)[:, :, None], columns.clamp(min=0)[:, None]
        ]
        if any((axis < 0).any() for axis in self._axes):
            is_padding = (rows < 0)[:, :, None] | (columns < 0)[:, None]
            fill = torch.from_numpy(np.asarray(self._fill)).to(device).to(images.dtype)
            images = torch.where(is_padding[..., None], fill, images)
        return images

    def replace(self, images: torch.Tensor) -> None:
        """Replace the images by others."""
        self._reset(images, np.arange(len(images)))


def _source_places(wanted: Ints, side: int, mode: str) -> Ints:
    """Return which of a side's pixels stands at a place that may be outside; -1 for padding."""
    if mode == "constant":
        return np.where((wanted < 0) | (wanted >= side), -1, wanted)
    if mode == "edge":
        return np.clip(wanted, 0, side - 1)
    if mode == "symmetric":
        folded = wanted % (2 * side)
        return np.minimum(folded, 2 * side - 1 - folded)
    period = max(1, 2 * (side - 1))
    folded = wanted % period
    return np.minimum(folded, period - folded)


def _crop(view: GatheredView, step: Any, parameters: Parameters) -> None:
    fill, mode = getattr(step, "fill", 0), getattr(step, "padding_mode", "constant")
    view.window(parameters.astype(np.int64), fill, mode)


def _pad(view: GatheredView, step: Any, parameters: Parameters) -> None:
    left, top, right, bottom = step.sides
    height, width = view.sizes[0].tolist()
    box = np.array([[-top, -left, height + top + bottom, width + left + right]])
    view.window(np.repeat(box, len(parameters), axis=0), step.fill, step.padding_mode)


def _flip(view: GatheredView, step: Any, parameters: Parameters) -> None:
    view.flip(_AXES[type(step)], parameters[:, 0] > 0)


def _erase(view: GatheredView, step: Any, parameters: Parameters) -> None:
    images = view.images()
    values = step.value if isinstance(step.value, (tuple, list)) else [step.value]
    if len(values) not in (1, images.shape[3]):
        raise OptionError(
            f"value must be one number, or one for each of {images.shape[3]} channels, got {step.value!r}"
        )
    colour = torch.tensor(values, dtype=torch.float32, device=images.device)
    colour = colour if images.dtype.is_floating_point else colour.to(torch.int64)
    top, left, height, width = (
        torch.from_numpy(parameters[:, column].astype(np.int64)).to(images.device)[:, None]
        for column in range(4)
    )
    rows, columns = (torch.arange(side, device=images.device)[None] for side in images.shape[1:3])
    is_in_rows = (rows >= top) & (rows < top + height)
    is_in_columns = (columns >= left) & (columns < left + width)
    is_erased = (is_in_rows[:, :, None] & is_in_columns[:, None])[..., None]
    view.replace(torch.where(is_erased, colour.to(images.dtype), images))


def _rescale(view: GatheredView, step: Any, parameters: Parameters) -> None:
    images = view.images().permute(0, 3, 1, 2)
    view.replace(Rescale.of([step], images.dtype).on(images).permute(0, 2, 3, 1))


def _keep(view: GatheredView, step: Any, parameters: Parameters) -> None:
    """Do nothing: a change of the image's type leaves its pixels."""


_STEPS: dict[type, Callable[[GatheredView, Any, Parameters], None]] = {
    RandomCrop: _crop,
    CenterCrop: _crop,
    Pad: _pad,
    RandomHorizontalFlip: _flip,
    RandomVerticalFlip: _flip,
    RandomErasing: _erase,
    ToDtype: _rescale,
    ToTensor: _rescale,
    ConvertImageDtype: _rescale,
    Normalize: _rescale,
    Identity: _keep,
    PILToTensor: _keep,
    ToImage: _keep,
    ToPureTensor: _keep,
}

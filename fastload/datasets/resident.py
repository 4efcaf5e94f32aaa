"""A small dataset on a device: all its pixels as one uint8 tensor, cropped, flipped and normalised there.

    resident = Resident.load(dataset, "cuda")
    with EpochDraws(seed):
        images, labels = resident.fetch_into(indices, out)

The random parameters are those that the dataset itself draws for the same seed and indices, so the pixels are
the same. Each step of the transform is applied to the whole batch at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import Dataset

from fastload.contracts import BatchMemory
from fastload.datasets.batch import HostMemory
from fastload.datasets.images import ImageDataset
from fastload.errors import OptionError
from fastload.system.memory import margin_of, memory_room
from fastload.system.units import format_size
from fastload.transforms.colour.degradation import RandomErasing
from fastload.transforms.compose import AnyTransform, flattened
from fastload.transforms.draws import draws_for
from fastload.transforms.levels.converting import (
    Conversion,
    ConvertImageDtype,
    Identity,
    PILToTensor,
    ToImage,
    ToPureTensor,
    ToTensor,
)
from fastload.transforms.levels.rescaling import Normalize, Rescale, ToDtype
from fastload.transforms.options import to_colour
from fastload.transforms.shapes.cropping import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
)
from fastload.transforms.transform import Ints, Parameters, Transform

# Device memory that stays free for the model, at least.
_LEAST_MARGIN_BYTES = 2 << 30

_LOADED_AT_ONCE = 512


def device_room(device: str | torch.device) -> int:
    """Return how much memory of a device a dataset may take now, in bytes."""
    if torch.device(device).type != "cuda":
        return memory_room()
    free, total = torch.cuda.mem_get_info(device)
    return room_of(free, total)


def room_of(free_bytes: int, total_bytes: int) -> int:
    """Return how much memory a dataset may take, given a device's free and total memory, in bytes."""
    return max(0, free_bytes - margin_of(total_bytes, _LEAST_MARGIN_BYTES))


def require_resident(transform: AnyTransform | None) -> list[Transform]:
    """Return the steps of a transform; raise OptionError if one cannot run on a device."""
    steps: list[Transform] = []
    for step in flattened([] if transform is None else [transform]):
        is_noise = isinstance(step, RandomErasing) and step.value == "random"
        if type(step) not in _STEPS or is_noise:
            name = type(step).__name__ + (" with random values" if is_noise else "")
            raise OptionError(
                f'cache="device" supports {", ".join(kind.__name__ for kind in _STEPS)}, but not {name}: '
                'leave that out, or use cache="ram"'
            )
        assert isinstance(step, Transform)
        steps.append(step)
    return steps


class Resident(Dataset[object]):
    """A dataset's pixels (samples, height, width, 3), uint8, and its targets (samples, …) on one device.

    A batch is made with the transform that the dataset has at that time.
    """

    def __init__(self, pixels: torch.Tensor, targets: torch.Tensor, dataset: ImageDataset) -> None:
        self.pixels = pixels
        self.targets = targets
        self._dataset = dataset

    @classmethod
    def load(
        cls, dataset: ImageDataset, device: str | torch.device, room_bytes: int | None = None
    ) -> Resident:
        """Decode a complete dataset to a device.

        Raises OptionError if it does not fit into `room_bytes` (None: `device_room`), if its images or labels
        differ in shape, or if its transform cannot run there.
        """
        if not dataset.has_images:
            raise OptionError('cache="device" holds pixels, and these records have no image: use cache="ram"')
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
            for wanted, new, kept in (
                ("images of one size", images, pixels),
                ("labels of one dtype and shape", labels, targets),
            ):
                if (new.dtype, new.shape[1:]) != (kept.dtype, kept.shape[1:]):
                    raise OptionError(
                        f'cache="device" must have {wanted}, got {kept.dtype} and {new.dtype} of shapes '
                        f'{tuple(kept.shape[1:])} and {tuple(new.shape[1:])}: use cache="ram"'
                    )
                kept[done : done + len(new)] = new.to(device)
            done += len(images)
        if not done:
            raise OptionError('cache="device" must have samples, got none: use cache=None')
        return cls(pixels, targets, dataset)

    def __len__(self) -> int:
        return len(self.pixels)

    def fetch_into(self, indices: Sequence[int], out: BatchMemory) -> list[torch.Tensor]:
        """Make a batch, which is on the device already; called by fastload's DataLoader.

        Returns:
            [images (batch, channels, height, width), targets].

        Raises:
            OptionError: The transform cannot run on the device.
            RecordIndexError: An index is out of range; on a GPU it would make every later operation fail.
        """
        steps = require_resident(self._dataset.transform)
        positions = self._dataset.positions_of(indices)
        draws = draws_for(positions)
        chosen = torch.from_numpy(positions).to(self.pixels.device)
        images = self.pixels[chosen]
        # ToTensor, ToDtype and Normalize at the end are applied as one step.
        last = len(steps)
        while last and isinstance(steps[last - 1], (ToDtype, Normalize, Conversion)):
            last -= 1
        for place, step in enumerate(steps[:last]):
            sizes = np.tile(np.array(images.shape[1:3]), (len(images), 1))
            images = _STEPS[type(step)](images, step, step.draw(draws.at(place), sizes))
        images = images.permute(0, 3, 1, 2)
        rescaling = [step for step in steps[last:] if not isinstance(step, Conversion)]
        if rescaling:
            images = Rescale.of(rescaling, images.dtype).on(images)
        return [images.contiguous(memory_format=self._dataset.memory_format), self.targets[chosen]]


def _batches(dataset: ImageDataset) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield images (batch, height, width, 3) and labels of a dataset without its transform."""
    plain = copy.copy(dataset)
    plain.transform = None
    for first in range(0, len(dataset), _LOADED_AT_ONCE):
        indices = range(first, min(first + _LOADED_AT_ONCE, len(dataset)))
        batch = plain.fetch_into(indices, HostMemory())
        if not isinstance(batch, list) or not isinstance(batch[1], torch.Tensor):
            raise OptionError(
                'cache="device" must have images of one size, and labels as targets: use cache="ram"'
            )
        yield batch[0].permute(0, 2, 3, 1), batch[1]


def _crop(images: torch.Tensor, step: RandomCrop | CenterCrop | Pad, parameters: Parameters) -> torch.Tensor:
    """Crop a window (top, left, height, width) of one size from each image, possibly beyond its edges."""
    boxes = parameters.astype(np.int64)
    fill, mode = getattr(step, "fill", 0), getattr(step, "padding_mode", "constant")
    height, width = boxes[0, 2:].tolist()
    rows = _source_positions(boxes[:, :1] + np.arange(height), images.shape[1], mode)
    columns = _source_positions(boxes[:, 1:2] + np.arange(width), images.shape[2], mode)
    is_outside = (rows < 0)[:, :, None] | (columns < 0)[:, None]
    numbers = torch.arange(len(images), device=images.device)[:, None, None]
    row = torch.from_numpy(rows.clip(min=0)).to(images.device)[:, :, None]
    column = torch.from_numpy(columns.clip(min=0)).to(images.device)[:, None]
    cropped = images[numbers, row, column]
    if is_outside.any():
        channels = images.shape[3]
        colour = torch.tensor(to_colour(fill, channels)[:channels], device=images.device).to(images.dtype)
        cropped = torch.where(torch.from_numpy(is_outside).to(images.device)[..., None], colour, cropped)
    return cropped


def _source_positions(wanted: Ints, side: int, mode: str) -> Ints:
    """Return the source position along a side for each wanted one, which may be outside; -1 for padding."""
    if mode == "constant":
        return np.where((wanted < 0) | (wanted >= side), -1, wanted)
    before, after = max(0, -int(wanted.min())), max(0, int(wanted.max()) - side + 1)
    # torchvision's names are NumPy's.
    return np.pad(np.arange(side), (before, after), mode)[wanted + before]  # type: ignore[call-overload, no-any-return]


def _flip(
    images: torch.Tensor, step: RandomHorizontalFlip | RandomVerticalFlip, parameters: Parameters
) -> torch.Tensor:
    is_flipped = torch.from_numpy(parameters[:, 0] > 0).to(images.device)[:, None, None, None]
    axis = 1 if isinstance(step, RandomVerticalFlip) else 2
    return torch.where(is_flipped, images.flip(axis), images)


def _erase(images: torch.Tensor, step: RandomErasing, parameters: Parameters) -> torch.Tensor:
    colour = torch.from_numpy(step.colour(images.shape[3])).to(images.device)
    colour = colour if images.dtype.is_floating_point else colour.to(torch.int64)
    top, left, height, width = (
        torch.from_numpy(parameters[:, column].astype(np.int64)).to(images.device)[:, None]
        for column in range(4)
    )
    rows, columns = (torch.arange(side, device=images.device)[None] for side in images.shape[1:3])
    is_in_rows = (rows >= top) & (rows < top + height)
    is_in_columns = (columns >= left) & (columns < left + width)
    is_erased = (is_in_rows[:, :, None] & is_in_columns[:, None])[..., None]
    return torch.where(is_erased, colour.to(images.dtype), images)


def _rescale(images: torch.Tensor, step: ToDtype | Normalize, parameters: Parameters) -> torch.Tensor:
    return Rescale.of([step], images.dtype).on(images.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


_STEPS: dict[type[Transform], Callable[..., torch.Tensor]] = {
    RandomCrop: _crop,
    CenterCrop: _crop,
    Pad: _crop,
    RandomHorizontalFlip: _flip,
    RandomVerticalFlip: _flip,
    RandomErasing: _erase,
    **dict.fromkeys((ToDtype, ToTensor, ConvertImageDtype, Normalize), _rescale),
    **dict.fromkeys((Identity, PILToTensor, ToImage, ToPureTensor), lambda images, *_: images),
}

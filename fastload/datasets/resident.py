"""A small dataset on a device: all its pixels as one uint8 tensor, cropped, flipped and normalised there.

    resident = Resident.load(dataset, "cuda")
    with EpochDraws(seed):
        images, labels = resident.fetch_into(indices, out)

The random parameters are those that the dataset itself draws for the same seed and indices, so the pixels are
the same. Each step of the transform is applied to the whole batch at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Dataset

from fastload.contracts import BatchMemory
from fastload.datasets.batch import HostMemory
from fastload.datasets.images import ImageDataset
from fastload.errors import OptionError
from fastload.system.memory import margin_of, memory_room
from fastload.system.units import format_size
from fastload.transforms.draws import draws_for
from fastload.transforms.pipeline import Pipeline

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


def device_pipeline(dataset: ImageDataset) -> Pipeline:
    """Return the transform of a dataset; raise OptionError if a step cannot run on a device."""
    pipeline = dataset.pipeline()
    if steps := pipeline.host_steps:
        raise OptionError(
            'cache="device" must have a transform that runs on the device, as crops and padding to one size, '
            "flips, RandomErasing of a colour, conversions, ToDtype and Normalize do, got "
            f'{steps[0]!r}: leave it out, or use cache="ram"'
        )
    return pipeline


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
        device_pipeline(dataset)
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
        pipeline = device_pipeline(self._dataset)
        positions = self._dataset.positions_of(indices)
        chosen = torch.from_numpy(positions).to(self.pixels.device)
        images = pipeline.on_device(self.pixels[chosen].permute(0, 3, 1, 2), draws_for(positions))
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

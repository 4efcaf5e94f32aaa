"""Contracts between rooms: read this first.

    sources ──RecordSource──▶ packing ──▶ shards ──▶ datasets ──Regions──▶ images, transforms
    indices ──Prefetches──▶ the disk reads ahead
    pixels ──AppliesToImages──▶ a batch's images
    indices ──FillsBatches──▶ a batch in BatchMemory ──FinishesBatches──▶ the batch on its device
    samples ──CollatesInto──▶ a batch in BatchMemory

A loader asks a dataset only for `dataset[index]`. One that can do more keeps some of the contracts below;
`PackedDataset` keeps all of them. A user's dataset may have methods of equal names for other purposes, so a
method counts only if it takes parameters of the contract's names (`implements`), and the loader looks for the
others only in a dataset that fills batches; a ShardedSampler asks any dataset for `LiesInShards`.

Pixels are (height, width, channels), or (images, height, width, channels); tensors are (batch, channels,
height, width). Their dtype and number of channels are those of the source, until a step of the transform
changes them. Indices are those of `dataset[index]`, within a `Subset` already translated to those of its
dataset. Contracts of one room lie in it, from the file to the model:

    layouts        `sources.layouts` (all), `sources.protocol` (reading), `sources.writing` (unpacking)
    shards         `shards.container`
    encodings      `images.encodings`
    transforms     `transforms.transform`
    samples        `datasets.batch` (a batch's images), `datasets.cache.sample_cache`
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_Files_co = TypeVar("_Files_co", covariant=True)

# (height, width, channels), or (images, height, width, channels) for a batch
Pixels = NDArray[np.integer | np.floating]
DType = np.dtype[np.integer | np.floating]  # of pixels
Size = tuple[int, int]  # height, width


@dataclass(slots=True)
class SourceRecord:
    """One record, read from its source; whoever read it owns it.

    Attributes:
        key: A relative path with `/` between its parts, or a number.
        image: A file, or pixels of the source's dtype: RGB (height, width, 3) or grey (height, width); None
            if the source has no images. An encoding refuses a dtype that it cannot store.
        values: The values by field; b"" for a further image that the record lacks.
        notes: Corrections, one sentence each.
    """

    key: str
    image: bytes | Pixels | None
    values: dict[str, object]
    notes: tuple[str, ...] = ()


class RecordSource(Protocol):
    """Records that packing reads by index, in any order and any process; picklable.

    Attributes:
        kind: `folder`, `flat` (images alone), `table`, `dataset` or a layout; selects `unpack`'s writer.
        name: The source's path as given, or the dataset's class.
        classes: Names, by label.
        is_upright: True if coordinates refer to the image turned by its EXIF orientation.
        has_images: True if each record has an image.
    """

    kind: str
    name: str
    classes: tuple[str, ...]
    is_upright: bool
    has_images: bool

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def key(self, index: int) -> str:
        """Return the key of a record without reading it; keys may repeat."""

    @abstractmethod
    def read(self, index: int) -> SourceRecord:
        """Read one record; raise SourceError, naming it, if it cannot be read or does not fit the fields."""

    @abstractmethod
    def sizes_bytes(self) -> NDArray[np.int64] | None:
        """Return the size of each record in the source; None if sizes are unknown until records are read."""

    @abstractmethod
    def fingerprint(self) -> str | None:
        """Return a hexadecimal digest of the listing, which changes if a name, size or time does.

        Return None if later changes of the source could not be detected.
        """


@runtime_checkable
class ReadsFiles(Protocol[_Files_co]):
    """A dataset that can read its samples from files without changing them; they are packed byte for byte."""

    def files_read(self) -> _Files_co | None:
        """Return the files and labels that are the samples, as a `sources.file_source.FileSource`.

        Return None if they are changed, as by a transform.
        """


class Box(NamedTuple):
    """A region of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int

    def of(self, pixels: Pixels) -> Pixels:
        """Return the region of an array (height, width, …) as a view."""
        return pixels[self.top : self.top + self.height, self.left : self.left + self.width]


class Regions(Protocol):
    """Images by position, of which regions are read: files, records, a batch's images, an array in memory."""

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        """Return a box, in pixels of the image as it is stored, of the image with this number.

        The pixels, (height, width, channels), may be reduced towards `size`, (height, width), to which the
        caller resizes them, but not below. They have the image's own dtype and order of channels, and may be
        a read-only view of memory that the images keep; the caller copies what it changes or keeps. They stay
        valid as long as they are referred to: nothing has to be freed.

        Raises SourceError if the file cannot be read, and DecodeError, which names the record or file, if the
        image cannot be decoded.
        """


class Gathered(NamedTuple):
    """A batch of images of one size that need no decoding: rows of an array.

    The array, (count, height, width, channels), is contiguous; it may be a mapped file, and must not be
    changed.
    """

    images: Pixels
    rows: NDArray[np.int64]


class AppliesToImages(Protocol):
    """A transform, whose parameters have been drawn for a batch, as a dataset applies it.

    Parameters are float64, one row for each image. Sizes and number of channels of the results are known
    before, from `Transform.sizes_after` and `channels_after`; a batch's memory is made for them.
    """

    def require_dtype(self, dtype: DType) -> None:
        """Raise OptionError unless the transform accepts pixels of this dtype."""

    def apply_checked(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Check the dtype of an image (height, width, channels), then apply one row of parameters to it.

        The image may be read-only or not contiguous, and is not changed; the result may be a view of it.
        """

    def apply_batch(self, images: Pixels, parameters: NDArray[np.float64]) -> Pixels:
        """Apply parameters to images of one size, whose results have one size too.

        Images and results are (images, height, width, channels). The images are contiguous, and no longer
        used by the caller: they may be changed, and be the result.
        """

    def apply_gathered(
        self, gathered: Gathered, parameters: NDArray[np.float64], out: Pixels | None = None
    ) -> Pixels:
        """Apply parameters to a batch of stored images, like `apply_batch`; those must not be changed.

        `out` is memory that the result may be written to, if it has the result's shape and dtype.
        """


class BatchMemory(Protocol):
    """Allocator of a batch's tensors: shared memory in a worker, ordinary memory in the training process.

    The memory belongs to the batch, and is used again once no tensor of the batch is left: whoever fills it
    keeps no reference.
    """

    finishes_on_device: bool
    """True if the batch moves to a device, and `FinishesBatches.finish` is called there."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialised, contiguous tensor on the CPU."""


class FillsBatches(Protocol):
    """A dataset that makes a complete batch at once."""

    def fetch_into(self, indices: Sequence[int], out: BatchMemory) -> object:
        """Return the result of `default_collate` for the samples, in tensors that `out` allocates.

        Returns NotImplemented if they must be fetched one by one. Raises what `dataset[index]` raises.
        """


class FinishesBatches(Protocol):
    """A dataset that leaves the last step of a batch to its device, if `out.finishes_on_device`.

    Nothing marks the batches whose last step was left, so it must show in the images themselves: the datasets
    of this library leave it only to uint8 images, which it makes floating point.
    """

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        """Return the final images, given the first part of a batch on the device.

        Called for each batch that is a list whose first part is a tensor, also if its samples were made one
        by one: final images are returned unchanged.
        """


class Prefetches(Protocol):
    """A dataset that can ask the system to read samples ahead."""

    def prefetch(self, indices: Sequence[int]) -> None:
        """Start reading samples that are needed soon, without waiting; called in the training process."""


class ReadsAhead(Protocol):
    """Reader of an epoch's later batches in the background; it stops once the loader drops it."""

    @property
    def is_full(self) -> bool:
        """True as long as no more batches should be announced."""

    def want(self, batch: int, indices: Sequence[int]) -> None:
        """Announce a later batch; called in the order of the epoch."""


class AnnouncesBatches(Protocol):
    """A dataset that wants to know the order of an epoch, such as one whose shards are fetched from a URL."""

    def read_ahead(self, position: Callable[[], int], in_flight: int) -> ReadsAhead | None:
        """Return the reader of an epoch, or None if the dataset needs none.

        `position` returns the number of batches that have been handed out; `in_flight` are loaded at once.
        """


@runtime_checkable
class LiesInShards(Protocol):
    """A dataset whose samples lie in shards, which are read fastest one after the other."""

    @property
    def shard_sizes(self) -> Sequence[int]:
        """The number of samples in each shard; indices count through all of them."""


@runtime_checkable
class KnowsLimits(Protocol):
    """A dataset that knows what of this process makes reading it slow."""

    @property
    def limits(self) -> Sequence[str]:
        """Such limits, as sentences with the remedy; a loader's plan shows them."""


@runtime_checkable
class DrawsFromEpochSeed(Protocol):
    """A dataset that knows where its random numbers come from."""

    @property
    def draws_from_epoch_seed_only(self) -> bool:
        """True if making samples of an epoch that has a seed uses no global random generator."""


class Stateful(Protocol):
    """A dataset, or the iterator of one, that can be saved and restored, as torchdata's."""

    def state_dict(self) -> object:
        """Return its state."""

    def load_state_dict(self, state: object) -> None:
        """Continue from a state."""


class CollatesInto(Protocol):
    """A collate function that can write a batch into given memory."""

    def collate_into(self, samples: Sequence[object], out: BatchMemory) -> object:
        """Return the batch that the function itself would return, in tensors that `out` allocates."""


def implements(owner: object, method: Callable[..., object]) -> bool:
    """Return whether an object's class has a contract's method, with parameters of the same names.

    Args:
        owner: A dataset, or a collate function.
        method: The method of the contract, such as `FillsBatches.fetch_into`.
    """
    # An attribute of the object alone may be that of a dataset inside, to which the object forwards.
    if not callable(getattr(type(owner), method.__name__, None)):
        return False
    names = list(inspect.signature(method).parameters)[1:]
    try:
        inspect.signature(getattr(owner, method.__name__)).bind(**dict.fromkeys(names))
    except (TypeError, ValueError):  # other parameters, or unknown ones
        return False
    return True

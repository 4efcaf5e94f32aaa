"""PackedDataset and FolderDataset: map-style datasets of (image, target), decoded by OpenCV.

Both work in torch's DataLoader and in ours, with every way of starting workers, and may stand where a
torchvision ImageFolder stood. Ours asks them for whole batches: of each image only the part that the
transform's crop needs is decoded, and written to where the batch is to lie.
"""

from __future__ import annotations

import functools
import operator
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastload.batch import BatchMemory, Pictures, fill, render
from fastload.errors import DamageError, DecodeError, OptionError, RecordIndexError, SourceError
from fastload.images.encodings import encoding_named
from fastload.images.region import Box
from fastload.pictures import FileHeaders, FilePictures, RecordPictures, UprightPictures
from fastload.shards.records import Record, RecordReader, Verify
from fastload.shards.schema import Field
from fastload.sources.folder import list_folder
from fastload.transforms.compose import flattened
from fastload.transforms.draws import draws_for
from fastload.transforms.pipeline import Pipeline

Transform = Callable[[Any], Any]


class _ImageDataset(torch.utils.data.Dataset[tuple[Any, Any]]):
    """What both datasets share: indices, transforms, classes.

    Attributes:
        classes: The names of the classes; a label counts into them.
        transform: Applied to every image, None for a tensor of the pixels. May be set at any time.
        target_transform: Applied to every target.
    """

    classes: list[str]

    def __init__(
        self,
        transform: Transform | None,
        target_transform: Transform | None,
        memory_format: torch.memory_format,
        reducing_gap: float | None,
        apply_orientation: bool,
    ) -> None:
        if reducing_gap is not None and not reducing_gap >= 1:
            raise OptionError(f"reducing_gap must be at least 1, or None, got {reducing_gap!r}")
        if memory_format not in (torch.channels_last, torch.contiguous_format):
            raise OptionError(
                f"memory_format must be torch.channels_last or torch.contiguous_format, got {memory_format!r}"
            )
        self.transform = transform
        self.target_transform = target_transform
        self.memory_format = memory_format
        self.reducing_gap = reducing_gap
        self.apply_orientation = apply_orientation
        self._compiled: tuple[list[Any], Pipeline] | None = None

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class."""
        return {name: label for label, name in enumerate(self.classes)}

    def __getitem__(self, index: SupportsIndex) -> tuple[Any, Any]:
        """One sample, (image, target).

        Args:
            index: An int, a NumPy integer or a tensor of one; negative ones count from the end.

        Raises:
            RecordIndexError: There is no such sample.
            DamageError: The record differs from its checksum.
            DecodeError: Its image cannot be decoded.
        """
        return self._samples(self._positions([operator.index(index)]))[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[tuple[Any, Any]]:
        """Several samples: what torch's DataLoader asks for a batch."""
        return self._samples(self._positions(indices))

    def fetch_into(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> Any:
        """Makes a batch of samples where it is to lie: what fastload's DataLoader asks for.

        Args:
            indices: As for `dataset[index]`.
            out: Makes the tensors.

        Returns:
            What torch's `default_collate` makes of the samples: [images, targets], images (batch, 3, height,
            width). NotImplemented where they have to be made one by one: their sizes differ, the
            transform holds other libraries' callables, or `on_error` has to stand in.

        Raises:
            RecordIndexError: There is no such sample.
            DamageError: A record differs from its checksum.
            DecodeError: An image cannot be decoded.
        """
        pipeline = self._pipeline()
        if pipeline.is_foreign or len(indices) == 0:
            return NotImplemented
        positions = self._positions(indices)
        try:
            pictures = self._pictures(positions)
            images = fill(pictures, pipeline, draws_for(positions), out, self.memory_format)
            targets = None if images is None else self._batch_of_targets(positions, out)
        except (DamageError, DecodeError):
            if self._substitutes_samples:
                return NotImplemented
            raise
        return NotImplemented if images is None else [images, targets]

    def finish(self, images: torch.Tensor) -> torch.Tensor:
        """What `fetch_into` left to be done on a device: ToDtype and Normalize at the transform's end.

        Args:
            images: (batch, 3, height, width); if they are not uint8, nothing was left.
        """
        tail = self._pipeline().tail
        return images if tail is None or images.dtype != torch.uint8 else tail.on(images)

    @abstractmethod
    def __len__(self) -> int:
        """The number of samples."""

    #: Whether a sample that cannot be made is replaced by another.
    _substitutes_samples = False

    @abstractmethod
    def _stored_pictures(self, positions: NDArray[np.int64]) -> RecordPictures | FilePictures:
        """The stored pictures of some samples."""

    @abstractmethod
    def _targets(self, positions: NDArray[np.int64]) -> list[Any]:
        """The targets of some samples, before `target_transform`."""

    @abstractmethod
    def _labels(self, positions: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The same as one array, where targets are labels."""

    def _samples(self, positions: NDArray[np.int64]) -> list[tuple[Any, Any]]:
        """The samples at indices that lie in range."""
        if not len(positions):
            return []
        pipeline, draws = self._pipeline(), draws_for(positions)
        if pipeline.is_foreign:
            singles = (self._pictures(position) for position in positions[:, None])
            images = (pipeline.run(_whole(single), draws.image(i)) for i, single in enumerate(singles))
        else:
            pictures = self._pictures(positions)
            drawn = pipeline.draw(draws, pictures.sizes)
            views = enumerate(drawn.geometry.views())
            images = (render(pictures, pipeline, drawn, view, i) for i, view in views)
        # Sample by sample, an image before its target: the order in which an ImageFolder's transforms draw.
        return list(zip(images, map(self._target_transformed, self._targets(positions)), strict=True))

    def _pictures(self, positions: NDArray[np.int64]) -> Pictures:
        stored = self._stored_pictures(positions)
        return UprightPictures(stored) if self.apply_orientation else stored

    def _batch_of_targets(self, positions: NDArray[np.int64], out: BatchMemory) -> Any:
        labels = self._labels(positions)
        if labels is None or self.target_transform is not None:
            return default_collate([self._target_transformed(target) for target in self._targets(positions)])
        batch = out.empty(labels.shape, torch.int64)
        batch.numpy()[:] = labels
        return batch

    def _target_transformed(self, target: Any) -> Any:
        return target if self.target_transform is None else self.target_transform(target)

    def _pipeline(self) -> Pipeline:
        steps = flattened([] if self.transform is None else [self.transform])
        if self._compiled is None or self._compiled[0] != steps:
            self._compiled = steps, Pipeline(self.transform)
        return self._compiled[1]

    def _positions(self, indices: Sequence[SupportsIndex]) -> NDArray[np.int64]:
        """Indices counted from the first sample."""
        positions = np.asarray(indices)
        # NumPy would take floats and booleans for indices too.
        if positions.dtype.kind not in "iu" or positions.ndim != 1:
            positions = np.array([operator.index(index) for index in indices])
        length = len(self)
        is_outside = (positions < -length) | (positions >= length)
        if is_outside.any():
            first = positions[is_outside][0]
            raise RecordIndexError(f"{self}: index {first} is out of range for {length} samples")
        positions = positions.astype(np.int64, copy=False)
        return np.where(positions < 0, positions + length, positions)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("targets", "samples")}
        return {**state, "_compiled": None}


class PackedDataset(_ImageDataset):
    """The samples of a packed dataset.

    A sample is (image, target). The image is RGB: a uint8 tensor (3, height, width), in channels-last
    memory, or what the transform makes of it. Transforms of `fastload.transforms` are done while decoding,
    or for a whole batch at once; any other callable is given an array (height, width, 3), uint8, or a PIL
    image if it is one of torchvision's. The target is the label, an int (-1 where the
    source had none); where records have further fields, a dict of all fields but the image. A second
    image, such as a mask, is given as its encoded bytes.

    Opening reads the manifest alone. Records are read through a mapping of the shards' files, which
    all processes share.

    Args:
        path: The packed dataset.
        transform: Applied to every image.
        target_transform: Applied to every target.
        verify: When a record is checked against its CRC-32C: `once`, at its first reading by this process or
            by one forked from it; `always`; or `never`. A check costs 2 µs and 5 µs more for 100 KB
            (measured), against 1 ms for decoding such a photo.
        on_error: What to do with a record that is damaged or cannot be decoded: `"raise"`, or a
            function of (index, error) that returns the sample to use in its place.
        memory_format: Of the batches that fastload's DataLoader makes: `torch.channels_last`, in which images
            are decoded and convolutions are fastest; or `torch.contiguous_format`.
        reducing_gap: None: JPEGs are decoded at full size. A number of at least 1: at a half, a quarter or an
            eighth of each side wherever what is left has at least so many times the size that the transform
            resizes to; as PIL's parameter of this name. Faster for large photos, and not the same pixels:
            with a gap of 2, levels differ by 1 of 255 on average, and at edges by up to 16.
        apply_orientation: Whether images are turned as the EXIF orientation of their JPEG or PNG says. False,
            as torchvision's ImageFolder. (`yuv420` and `raw` keep none.)

    Raises:
        FormatError: The path holds no packed dataset, or one that cannot be read.
        OptionError: A parameter has none of the values above.

    Example:
        >>> dataset = fastload.PackedDataset("photos.fl")  # doctest: +SKIP
        >>> image, label = dataset[0]  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        verify: Verify = "once",
        on_error: str | Callable[[int, Exception], tuple[Any, Any]] = "raise",
        memory_format: torch.memory_format = torch.channels_last,
        reducing_gap: float | None = None,
        apply_orientation: bool = False,
    ) -> None:
        super().__init__(transform, target_transform, memory_format, reducing_gap, apply_orientation)
        if on_error != "raise" and not callable(on_error):
            raise OptionError(f'on_error must be "raise" or a function of (index, error), got {on_error!r}')
        self._records = RecordReader(path, verify)
        self._on_error = on_error
        manifest = self._records.manifest
        self.classes = list(manifest.classes)
        self._encoding = encoding_named(manifest.image.encoding or "keep")
        self._target_fields: tuple[Field, ...] = manifest.fields[1:]
        self._has_label_only = [field.name for field in self._target_fields] == ["label"]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"PackedDataset({str(self._records.folder)!r}, {len(self)} records)"

    @functools.cached_property
    def targets(self) -> list[int]:
        """The labels of all records; empty where records have none.

        Checked shard by shard, unless `verify` is `never`.

        Raises:
            DamageError: A shard is missing, or its labels differ from what their checksum says.
        """
        if not any(field.name == "label" for field in self._target_fields):
            return []
        return self._records.column("label").tolist()  # type: ignore[no-any-return]

    def read(self, index: SupportsIndex) -> Record:
        """One record as it is stored, checked, not decoded: its key, encoded image and fields.

        Args:
            index: As for `dataset[index]`.

        Raises:
            RecordIndexError: There is no such record.
            DamageError: The record differs from its checksum.
        """
        return self._records.read(int(self._positions([operator.index(index)])[0]))

    def prefetch(self, indices: Sequence[int]) -> None:
        """Tells the system that some records will be read soon, so that it fetches them from the disk now.

        Args:
            indices: Of the records; all in range.
        """
        self._records.prefetch("image", np.asarray(indices, np.int64))

    @property
    def _substitutes_samples(self) -> bool:  # type: ignore[override]
        return callable(self._on_error)

    def _samples(self, positions: NDArray[np.int64]) -> list[tuple[Any, Any]]:
        if not callable(self._on_error):
            return super()._samples(positions)
        samples = []
        for position in positions:
            try:
                samples += super()._samples(position[None])
            except (DamageError, DecodeError) as error:
                samples.append(self._on_error(int(position), error))
        return samples

    def _stored_pictures(self, positions: NDArray[np.int64]) -> RecordPictures:
        return RecordPictures(self._records, self._encoding, positions, self.reducing_gap)

    def _targets(self, positions: NDArray[np.int64]) -> list[Any]:
        records = map(self._records.read, positions.tolist())
        if self._has_label_only:
            return [record["label"] for record in records]
        return [{field.name: record[field.name] for field in self._target_fields} for record in records]

    def _labels(self, positions: NDArray[np.int64]) -> NDArray[np.int64] | None:
        return self._records.taken("label", positions) if self._has_label_only else None


class FolderDataset(_ImageDataset):
    """The samples of a folder of images, with no packing: ImageFolder, decoded by OpenCV.

    Classes, files and their order are those of torchvision's ImageFolder; a folder without class
    folders gives its images the label -1. Samples are those of `PackedDataset`.

    Args:
        path: The folder.
        transform: Applied to every image.
        target_transform: Applied to every target.
        memory_format: As for `PackedDataset`.
        reducing_gap: As for `PackedDataset`.
        apply_orientation: As for `PackedDataset`.

    Attributes:
        root: The folder, as it was given.
        source: The listing of its files.

    Raises:
        SourceError: The folder cannot be listed, holds no images, or is split into train, val, test.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        memory_format: torch.memory_format = torch.channels_last,
        reducing_gap: float | None = None,
        apply_orientation: bool = False,
    ) -> None:
        super().__init__(transform, target_transform, memory_format, reducing_gap, apply_orientation)
        self.root = os.fspath(path)
        sources = list_folder(os.path.expanduser(self.root))
        if "" not in sources:
            raise SourceError(f"{self.root}: is split into {', '.join(sources)}: name one of these folders")
        self.source = sources[""]
        self._headers = FileHeaders(len(self.source))
        self.classes = list(self.source.classes)

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"FolderDataset({self.root!r}, {len(self)} files)"

    @functools.cached_property
    def samples(self) -> list[tuple[str, int]]:
        """(path, label) of all files, as ImageFolder has them; `imgs` is the same."""
        files = self.source.files
        return [(files.path(index), label) for index, label in enumerate(self.targets)]

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """See `samples`."""
        return self.samples

    @functools.cached_property
    def targets(self) -> list[int]:
        """The labels of all files."""
        return np.asarray(self.source.values["label"]).tolist()  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_headers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._headers = FileHeaders(len(self.source))

    def prefetch(self, indices: Sequence[int]) -> None:
        """Tells the system that some files will be read soon, so that it fetches them from the disk now.

        Args:
            indices: Of the files; all in range.
        """
        self.source.files.prefetch(indices)

    def _stored_pictures(self, positions: NDArray[np.int64]) -> FilePictures:
        return FilePictures(self.source, self.root, positions.tolist(), self._headers, self.reducing_gap)

    def _targets(self, positions: NDArray[np.int64]) -> list[Any]:
        return self._labels(positions).tolist()  # type: ignore[no-any-return]

    def _labels(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = np.asarray(self.source.values["label"], np.int64)[positions]
        return labels


def _whole(pictures: Pictures) -> NDArray[np.uint8]:
    """All pixels of a single picture, the caller's to write to."""
    height, width = pictures.sizes[0].tolist()
    pixels = pictures.region(0, Box(0, 0, height, width), (height, width))
    return pixels if pixels.flags.writeable and pixels.base is None else pixels.copy()

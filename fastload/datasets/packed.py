"""PackedDataset: the records of shards, as a map-style dataset."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import torch

from fastload.contracts import BatchMemory
from fastload.datasets.batch import Positions
from fastload.datasets.cache.options import Cache, cache_of
from fastload.datasets.cache.originals import RecordOriginals
from fastload.datasets.images import AnySample, ImageDataset
from fastload.datasets.objects import ObjectFields
from fastload.datasets.records import RecordImages, Records, RecordValues
from fastload.errors import DamageError, DecodeError, OptionError
from fastload.images.encodings import Encoding, encoding_named
from fastload.images.pixel_types import RGB, PixelType
from fastload.shards.reading_ahead import ReadingAhead
from fastload.shards.record import Record
from fastload.shards.records import RecordReader, Verify
from fastload.shards.remote import RemoteFolder, is_url
from fastload.transforms.annotations import Annotations
from fastload.transforms.compose import AnyTransform
from fastload.transforms.draws import current_draws
from fastload.transforms.levels.converting import ToPILImage
from fastload.transforms.transform import Sizes


class PackedDataset(ImageDataset):
    """The samples of a packed dataset.

    A sample is (image, target). The image is RGB: a uint8 tensor (3, height, width), in channels-last
    memory, or the result of the transform. Transforms of `fastload.transforms` are applied while decoding, or
    to a whole batch at once; any other callable gets an array (height, width, 3), uint8, or a PIL image if it
    is one of torchvision's. The target is the label, an int (-1 without a label in the source); if records
    have further fields, it is a dict of all fields but the image: numbers, arrays, str and bytes. Objects are
    tensors in pixels of the image: `boxes` (objects, 4) x1 y1 x2 y2, `labels`, `polygons`, `keypoints`,
    `corners`; a mask of classes is `mask` (height, width), see the page "Packing" of the documentation.
    Other image fields are the bytes of their files or, if stored as pixels (`raw`, `yuv420`), tensors like
    the image. Without an image, a sample is the values alone: a dict of all fields or, if packed from a
    Python dataset of tuples such as (vector, label), such a tuple; `target_transform` is then applied to it.

    Opening a dataset reads only the manifest. Records are read through a mapping of the shards' files, which
    all processes share.

    Args:
        path: The packed dataset: a folder, or a URL such as `s3://bucket/photos.fl`: see the page
            "Remote datasets".
        transform: Applied to every image.
        target_transform: Applied to every target.
        verify: When a record is checked against its CRC-32C: `once`, when this process or one forked from it
            first reads it; `always`; or `never`. A check costs 2 µs, and 5 µs more for 100 KB (measured),
            against 1 ms for decoding such a photo.
        on_error: `"raise"`, or a function of (index, error) that returns a sample to use instead of one
            that is damaged or cannot be decoded.
        memory_format: The format of batches that fastload's DataLoader makes: `torch.channels_last`, in which
            images are decoded and convolutions are fastest; or `torch.contiguous_format`.
        reducing_gap: With None, JPEGs are decoded at full size. With a number of at least 1, they are decoded
            at a half, a quarter or an eighth of each side if the result is still at least that many times as
            large as the size to which the transform resizes; like PIL's parameter of this name. This is
            faster for large photos, and changes pixels: with a gap of 2, levels differ by 1 of 255 on
            average, and at edges by up to 16.
        apply_orientation: Turn images by the EXIF orientation of their file (`yuv420` and `raw` store
            none). The default is False, as in torchvision's ImageFolder; with objects, it is True if their
            coordinates refer to upright images, as YOLO's do.
        cache: Where to cache the samples: `"auto"`, `"ram"`, `"tmpfs"`, `"device"`, for image files also
            `"disk"`, or a `fastload.Cache`; None for no cache. See the page "Caching".
        transforms: A function of (image, target), as for torchvision's datasets: it gets a PIL image and the
            target, and returns the sample. Samples are then made one by one.
        tv_tensors: Boxes, keypoints and masks are torchvision's tv_tensors, which the transforms of
            torchvision.transforms.v2 move; polygons become `masks`, one for each object.
        storage_options: For a URL: arguments of fsspec's file system, such as `key` and `endpoint_url`.

    Raises:
        FormatError: The path holds no packed dataset, or one that cannot be read.
        OptionError: A parameter has an invalid value.

    Example:
        >>> dataset = fastload.PackedDataset("photos.fl")  # doctest: +SKIP
        >>> image, label = dataset[0]  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | RemoteFolder,
        transform: AnyTransform | None = None,
        target_transform: AnyTransform | None = None,
        *,
        verify: Verify = "once",
        on_error: str | Callable[[int, Exception], AnySample] = "raise",
        memory_format: torch.memory_format = torch.channels_last,
        reducing_gap: float | None = None,
        apply_orientation: bool | None = None,
        cache: str | Cache | None = None,
        transforms: Callable[..., AnySample] | None = None,
        tv_tensors: bool = False,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(transform, target_transform, memory_format, reducing_gap, bool(apply_orientation))
        if on_error != "raise" and not callable(on_error):
            raise OptionError(f'on_error must be "raise" or a function of (index, error), got {on_error!r}')
        if transforms is not None and (transform is not None or target_transform is not None):
            raise OptionError("transforms must be given alone, without transform and target_transform")
        self.transforms = transforms
        self.tv_tensors = tv_tensors
        if is_url(path):
            path = RemoteFolder(str(path), storage_options)
        elif storage_options is not None:
            raise OptionError(f"storage_options are for a URL, got them for {path!r}: leave them out")
        copies = None if cache is None else cache_of(cache)
        if isinstance(path, RemoteFolder) and copies is not None and copies.kind == "disk":
            # It only sets the folder and the size limit of the copies of shards.
            self._records, cache = RecordReader(path, verify, copies.folder, copies.most_bytes), None
        else:
            self._records = RecordReader(path, verify)
        self._on_error = on_error
        self.substitutes_samples = callable(on_error)
        manifest = self._records.manifest
        self.classes = list(manifest.classes)
        self._encoding = None
        if (image := manifest.image) is not None:
            self._encoding = encoding_named(image.encoding, pixel_type=image.pixel_type)
        self.has_images = self._encoding is not None
        self._values = RecordValues(manifest)
        self._objects = ObjectFields.of(self._values.fields)
        if self._objects is not None:
            self.apply_orientation = self._required_orientation(apply_orientation)
        if transforms is not None or reducing_gap is not None or apply_orientation:
            self._require_images("transforms, reducing_gap and apply_orientation are")
        if transform is not None:
            self._require_images("transform is")
        self.use_cache(cache)

    @property
    def shard_sizes(self) -> list[int]:
        """The number of records in each shard; records are numbered through all of them."""
        return [shard.records for shard in self._records.manifest.shards]

    @property
    def limits(self) -> tuple[str, ...]:
        """Limits of this process that make reading slow, as sentences with the remedy."""
        return self._records.limits

    @property
    def folder(self) -> Path | RemoteFolder:
        """The folder of the shards."""
        return self._records.folder

    @property
    def pixel_type(self) -> PixelType:
        """The dtype and the number of channels of the images."""
        return RGB if self._encoding is None else self._encoding.pixel_type

    @property
    def encoding(self) -> str | None:
        """The encoding of the images; None without images."""
        return None if self._encoding is None else self._encoding.name

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"PackedDataset({str(self._records.folder)!r}, {len(self):,} records)"

    @functools.cached_property
    def targets(self) -> list[Any]:
        """The labels of all records; empty if records have none.

        Verified shard by shard, unless `verify` is `never`. Labels that are text, bytes or ragged are read
        record by record.

        Raises:
            DamageError: A shard is missing, or its labels fail their checksum.
        """
        kinds = [field.kind for field in self._values.fields if field.name == "label"]
        if not kinds:
            return []
        if kinds[0] in ("scalar", "vector"):
            return self._records.column("label").tolist()  # type: ignore[no-any-return]
        return [self._values.value("label", self._records.read(index)) for index in range(len(self))]

    def read(self, index: SupportsIndex) -> Record:
        """Return one record as it is stored, verified but not decoded: its key, encoded image and fields.

        Args:
            index: As for `dataset[index]`.

        Raises:
            RecordIndexError: There is no such record.
            DamageError: The record fails its checksum.
        """
        return self._records.read(int(self.positions_of([operator.index(index)])[0]))

    def read_ahead(self, position: Callable[[], int], in_flight: int) -> ReadingAhead | None:
        """Return the prefetcher of remote shards, see `AnnouncesBatches`; None on this machine."""
        return None if self._records.remote is None else ReadingAhead(self._records, position, in_flight)

    def _samples(self, positions: Positions) -> list[AnySample]:
        if not callable(self._on_error):
            return self._samples_or_raise(positions)
        samples = []
        for position in positions:
            try:
                samples += self._samples_or_raise(position[None])
            except (DamageError, DecodeError) as error:
                samples.append(self._on_error(int(position), error))
        return samples

    def _samples_or_raise(self, positions: Positions) -> list[AnySample]:
        """Return the samples at valid positions; raise the error of one that cannot be made."""
        if self._encoding is None:
            self._verify_values(positions)
            return list(self._final_targets(positions, None))
        if self.transforms is None:
            if self._objects is not None and self.pipeline().is_foreign:
                raise OptionError(
                    "transform must be one of fastload's for images with objects or a mask, because others "
                    "would move the image alone: pass a function of (image, target) as `transforms`"
                )
            return super()._samples(positions)
        images = map(ToPILImage(), self._full_images(positions))
        return list(map(self.transforms, images, self.targets_of(positions)))

    def fetch_into(self, indices: Sequence[SupportsIndex], out: BatchMemory) -> object:
        """See `ImageDataset`; without images, the result is that of `default_collate` for the samples."""
        if self.transforms is not None or (self._encoding is None and len(indices) == 0):
            return NotImplemented
        if self._encoding is not None:
            return super().fetch_into(indices, out)
        positions = self.positions_of(indices)
        try:
            self._verify_values(positions)
        except DamageError:
            if self.substitutes_samples:
                return NotImplemented
            raise
        return self.batch_of_targets(positions, out)

    def _stored_images(self, positions: Positions) -> RecordImages:
        self._begin_epoch()
        encoding = self._require_images("pixels are")
        self._records.verify_records(positions)
        return RecordImages(self._records, encoding, positions, self.reducing_gap)

    def _verify_values(self, positions: Positions) -> None:
        """Verify records without images, according to `verify`."""
        if self.transform is not None:
            self._require_images("transform is")
        self._begin_epoch()
        if self._cache is None:
            self._records.verify_records(positions)
        else:
            self._cache.hold(positions)

    def _begin_epoch(self) -> None:
        if (draws := current_draws()) is not None:
            self._records.begin_epoch(draws.seed)

    def _require_images(self, what: str) -> Encoding:
        """Return the encoding of the images; raise OptionError about `what` is for them if there are none."""
        if self._encoding is None:
            raise OptionError(
                f"{self}: {what} for images, and its records have none: leave it out (target_transform gets "
                "the samples)"
            )
        return self._encoding

    @property
    def _stored(self) -> Records:
        """The records, from the shards or through the cache."""
        return self._records if self._cache is None else self._cache.records(self._records)

    def _originals(self) -> RecordOriginals:
        return RecordOriginals(self._records, self._encoding)

    def _prefetch(self, positions: Positions) -> None:
        if self._encoding is not None:
            self._records.prefetch("image", positions)

    def targets_of(
        self, positions: Positions, annotations: Sequence[Annotations] | None = None
    ) -> list[object]:
        # The records were verified when the source of their images was made.
        records = map(self._stored.read_verified, positions.tolist())
        if self._objects is None:
            return list(map(self._values.of, records))
        if annotations is None:
            annotations = self.annotations_of(positions, self.source_of(positions).sizes) or ()
        pairs = zip(annotations, records, strict=True)
        return [self._objects.target(*pair, self._values.value, self.tv_tensors) for pair in pairs]

    def annotations_of(self, positions: Positions, sizes: Sizes) -> list[Annotations] | None:
        if self._objects is None:
            return None
        records = map(self._stored.read_verified, positions.tolist())
        return list(map(self._objects.annotations, records, map(tuple, sizes.tolist())))

    def batch_of_targets(
        self, positions: Positions, out: BatchMemory, annotations: Sequence[Annotations] | None = None
    ) -> object:
        if annotations is None and self.target_transform is None:
            return self._values.batch(self._stored, positions, out)
        try:
            return super().batch_of_targets(positions, out, annotations)
        except RuntimeError as error:
            if annotations is None:
                raise
            raise OptionError(
                "targets must have as many objects in each image for torch's default collation: pass "
                "collate_fn=fastload.collate_lists or fastload.collate_ultralytics to the DataLoader"
            ) from error

    def annotations(self, index: SupportsIndex) -> Annotations:
        """Return the objects of a record in pixels of its image, before any transform.

        Args:
            index: As for `dataset[index]`.

        Raises:
            OptionError: Records have no objects and no mask of classes.
            RecordIndexError: There is no such record.
            DamageError: The record fails its checksum.
        """
        positions = self.positions_of([operator.index(index)])
        if self._objects is None:
            raise OptionError(f"{self}: records must have objects or a mask, got none: use dataset[index]")
        found = self.annotations_of(positions, self.source_of(positions).sizes)
        assert found is not None
        return found[0]

    def _required_orientation(self, is_wanted: bool | None) -> bool:
        """Return True if coordinates are those of upright images; raise OptionError if that is not wanted."""
        is_required = self._records.manifest.details.get("is_upright") is True
        if is_wanted is not None and is_wanted != is_required:
            raise OptionError(
                f"apply_orientation must be {is_required} for {self._records.folder}, because its "
                f"coordinates are those of images {'turned upright' if is_required else 'as stored'}, "
                f"got {is_wanted}: leave it out"
            )
        return is_required

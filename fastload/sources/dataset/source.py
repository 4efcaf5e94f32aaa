"""Map-style datasets as sources: their samples, or the files behind a dataset that only reads files."""

from __future__ import annotations

import contextlib
import operator
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastload.contracts import ReadsFiles, SourceRecord
from fastload.errors import FastloadError, SourceError
from fastload.shards.schema import Field
from fastload.sources.dataset.nested import (
    has_image,
    is_instance,
    kept_as_arrays,
    merged,
    require_boxes,
    sample_form,
    split_sample,
    unmoved,
)
from fastload.sources.dataset.samples import infer_fields, require_no_images, to_image, to_values
from fastload.sources.file_source import FileSource
from fastload.sources.files import list_files
from fastload.sources.malformed import explaining
from fastload.sources.protocol import CLASS_FOLDERS, Source, evenly_spaced
from fastload.system.random_states import preserved_random_states

# The number of samples that are read to see which lists vary in length.
_SAMPLED = 8


class DatasetSource(Source):
    """A source of a dataset's samples, each `(image, target)` or a dict with an `image`, or all without one.

    Unless `fields` describes the samples, all must have the names and dtypes of the first, and also its
    shapes, except for lists whose length varies among a few sampled ones. An empty dataset has the field
    `label`. A target that is not a dict fills the only field. A field of kind `image` accepts the same types
    as the image. The first sample shows whether there are images. The dataset must be picklable if workers
    are not forked.
    """

    def __init__(self, dataset: Any, fields: Sequence[Field] | None = None) -> None:
        self.name = type(dataset).__name__
        self._dataset = dataset
        self._length = len(dataset)
        self._are_inferred = fields is None
        with preserved_random_states():
            sample = self._first_sample(is_required=fields is None)
            has_images = sample is None or has_image(sample)
            found = self._inferred(sample, has_images) if fields is None else tuple(fields)
        target = sample[1] if isinstance(sample, (tuple, list)) and len(sample) > 1 else sample
        named = isinstance(target, Mapping)  # the sample names its values itself
        self._target_name = found[0].name if len(found) == 1 and not (fields is None and named) else None
        warnings, details = unmoved(found) if self._are_inferred else (), {}
        if not has_images:
            with self._naming(0):
                require_no_images(found)
                warnings = kept_as_arrays(sample) if self._are_inferred else ()
                form = sample_form(sample, [field.name for field in found])
            details = {} if form is None else {"sample": form}
        super().__init__(
            kind="dataset",
            name=self.name,
            classes=_class_names(dataset),
            fields=found,
            warnings=warnings,
            details=details,
            has_images=has_images,
        )

    def __len__(self) -> int:
        return self._length

    def read(self, index: int) -> SourceRecord:
        """Read one sample; raise SourceError, naming it, if the dataset raises or the fields do not fit."""
        with self._naming(index):
            sample = self._dataset[index]
            image, values = split_sample(sample, self._target_name, has_image=self.has_images)
            values = to_values(self.fields, values, self._are_inferred)
            require_boxes(self.fields, values)
            return SourceRecord(self.key(index), to_image(image) if self.has_images else None, values)

    def fingerprint(self) -> None:
        """Return None, because changes of a dataset's samples cannot be detected."""
        return None

    def _first_sample(self, *, is_required: bool) -> object:
        """Return the first sample that can be read; raise SourceError if it must be that at index 0."""
        for index in (0, *evenly_spaced(self._length, _SAMPLED)) if self._length else ():
            ignoring = contextlib.nullcontext() if is_required else contextlib.suppress(SourceError)
            with ignoring, self._naming(index):
                return self._dataset[index]
        return None

    def _inferred(self, sample: object, has_images: bool) -> tuple[Field, ...]:
        """Return the fields of the first sample, with lists whose length varies among a few others."""
        if not self._length:
            return (Field.label(),)
        fields: tuple[Field, ...] = ()
        with self._naming(0):
            fields = infer_fields(sample, has_image=has_images)
        for index in evenly_spaced(self._length, _SAMPLED):
            # A sample that cannot be read is reported when it is packed.
            with contextlib.suppress(SourceError), self._naming(index):
                fields = merged(fields, infer_fields(self._dataset[index], has_image=has_images))
        return fields

    @contextlib.contextmanager
    def _naming(self, index: int) -> Iterator[None]:
        """Turn anything that the dataset raises into a SourceError that names the sample."""
        try:
            yield
        except Exception as error:
            kind = "" if isinstance(error, FastloadError) else f"{type(error).__name__}: "
            raise SourceError(f"{self.name}, sample {index}: {kind}{error}") from error


def files_behind(dataset: Any) -> FileSource | None:
    """Return the files of a dataset that only reads them, such as an ImageFolder without transforms.

    Files can be packed byte for byte; decoded samples would be larger or lossy. The dataset is one that
    `ReadsFiles`, or has `samples`, `classes` and `root` like ImageFolder, or is torch's Subset of such a
    dataset. Return None if the dataset does more: if it has transforms, another loader, or another
    `__getitem__`.
    """
    if isinstance(dataset, ReadsFiles):
        return dataset.files_read()
    if _is_subset(dataset) and type(dataset).__module__ == "torch.utils.data.dataset":
        parent = files_behind(dataset.dataset)
        if parent is None:
            return None
        where, must = f"Subset of {parent.name}", f"have indices below {len(parent)}"
        with explaining((IndexError,), where, must, "make it again from the dataset"):
            return parent.part([operator.index(index) for index in dataset.indices])
    if any(getattr(dataset, name, None) is not None for name in ("transform", "target_transform")):
        return None
    # The effects of a subclass's own __getitem__ or of a loader would be lost silently.
    makers = [type(dataset).__getitem__, *([dataset.loader] if hasattr(dataset, "loader") else [])]
    if any(getattr(maker, "__module__", None) != "torchvision.datasets.folder" for maker in makers):
        return None
    if not all(hasattr(dataset, name) for name in ("samples", "classes", "root")):
        return None
    root = os.path.abspath(dataset.root)
    prefix = os.path.join(root, "")
    files = list_files(root, (os.path.abspath(path).removeprefix(prefix) for path, _ in dataset.samples))
    return FileSource(
        kind=CLASS_FOLDERS,
        name=os.fspath(dataset.root),
        classes=_class_names(dataset),
        fields=(Field.label(),),
        files=files,
        values={"label": np.array(array("q", (label for _, label in dataset.samples)))},
    )


def _class_names(dataset: Any) -> tuple[str, ...]:
    classes = getattr(dataset, "classes", None)
    if classes is None and _is_subset(dataset):
        return _class_names(dataset.dataset)
    if not isinstance(classes, (list, tuple)):
        return ()
    # torchvision's ImageNet has a tuple of synonyms for each class.
    return tuple(", ".join(name) if isinstance(name, tuple) else str(name) for name in classes)


def _is_subset(dataset: Any) -> bool:
    return is_instance(dataset, "torch.utils.data", "Subset")

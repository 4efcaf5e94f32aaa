"""Any map-style dataset as a source: its samples are read as they are, decoded or not."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastload.errors import FastloadError, SourceError
from fastload.shards.schema import Field
from fastload.sources.files import FileLister, FileSource
from fastload.sources.protocol import SourceRecord, evenly_spaced
from fastload.sources.samples import infer_fields, split_sample, to_image, to_values

_PLAIN_MODULES = {"torchvision.datasets.folder", "fastload.dataset"}


class DatasetSource:
    """The samples of a dataset with `__len__` and `__getitem__`, each `(image, target)` or a dict.

    What a sample may hold is said by `samples.to_image` and `samples.infer_fields`. All samples
    must be like the first, unless `fields` says what they hold.

    Args:
        dataset: The dataset; it must survive a pickle where workers are not forked.
        fields: What the samples hold beside the image. A target that is no dict fills the only
            field; a field of kind `image` takes what the image takes.

    Raises:
        SourceError: The dataset is empty, or its first sample is none that can be packed.
    """

    kind = "dataset"
    warnings: tuple[str, ...] = ()

    def __init__(self, dataset: Any, fields: Sequence[Field] | None = None) -> None:
        self.name = type(dataset).__name__
        self.classes = _class_names(dataset)
        self._dataset = dataset
        self._length = len(dataset)
        if not self._length:
            raise SourceError(f"{self.name}: must hold a sample, got none: check the dataset")
        self.fields = self._first_fields() if fields is None else tuple(fields)

    def __len__(self) -> int:
        return self._length

    def key(self, index: int) -> str:
        """The index in eight digits or more, so that keys sort as records do."""
        return f"{index:08d}"

    def read(self, index: int) -> SourceRecord:
        """Reads one sample.

        Raises:
            SourceError: The dataset raised, or the sample is not what the fields say; names it.
        """
        with self._naming(index):
            target_name = self.fields[0].name if len(self.fields) == 1 else None
            image, values = split_sample(self._dataset[index], target_name)
            return SourceRecord(self.key(index), to_image(image), to_values(self.fields, values))

    def fingerprint(self) -> str:
        """A digest of the dataset's class, length, class names and fields; not of its samples.

        Those are neither cheap to read nor, under random transforms, equal when read twice.
        """
        description = repr((self.kind, self.name, self._length, self.classes, self.fields))
        return hashlib.blake2b(description.encode(), digest_size=16).hexdigest()

    def size_bytes(self) -> None:
        """None, because what samples weigh is not known before they are read."""

    def sample(self, count: int) -> list[int]:
        """At most `count` indices, evenly spaced over the source."""
        return evenly_spaced(self._length, count)

    def _first_fields(self) -> tuple[Field, ...]:
        with self._naming(0), _kept_randomness():
            return infer_fields(self._dataset[0])

    @contextlib.contextmanager
    def _naming(self, index: int) -> Iterator[None]:
        """Turns whatever a foreign dataset raises into an error that names the sample."""
        try:
            yield
        except Exception as error:
            kind = "" if isinstance(error, FastloadError) else f"{type(error).__name__}: "
            raise SourceError(f"{self.name}, sample {index}: {kind}{error}") from error


def folder_behind(dataset: Any) -> FileSource | None:
    """The files of a dataset that only reads them, such as an ImageFolder without transforms.

    Files can be packed byte for byte; decoded samples would be larger or lossy.

    Args:
        dataset: Has `samples` (pairs of path and label), `classes` and `root` as ImageFolder has;
            or `source`, the FileSource that it reads.

    Returns:
        None where the dataset does more: transforms, a loader or samples of its own.
    """
    if not _is_plain(dataset):
        return None
    source = getattr(dataset, "source", None)
    if isinstance(source, FileSource):
        return source
    if not all(hasattr(dataset, name) for name in ("samples", "classes", "root")):
        return None
    return _image_folder(dataset)


def _image_folder(dataset: Any) -> FileSource:
    root = os.path.abspath(dataset.root)
    prefix = os.path.join(root, "")
    lister = FileLister(root)
    labels = array("q")
    for path, label in dataset.samples:
        lister.add(os.path.abspath(path).removeprefix(prefix))
        labels.append(label)
    return FileSource(
        "folder",
        os.fspath(dataset.root),
        _class_names(dataset),
        (Field.label(),),
        lister.finish(),
        {"label": np.array(labels)},
    )


def _is_plain(dataset: Any) -> bool:
    """Whether samples are just what torchvision or fastload makes of the files."""
    if any(getattr(dataset, name, None) is not None for name in ("transform", "target_transform")):
        return False
    # What a subclass's own __getitem__ or a loader does to an image would be lost without a word.
    makers = [type(dataset).__getitem__]
    if hasattr(dataset, "loader"):
        makers.append(dataset.loader)
    return {getattr(maker, "__module__", None) for maker in makers} <= _PLAIN_MODULES


def _class_names(dataset: Any) -> tuple[str, ...]:
    classes = getattr(dataset, "classes", None)
    if not isinstance(classes, (list, tuple)):
        return ()
    # torchvision's ImageNet has a tuple of synonyms for each class.
    return tuple(", ".join(name) if isinstance(name, tuple) else str(name) for name in classes)


@contextlib.contextmanager
def _kept_randomness() -> Iterator[None]:
    """Leaves the global random states as they were: a look at a dataset must not change a run."""
    torch = sys.modules.get("torch")
    python_state, numpy_state = random.getstate(), np.random.get_state()
    torch_state = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if torch:
            torch.set_rng_state(torch_state)

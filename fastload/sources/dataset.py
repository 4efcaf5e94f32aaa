"""Any map-style dataset as a source: its samples are read as they are, decoded or not."""

from __future__ import annotations

import contextlib
import hashlib
import operator
import os
import random
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastload.errors import FastloadError, SourceError
from fastload.shards.manifest import LeftOut, Skipped
from fastload.shards.schema import Field
from fastload.sources.files import FileLister, FileSource
from fastload.sources.protocol import SourceRecord, evenly_spaced
from fastload.sources.samples import infer_fields, is_instance, split_sample, to_image, to_values

_FINGERPRINTED_SAMPLES = 64
_PLAIN_MODULES = {"torchvision.datasets.folder", "fastload.datasets.images"}


class DatasetSource:
    """The samples of a dataset with `__len__` and `__getitem__`, each `(image, target)` or a dict.

    What a sample may hold is said by `samples.to_image` and `samples.infer_fields`. All samples
    must be like the first, in names, shapes and dtypes, unless `fields` says what they hold; where there is
    none, they hold a label.

    Args:
        dataset: The dataset; it must survive a pickle where workers are not forked.
        fields: What the samples hold beside the image. A target that is no dict fills the only
            field; a field of kind `image` takes what the image takes.

    Raises:
        SourceError: The first sample is none that can be packed.
    """

    kind = "dataset"
    columns: Mapping[str, str] = {}
    left_out: tuple[LeftOut, ...] = ()
    unlisted: tuple[Skipped, ...] = ()

    def __init__(self, dataset: Any, fields: Sequence[Field] | None = None) -> None:
        self.name = type(dataset).__name__
        self.classes = _class_names(dataset)
        self._dataset = dataset
        self._length = len(dataset)
        self.warnings = tuple(_warnings(dataset))
        self._are_inferred = fields is None
        self.fields, has_names = self._first_fields() if fields is None else (tuple(fields), False)
        self._target_name = self.fields[0].name if len(self.fields) == 1 and not has_names else None

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
            image, values = split_sample(self._dataset[index], self._target_name)
            values = to_values(self.fields, values, self._are_inferred)
            return SourceRecord(self.key(index), to_image(image), values)

    def fingerprint(self) -> str:
        """A digest of the dataset's class, length, class names and fields, and of up to 64 samples.

        These are evenly spaced and read whole, pixels and values; one that raises counts as that.
        They are read under fresh random seeds, so that a dataset with random transforms never has
        the same fingerprint twice, however it is seeded; the global random states are left as they
        were.
        """
        description = repr((self.kind, self.name, self._length, self.classes, self.fields))
        digest = hashlib.blake2b(description.encode(), digest_size=16)
        with _kept_randomness():
            _reseed()
            for index in self.sample(_FINGERPRINTED_SAMPLES):
                try:
                    record = self.read(index)
                except SourceError:
                    digest.update(b"raises")
                else:
                    for value in (record.image, *record.values.values()):
                        _add(digest, value)
        return digest.hexdigest()

    def size_bytes(self) -> None:
        """None, because what samples weigh is not known before they are read."""

    def sample(self, count: int) -> list[int]:
        """At most `count` indices, evenly spaced over the source."""
        return evenly_spaced(self._length, count)

    def _first_fields(self) -> tuple[tuple[Field, ...], bool]:
        """The fields of the first sample, and whether it names them."""
        if not self._length:
            return (Field.label(),), False
        with self._naming(0), _kept_randomness():
            sample = self._dataset[0]
            return infer_fields(sample), isinstance(sample, Mapping) or isinstance(sample[1], Mapping)

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
            or `source`, the FileSource that it reads; or is torch's Subset of such a dataset.

    Returns:
        None where the dataset does more: transforms, a loader or samples of its own.

    Raises:
        SourceError: A Subset has an index that its dataset has not.
    """
    if _is_subset(dataset) and type(dataset).__module__ == "torch.utils.data.dataset":
        whole = folder_behind(dataset.dataset)
        return None if whole is None else _part(whole, dataset.indices)
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


def _part(whole: FileSource, indices: Sequence[Any]) -> FileSource:
    try:
        return whole.part([operator.index(index) for index in indices])
    except IndexError as error:
        raise SourceError(
            f"Subset of {whole.name}: must have indices below {len(whole)}, got: {error}: "
            "make it anew from the dataset"
        ) from error


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
    if classes is None and _is_subset(dataset):
        return _class_names(dataset.dataset)
    if not isinstance(classes, (list, tuple)):
        return ()
    # torchvision's ImageNet has a tuple of synonyms for each class.
    return tuple(", ".join(name) if isinstance(name, tuple) else str(name) for name in classes)


def _is_subset(dataset: Any) -> bool:
    return is_instance(dataset, "torch.utils.data", "Subset")


def _warnings(dataset: Any) -> Iterator[str]:
    whole = dataset
    while _is_subset(whole):
        whole = whole.dataset
    if is_instance(whole, "fastload.datasets.packed", "PackedDataset"):
        yield (
            f"{whole} is packed already: its images are decoded and stored anew, larger or with a loss; "
            "pack what it was made from, or what 'fastload unpack' makes of it"
        )


def _add(digest: hashlib.blake2b, value: object) -> None:
    """Adds one value of a record, and before it what tells it from any other."""
    if isinstance(value, np.ndarray):
        digest.update(repr((value.dtype.str, value.shape)).encode())
        digest.update(np.ascontiguousarray(value).data)
    elif isinstance(value, bytes):
        digest.update(repr(("bytes", len(value))).encode())
        digest.update(value)
    else:
        digest.update(repr(value).encode())


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


def _reseed() -> None:
    """Draws new global random states."""
    random.seed()
    np.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()

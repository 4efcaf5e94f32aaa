"""WebDataset's tar shards as sources: a .tar, a folder of them, or a pattern such as `shard-{000..003}.tar`.

Shards may be compressed (.tar.gz, .tgz, .tar.bz2, .tar.xz and, with Python 3.14, .tar.zst).

The members of a sample follow each other and share a key: the path up to the first dot in the file name. The
rest of each name is an extension. Shards named after splits, or in folders named after them, give one source
per split. The last part of an extension determines the field:

    jpg, png, …        the image; if samples hold several, each a field named by its extension
    cls                the label: an integer, or a class name
    cls2, id, index, … an int64 field if every member is an integer, else a text field
    txt, json, …       a text field
    npy                a field of arrays, if all have the same dtype and shape of rows
    anything else      a bytes field; nothing is unpickled

If samples hold only images, in several folders, the names of the folders are the classes. Samples may also
hold no images at all.

SourceError is raised on reading a sample that lacks a member present in others of its split. Folders, links
and members named `__…__` are left out, as by webdataset; all but folders are recorded.
"""

from __future__ import annotations

import dataclasses
import io
import math
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload.images.formats import MOST_BYTES
from fastload.shards.schema import DTYPES, Field
from fastload.sources.containers import (
    SHARD,
    ContainerSource,
    expand_braces,
    files_by_split,
    holds_only,
    list_data_files,
)
from fastload.sources.files import NO_LABEL, NOT_FOUND, FileList, list_files, require_decodable, safe_key
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.malformed import explaining, malformed
from fastload.sources.names import NameTable
from fastload.sources.protocol import SourceRecord
from fastload.sources.table.columns import free_field_name, labels_of, numbers_in
from fastload.sources.walking import IMAGE_SUFFIXES, by_split, list_entries, split_names
from fastload.sources.webdataset.tar import TAR_SUFFIXES, TarReader, tar_members

_IMAGES = tuple(suffix[1:] for suffix in (*IMAGE_SUFFIXES, ".gif", ".avif", ".jp2"))
# The extensions that webdataset's own decoder reads as integers and as text.
_INTEGERS = ("cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript", "json", "jsn")
# One of these shows that an archive without images holds samples.
_WITHOUT_IMAGE = (*_TEXTS, "npy")
_KEY = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)
_NPY_HEAD = 1 << 16  # the longest header of version 1.0
_ALL_BYTES = 1 << 62

Spans = npt.NDArray[np.int64]
"""The offset and size of a member for each sample, (2, samples); -1 where there is none."""


def open_webdataset(path: str) -> dict[str, TarSource] | None:
    """List the samples of a .tar file, a pattern of them, or a folder of them, by split."""
    if not _is_webdataset(path):
        return None
    left_out = LeftOutFiles()
    root, shards = _shards(path, left_out)
    listings = {split: _Listing(root, names, left_out) for split, names in shards.items()}
    if all(listing.has_class_folders for listing in listings.values()):
        cells = {split: listing.folders() for split, listing in listings.items()}
    else:
        cells = {split: each.texts("cls") for split, each in listings.items() if "cls" in each.spans}
    every = [cell for column in cells.values() for cell in column]
    ending = next((end for end in ("\r\n", "\n") if every and all(cell.endswith(end) for cell in every)), "")
    labels, classes = labels_of([cell.strip() for cell in every])  # webdataset's int() accepts " 3\n"
    sources, begin = {}, 0
    for split, listing in listings.items():
        own = np.full(len(listing.keys), NO_LABEL, np.int64)
        if split in cells:
            has_label = listing.spans["cls"][0] >= 0 if "cls" in listing.spans else slice(None)
            own[has_label] = labels[begin : begin + len(cells[split])]
            begin += len(cells[split])
        is_labelled = bool(cells) or not listing.others
        sources[split] = listing.source(path, own if is_labelled else None, classes, ending)
    next(iter(sources.values())).left_out = left_out.finish()
    return sources


def _is_webdataset(path: str) -> bool:
    if not os.path.isdir(path):
        return path.lower().endswith(TAR_SUFFIXES)
    inner = list_entries(path).folders
    if inner and split_names(inner) == inner:
        return all(holds_only(os.path.join(path, name), TAR_SUFFIXES) for name in inner)
    return holds_only(path, TAR_SUFFIXES)


def _shards(path: str, left_out: LeftOutFiles) -> tuple[str, dict[str, list[str]]]:
    """Return the folder of the shards, and their names in it by split."""
    if not os.path.isdir(path):
        root, pattern = os.path.split(os.path.abspath(path))
        # An existing file with braces in its name is not a pattern.
        names = [pattern] if os.path.isfile(path) else expand_braces(pattern)
        missing = [name for name in names if not os.path.isfile(os.path.join(root, name))]
        if missing:
            raise malformed(os.path.join(root, missing[0]), "exist", "no such file", f"check {path!r}")
        return root, files_by_split(names)
    inner = list_entries(path).folders
    names = list_data_files(path, TAR_SUFFIXES, inner, left_out, "not a shard")
    in_folders = {name: [each for each in names if each.startswith(f"{name}/")] for name in inner}
    return os.path.abspath(path), by_split(path, in_folders) or files_by_split(names)


class _Listing:
    """The samples of one split's shards, and the places of their members by extension."""

    def __init__(self, root: str, names: Sequence[str], left_out: LeftOutFiles) -> None:
        self.files = list_files(root, names)
        self.keys = NameTable()
        shard_of = array("q")
        places: dict[str, array[int]] = {}  # flat triples: sample, offset, size
        last: tuple[int, str] | None = None
        for number, key, extension, offset, size_bytes in _members(self.files, left_out):
            if (number, key) != last:
                last = number, key
                self.keys.append(key)
                shard_of.append(number)
            found = places.setdefault(extension, array("q"))
            sample = len(self.keys) - 1
            if found and found[-3] == sample:
                where = f"{self.files.path(number)}, offset {offset}: sample {key!r}"
                raise malformed(where, f"have one member .{extension}", "a second", "write the shard again")
            found.extend((sample, offset, size_bytes))
        self.shard_of = np.array(shard_of)
        self.spans = {extension: self._spans(np.array(found)) for extension, found in places.items()}
        images = [extension for extension in self.spans if _kind(extension) in _IMAGES]
        if not images and not any(_kind(each) in _WITHOUT_IMAGE for each in self.spans):
            got = ", ".join(f".{each}" for each in self.spans) or "no samples"
            must = "hold samples with an image (.jpg, .png, …), or with texts or arrays (.txt, .json, .npy)"
            raise malformed(self.files.path(0), must, got, "check the shards")
        have = np.array([self.spans[extension][0] >= 0 for extension in images])
        # One image per sample, with any of these extensions; or none.
        self.images = {"image": images} if images else {}
        if images and (have.sum(0) > 1).any():
            best = images[int(have.sum(1).argmax())]
            self.images = {"image": [best], **{each: [each] for each in images if each != best}}
        self.others = [extension for extension in self.spans if extension not in images]

    def _spans(self, places: npt.NDArray[np.int64]) -> Spans:
        spans = np.full((2, len(self.keys)), -1, np.int64)
        spans[:, places[0::3]] = places[1::3], places[2::3]
        return spans

    @property
    def has_class_folders(self) -> bool:
        """True if the samples hold only images, in several folders, as a tar of class folders does."""
        return not self.others and len(self.images) == 1 and len(set(self.folders())) > 1

    def folders(self) -> list[str]:
        """Return the name of the folder of each sample."""
        return [os.path.basename(os.path.dirname(key)) for key in self.keys]

    def texts(self, extension: str) -> list[str]:
        """Return the members with an extension as texts, for the samples that have one."""
        return [data.decode("utf-8", "surrogateescape") for data in self._contents(extension)]

    def _contents(self, extension: str, most_bytes: int = _ALL_BYTES) -> Iterator[bytes]:
        offsets, sizes = self.spans[extension]
        reader = TarReader()
        for sample in np.flatnonzero(offsets >= 0).tolist():
            path = self.files.path(int(self.shard_of[sample]))
            yield reader.read(path, int(offsets[sample]), min(int(sizes[sample]), most_bytes))

    def source(
        self, path: str, labels: npt.NDArray[np.int64] | None, classes: tuple[str, ...], ending: str
    ) -> TarSource:
        """Return the source of the samples, with the labels found for them."""
        taken = {"image", "shard"} | ({"label"} if labels is not None else set())
        fields = [] if labels is None else [Field.label()]
        members: dict[str, list[str]] = {"image": self.images["image"]} if self.images else {}
        for extension in [each for each in (*self.images, *self.others) if each not in ("image", "cls")]:
            described = self._field(free_field_name(extension, taken), extension)
            fields.append(described)
            members[described.name] = [extension]
        if "cls" in self.spans:
            members["label"] = ["cls"]
        labels_are = "the names of their folders" if self.has_class_folders else f"{NO_LABEL} for each"
        warning = f"{path} has images alone: their labels are {labels_are}"
        without = f"{path}: no member is an image (.jpg, .png, …): its samples are packed without images"
        return TarSource(
            kind="webdataset",
            name=path,
            classes=classes,
            fields=(*fields, SHARD),
            warnings=(warning,) if not self.others else () if self.images else (without,),
            files=self.files,
            values={} if labels is None else {"label": labels},
            keys=self.keys,
            shard_of=self.shard_of,
            has_images=bool(self.images),
            members={name: {each: self.spans[each] for each in found} for name, found in members.items()},
            details={
                "files": list(self.files.names),
                "members": {name: found[0] for name, found in members.items() if name != "image"},
                "ending": ending,
            },
        )

    def _field(self, name: str, extension: str) -> Field:
        kind = _kind(extension)
        if kind in _IMAGES:
            return Field(name, "image", encoding="keep")
        if kind in _TEXTS:
            return Field(name, "text")
        if kind in _INTEGERS:
            numbers = numbers_in(self.texts(extension))
            is_integer = numbers is not None and numbers.dtype == np.int64
            return Field(name, "scalar", "int64") if is_integer else Field(name, "text")
        if kind == "npy":
            found = {_array_form(head) for head in self._contents(extension, _NPY_HEAD)}
            forms = {(form[0], len(form[1]), form[1][1:]) for form in found if form is not None}
            if None not in found and len(forms) == 1:
                dtype, shape = next(filter(None, found))
                if len(found) == 1:
                    return Field(name, "vector" if shape else "scalar", dtype, shape)
                return Field(name, "ragged", dtype, shape[1:])
        return Field(name, "bytes")


def _members(files: FileList, left_out: LeftOutFiles) -> Iterator[tuple[int, str, str, int, int]]:
    """Yield the shard, key, extension, offset and size of each member of a sample, in order."""
    for number, name in enumerate(files.names):
        for member in tar_members(files.path(number)):
            match = _KEY.fullmatch(member.name)
            if member.size_bytes == NOT_FOUND:
                left_out.add(f"{name}/{safe_key(member.name)}", "a link or a device")
            elif match is None or re.fullmatch("__.*__", member.name):
                left_out.add(f"{name}/{safe_key(member.name)}", "not a member of a sample")
            else:
                yield number, match[1], match[2], member.offset, member.size_bytes


@dataclass(eq=False, kw_only=True)
class TarSource(ContainerSource):
    """A `Source` of a split's samples in tar shards.

    `members` maps each field to the spans of its members by extension: several for an image whose extension
    differs between samples.
    """

    keys: NameTable
    members: Mapping[str, Mapping[str, Spans]]
    reader: TarReader = dataclasses.field(default_factory=TarReader)

    def key(self, index: int) -> str:
        """Return the name of the image's member or, without images, that of the sample."""
        images = self.members.get("image", {})
        extension = next((each for each, at in images.items() if at[0, index] >= 0), "")
        return safe_key(f"{self.keys[index]}.{extension}".removesuffix("."))

    def read_from(self, path: str, index: int) -> SourceRecord:
        """Read one sample by the offsets of its members."""
        where = f"{path}, sample {self.keys[index]!r}"
        places: dict[str, list[int]] = {}
        for name, found in self.members.items():
            spans = (at[:, index].tolist() for at in found.values())
            places[name] = next((span for span in spans if span[0] >= 0), [])
            if not places[name]:
                step = "leave the sample out, or write the shard again"
                raise malformed(where, f"have a member .{' or .'.join(found)}, as others have", "none", step)
        places.pop("label", None)
        data = {}
        for name in sorted(places, key=places.__getitem__):  # a compressed file can only be read forwards
            require_decodable(where, places[name][1])
            data[name] = self.reader.read(path, *places[name])
        image = data.pop("image", None)
        described = {field.name: field for field in self.fields}
        values = {name: self._value(described[name], each, where) for name, each in data.items()}
        return SourceRecord(self.key(index), image, values)

    def _value(self, described: Field, data: bytes, where: str) -> object:
        if described.kind == "text":
            return data.decode("utf-8", "surrogateescape")
        if described.kind in ("image", "bytes"):
            return data
        if "npy" not in map(_kind, self.members[described.name]):
            return int(data)
        with explaining((ValueError, EOFError), f"{where}, .npy", "be a complete array", "leave it out"):
            loaded = np.load(io.BytesIO(data), allow_pickle=False)
        return loaded.item() if described.kind == "scalar" else loaded


def _kind(extension: str) -> str:
    return extension.rpartition(".")[2].lower()


def _array_form(head: bytes) -> tuple[str, tuple[int, ...]] | None:
    """Return the dtype and shape in the header of a .npy file; None for arrays that are stored as bytes."""
    file = io.BytesIO(head)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            return None
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    except (ValueError, EOFError):
        return None
    is_plain = dtype.name in DTYPES and dtype.newbyteorder("<") == dtype and not is_fortran
    is_plain &= max(shape, default=0) <= MOST_BYTES and math.prod(shape) * dtype.itemsize <= MOST_BYTES
    return (dtype.name, shape) if is_plain and 0 not in shape[1:] else None

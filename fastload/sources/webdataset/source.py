"""WebDataset's tar shards as sources: a .tar, a folder of them, or a pattern such as `shard-{000..003}.tar`.

Shards may be compressed (.tar.gz, .tgz, .tar.bz2, .tar.xz and, with Python 3.14, .tar.zst).

The members of a sample follow each other and share a key, the path up to the first dot in the file name; the
rest of each name is an extension, in any case. Tars that other programs made of files with dots in their
names are recognised by their samples (members.py). Shards named after splits, or in folders named after them,
give one source per split. The last part of an extension determines the field:

    jpg, png, …        the image; if samples hold several, each a field named by its extension
    cls                the label: an integer, or a class name
    cls2, id, index, … an int64 field if every member is an integer, else a text field
    txt, json, …       a text field
    npy                a field of arrays, if all have the same dtype and shape of rows
    anything else      a bytes field; nothing is unpickled

If samples hold only images, in several folders, these are the classes. Samples may also hold no images at
all.

SourceError is raised on reading a sample that lacks a member present in others of its split. Folders, links
and members named `__…__` are left out, as by webdataset; all but folders are recorded.
"""

from __future__ import annotations

import dataclasses
import io
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload.contracts import SourceRecord
from fastload.images.formats import MOST_BYTES
from fastload.shards.schema import DTYPES, Field
from fastload.sources.containers import (
    SHARD,
    ContainerSource,
    claim_data_files,
    expand_braces,
    files_by_split,
)
from fastload.sources.files import NO_LABEL, NameTable, require_decodable, safe_key
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.listing import Listing
from fastload.sources.malformed import explaining, in_quotes, malformed
from fastload.sources.protocol import Claim, Reading
from fastload.sources.table.columns import free_field_name, labels_of
from fastload.sources.table.numbers import numbers_in
from fastload.sources.webdataset.members import UNPACK, Samples, Spans, class_folders, grouped, list_members
from fastload.sources.webdataset.tar import IMAGES, INTEGERS, RULES, TAR_SUFFIXES, TEXTS, TarReader, kind_of

_NPY_HEAD = 1 << 16  # the longest header of version 1.0

_ANNOTATIONS = (".csv", ".tsv", ".json", ".jsonl", ".xml", ".mat")  # that may be of all images
_ALONE = "or pack the images without labels with --layout webdataset (in Python, layout='webdataset')"


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder of tar files, or folders of them that are named after splits."""
    return claim_data_files(listing, TAR_SUFFIXES, _list_folder)


def _list_folder(path: str, root: str, shards: Mapping[str, Sequence[str]]) -> dict[str, TarSource]:
    """List the samples of a folder's shards; several of images alone may be one for each class."""
    sources = list_shards(path, root, shards)
    for source in sources.values():
        if len(source.files) > 1 and not source.classes and not source.extensions:
            shard = source.files.names[0]
            tars = shlex.quote(os.path.dirname(os.path.join(path, shard))) + "/*.tar"
            unpack = f'for tar in {tars}; do mkdir "${{tar%.tar}}" && tar -xf "$tar" -C "${{tar%.tar}}"; done'
            got = f"several of images alone, such as {shard}, each of which may be a class"
            step = f"unpack them ({unpack}) and pack the folder; {_ALONE}"
            source.doubt = str(malformed(path, "hold labels beside its images, or one tar file", got, step))
    return sources


def recognise_file(path: str) -> Claim | None:
    """Claim a .tar file, or a pattern such as `shard-{000..003}.tar`."""
    return Claim(path, lambda: _read_pattern(path)) if path.lower().endswith(TAR_SUFFIXES) else None


def _read_pattern(path: str) -> Reading:
    root, pattern = os.path.split(os.path.abspath(path))
    # An existing file with braces in its name is not a pattern.
    names = [pattern] if os.path.isfile(path) else expand_braces(pattern)
    missing = [name for name in names if not os.path.isfile(os.path.join(root, name))]
    if missing:
        raise malformed(os.path.join(root, missing[0]), "exist", "no such file", f"check {path!r}")
    return Reading(list_shards(path, root, files_by_split(path, names)))


def list_shards(path: str, root: str, shards: Mapping[str, Sequence[str]]) -> dict[str, TarSource]:
    """List the samples of shards, which are given by split, relative to the folder `root`."""
    left_out = LeftOutFiles()
    members = {split: list_members(root, names, left_out) for split, names in shards.items()}
    samples = grouped(path, members, left_out)
    folders = {
        split: found for split, each in samples.items() if (found := class_folders(path, each)) is not None
    }
    if folders and len(folders) < len(samples):
        got = f"them in {in_quotes([*folders])} alone"
        raise malformed(path, "have class folders in the shards of every split or of none", got, UNPACK)
    label_texts = folders or {
        split: each.texts("cls") for split, each in samples.items() if "cls" in each.columns
    }
    texts = [cell for column in label_texts.values() for cell in column]
    ending = next((end for end in ("\r\n", "\n") if texts and all(cell.endswith(end) for cell in texts)), "")
    labels, classes = labels_of([cell.strip() for cell in texts])  # webdataset's int() accepts " 3\n"
    labels_are = "the names of their folders" if folders else f"{NO_LABEL} for each"
    sources, start = {}, 0
    for split, each in samples.items():
        values = np.full(len(each), NO_LABEL, np.int64)
        if split in label_texts:
            has_label = slice(None) if folders else each.spans(["cls"])[0] >= 0
            values[has_label] = labels[start : start + len(label_texts[split])]
            start += len(label_texts[split])
        is_labelled = bool(label_texts) or not each.others
        sources[split] = _source(path, each, values if is_labelled else None, classes, ending, labels_are)
    first = next(iter(sources.values()))
    first.left_out = left_out.finish()
    unread = [entry.key for entry in first.left_out if entry.key.lower().endswith(_ANNOTATIONS)]
    if unread and not label_texts and not any(each.others for each in samples.values()):
        first.doubt = str(
            malformed(path, "hold labels beside its images", f"{unread[0]!r}", f"{UNPACK}; {_ALONE}")
        )
    return sources


def _source(
    path: str,
    samples: Samples,
    labels: npt.NDArray[np.int64] | None,
    classes: tuple[str, ...],
    ending: str,
    labels_are: str,
) -> TarSource:
    """Return the source of the samples of one split, with the labels found for them."""
    taken = {"image", "shard"} | ({"label"} if labels is not None else set())
    fields = [] if labels is None else [Field.label()]
    extensions: dict[str, list[str]] = {"image": samples.images["image"]} if samples.images else {}
    for extension in [each for each in (*samples.images, *samples.others) if each not in ("image", "cls")]:
        described = _field(samples, free_field_name(extension, taken), extension)
        fields.append(described)
        extensions[described.name] = [extension]
    if "cls" in samples.columns:
        extensions["label"] = ["cls"]
    warning = f"{path} has images alone: their labels are {labels_are}"
    without = f"{path}: no member is an image (.jpg, .png, …): its samples are packed without images"
    named = {name: samples.spelled[found[0]] for name, found in extensions.items() if name != "image"}
    images = samples.member_of(samples.images.get("image", [])).tolist()
    return TarSource(
        kind="webdataset",
        name=path,
        classes=classes,
        fields=(*fields, SHARD),
        warnings=(warning,) if not samples.others else () if samples.images else (without,),
        files=samples.members.files,
        values={} if labels is None else {"label": labels},
        names=NameTable(
            samples.key(sample) if member < 0 else samples.members.names[member]
            for sample, member in enumerate(images)
        ),
        shard_of=samples.shard_of,
        has_images=bool(samples.images),
        members={name: samples.spans(found) for name, found in extensions.items()},
        details={
            "files": list(samples.members.files.names),
            "members": named,
            "ending": ending,
            "rule": samples.rule,
        },
        extensions=named,
        rule=samples.rule,
    )


def _field(samples: Samples, name: str, extension: str) -> Field:
    kind = kind_of(extension)
    if kind in IMAGES:
        return Field(name, "image", encoding="keep")
    if kind in TEXTS:
        return Field(name, "text")
    if kind in INTEGERS:
        numbers = numbers_in(samples.texts(extension))
        is_integer = numbers is not None and numbers.dtype == np.int64
        return Field(name, "scalar", "int64") if is_integer else Field(name, "text")
    if kind == "npy":
        found = {_array_form(head) for head in samples.contents(extension, _NPY_HEAD)}
        forms = {(form[0], len(form[1]), form[1][1:]) for form in found if form is not None}
        if None not in found and len(forms) == 1:
            dtype, shape = next(filter(None, found))
            if len(found) == 1:
                return Field(name, "vector" if shape else "scalar", dtype, shape)
            return Field(name, "ragged", dtype, shape[1:])
    return Field(name, "bytes")


@dataclass(eq=False, kw_only=True)
class TarSource(ContainerSource):
    """A `Source` of a split's samples in tar shards.

    `names` holds the name of each sample's image, or its key; `members` maps each field to its members, and
    `extensions` to their extension, except the image's. `rule` is one of `RULES`.
    """

    names: NameTable
    members: Mapping[str, Spans]
    extensions: Mapping[str, str]
    rule: str
    reader: TarReader = dataclasses.field(default_factory=TarReader)

    def key(self, index: int) -> str:
        """Return the name of the image's member or, without images, that of the sample."""
        return safe_key(self.names[index])

    def read_from(self, path: str, index: int) -> SourceRecord:
        """Read one sample by the offsets of its members."""
        has_image = "image" in self.members and self.members["image"][0, index] >= 0
        name = self.names[index]
        where = f"{path}, sample {RULES[self.rule](name)[0] if has_image else name!r}"
        places = {name: at[:, index].tolist() for name, at in self.members.items()}
        for name, (offset, _) in places.items():
            if offset < 0:
                member = ".jpg, .png, …" if name == "image" else f".{self.extensions[name]}"
                step = "leave the sample out, or write the shard again"
                raise malformed(where, f"have a member {member}, as others have", "none", step)
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
        if kind_of(self.extensions[described.name]).lower() != "npy":
            return int(data)
        with explaining((ValueError, EOFError), f"{where}, .npy", "be a complete array", "leave it out"):
            loaded = np.load(io.BytesIO(data), allow_pickle=False)
        return loaded.item() if described.kind == "scalar" else loaded


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

"""Databases of other programs as sources: the records of an LMDB database or an HDF5 file.

Only pickles of plain values are read; records that pyarrow serialized are refused.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fastload.contracts import SourceRecord
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.schema import Field
from fastload.sources.containers import SHARD, ContainerSource, files_by_split
from fastload.sources.databases.storage import (
    DATA,
    entry,
    read_plain,
    reading_hdf5,
    reading_lmdb,
    require_arrays,
)
from fastload.sources.files import NO_LABEL, NameTable, Values, list_files, read_text
from fastload.sources.listing import Listing
from fastload.sources.malformed import FROM_PYTHON, INT64, malformed
from fastload.sources.protocol import Claim, LeftOutReason, Reading
from fastload.sources.table.columns import classes_of

if TYPE_CHECKING:
    import lmdb


_LSUN = re.compile(r"(.+)_(train|val|test)_lmdb")
_LOCK = "lock.mdb"
_LOCKED: LeftOutReason = "a lock of LMDB", True
_UNLABELLED = {"": NO_LABEL}
_META_LINE = re.compile(r"(.*)\.\w+ \([0-9]+, ?[0-9]+, ?[0-9]+\)( [0-9]+)?")
_MOST_DIGITS = 12
_SAMPLED = 8
_REWRITE = "write the database again"


@dataclass(frozen=True, slots=True)
class DatabaseLayout:
    """Layout of the databases of a program. `sign` is an entry or file that only they have; "" for any.

    `keys` says where the keys of the images come from:

        lines      the lines of the file `sign` name them
        counted    `sign` holds the number of images, whose keys follow the pattern `image`
        listed     `sign` holds that number as a pickle, and `list` a pickle of the keys
        all        every key is that of an image
        rows       the images are the rows of the array `sign`
    """

    kind: str  # the container and the program's name
    sign: str
    keys: Literal["lines", "counted", "listed", "all", "rows"]
    field: Field
    image: str = ""  # the pattern of their keys; with "{size}", there are several sizes of each image
    value: str = ""  # the pattern of the keys of the field's values, or the array of them
    first: int = 0  # the number of the first image
    list: str = ""


_LABEL, _LINE, _TEXT = Field.label(), Field("line", "text", internal=True), Field("text", "text")

BASICSR = DatabaseLayout("lmdb-basicsr", "meta_info.txt", "lines", _LINE)  # also MMEngine
CRNN = DatabaseLayout(  # also CLOVA
    "lmdb-crnn", "num-samples", "counted", _TEXT, "image-{number:09d}", "label-{number:09d}", first=1
)
STYLEGAN2 = DatabaseLayout(
    "lmdb-stylegan2", "length", "counted", _LABEL, "{size}-{number:05d}"
)  # stylegan2-pytorch
PICKLED = DatabaseLayout("lmdb-pickled", "__len__", "listed", _LABEL, list="__keys__")  # Efficient-PyTorch
LSUN = DatabaseLayout("lmdb-lsun", "", "all", _LABEL)  # a database for each class and split
BIGGAN = DatabaseLayout("hdf5-biggan", "imgs", "rows", _LABEL, value="labels")  # pixels, channels first

DATABASES = {each.kind: each for each in (BASICSR, CRNN, STYLEGAN2, PICKLED, LSUN, BIGGAN)}
"""The layouts that are read and written, by the kind of their sources."""


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder that is an LMDB database, or the folder of LSUN's databases, by class and split."""
    if DATA in listing.top.others:
        return Claim(DATA, lambda: _database(listing))
    names = [
        name for name in listing.top.visible if name.endswith("_lmdb") and listing.has_file(f"{name}/{DATA}")
    ]
    matches = {name: match[1] for name in names if (match := _LSUN.fullmatch(name))}
    if not matches:
        return None
    return Claim(next(iter(matches)), lambda: _lsun(listing, matches))


def recognise_lmdb_file(path: str) -> Claim | None:
    """Claim an LMDB database in a single file."""
    is_lmdb = path.lower().endswith((".lmdb", ".mdb"))
    return Claim(path, lambda: Reading({"": list_lmdb(path, _UNLABELLED)})) if is_lmdb else None


def recognise_hdf5_file(path: str) -> Claim | None:
    """Claim an HDF5 file."""
    is_hdf5 = path.lower().endswith((".h5", ".hdf5", ".he5"))
    return Claim(path, lambda: Reading({"": list_hdf5(path)})) if is_hdf5 else None


def _database(listing: Listing) -> Reading:
    source = list_lmdb(listing.name, _UNLABELLED)
    return Reading({"": source}, [BASICSR.sign] if source.kind == BASICSR.kind else [], {_LOCK: _LOCKED})


def _lsun(listing: Listing, class_of: Mapping[str, str]) -> Reading:
    classes = sorted({*class_of.values()})
    labels = {name: classes.index(class_name) for name, class_name in class_of.items()}
    sources = {
        split: list_lmdb(listing.name, {name: labels[name] for name in names}, classes)
        for split, names in files_by_split(listing.name, class_of).items()
    }
    return Reading(sources, (), {f"{name}/{_LOCK}": _LOCKED for name in class_of})


@dataclass(eq=False, kw_only=True)
class DatabaseSource(ContainerSource):
    """A `Source` of the records of databases of one program.

    `keys` are those of the images in LMDB, and `patterns` give those of other fields. A database is opened
    for each record: in LMDB this takes 0.1 ms, and in HDF5 less than reading a chunk.
    """

    keys: NameTable
    patterns: Mapping[str, str] = field(default_factory=dict)
    is_folder: bool = False  # of LMDB, whose databases are then folders too

    def key(self, index: int) -> str:
        return self.keys[index] if len(self.keys) else super().key(index)

    def read_from(self, path: str, index: int) -> SourceRecord:
        program = DATABASES[self.kind]
        if program.keys == "rows":
            with reading_hdf5(path) as file:
                pixels = np.ascontiguousarray(file[program.sign][index].transpose(1, 2, 0))
            return SourceRecord(self.key(index), pixels, {})
        key = self.keys[index]
        path = os.path.dirname(path) if self.is_folder else path
        values: dict[str, object] = {}
        with reading_lmdb(path) as transaction:
            image = bytes(entry(transaction, path, key))
            for name, pattern in self.patterns.items():
                data = bytes(entry(transaction, path, pattern.format(number=program.first + index)))
                values[name] = data.decode("utf-8", "surrogateescape") if name == "text" else data
        if program.keys == "listed":
            image, values["label"] = _unpickled(image, f"{path}, key {key!r}")
        return SourceRecord(key, image, values)


def list_lmdb(path: str, labels: Mapping[str, int], classes: Sequence[str] = ()) -> DatabaseSource:
    """List the records of LMDB databases, which are given with their labels, by their names in a folder.

    `""` is the database at the path itself. SourceError is raised if no program that is known has its keys.
    """
    root, tables, warnings = os.path.abspath(path), list[NameTable](), tuple[str, ...]()
    program, patterns, values = LSUN, dict[str, str](), dict[str, Values]()
    for name in labels:
        place = os.path.join(root, name) if name else root
        with reading_lmdb(place) as transaction:
            program, patterns = (LSUN, {}) if name else _program_of(place, transaction)
            keys = NameTable(_KEYS[program.keys](program, place, transaction))
            headers = {"lines": 0, "all": 0, "counted": 1, "listed": 2}[program.keys]
            unknown = transaction.stat()["entries"] - headers - len(keys) * (1 + len(patterns))
        if unknown > 0:
            warnings = (f"{path} has {unknown:,} entries of no record, which are left out",)
        if program.keys == "lines":
            values["line"] = NameTable(_lines(place))
        tables.append(keys)
    all_keys = NameTable(itertools.chain(*tables))
    if not len(all_keys):
        raise malformed(path, "hold at least one image", "none", "check the database")
    shard_of = np.repeat(np.arange(len(tables)), [*map(len, tables)])
    sizes = [Field(each, "image", encoding="keep") for each in patterns if each.startswith("image_")]
    fields = sizes or [program.field]
    if fields == [Field.label()] and program.keys != "listed":
        values["label"] = np.array([*labels.values()], np.int64)[shard_of]
    is_folder = os.path.isdir(root)
    files = [os.path.join(name, DATA) if is_folder else os.path.basename(root) for name in labels]
    return DatabaseSource(
        kind=program.kind,
        name=path,
        classes=tuple(classes),
        fields=(*fields, SHARD),
        warnings=warnings,
        files=list_files(root if is_folder else os.path.dirname(root), files),
        values=values,
        shard_of=shard_of,
        details={"files": files, "is_folder": is_folder},
        keys=all_keys,
        patterns=patterns,
        is_folder=is_folder,
    )


def list_hdf5(path: str) -> DatabaseSource:
    """List the images of an HDF5 file; raise SourceError if it does not have a program's arrays."""
    folder, name = os.path.split(os.path.abspath(path))
    with reading_hdf5(path) as file:
        require_arrays(path, file, BIGGAN.sign, BIGGAN.value)
        labels = file[BIGGAN.value][:]
        if np.max(labels, initial=0) > np.iinfo(np.int64).max:
            raise malformed(path, "hold labels that int64 holds", "larger ones")
        details = {"files": [name], "chunks": file[BIGGAN.sign].chunks, "labels": labels.dtype.name}
    labels = labels.astype(np.int64)
    return DatabaseSource(
        kind=BIGGAN.kind,
        name=path,
        classes=classes_of(labels),
        fields=(BIGGAN.field, SHARD),
        files=list_files(folder, [name]),
        values={"label": labels},
        shard_of=np.zeros(len(labels), np.int64),
        details=details,
        keys=NameTable(),
    )


def _program_of(path: str, transaction: lmdb.Transaction) -> tuple[DatabaseLayout, dict[str, str]]:
    """Return the layout of a database, and the patterns of the keys of its records' further fields."""
    if os.path.isfile(os.path.join(path, BASICSR.sign)):
        return BASICSR, {}
    signed = (CRNN, STYLEGAN2, PICKLED)
    program = next((each for each in signed if transaction.get(each.sign.encode()) is not None), LSUN)
    if program is not STYLEGAN2:
        return program, {program.field.name: program.value} if program.value else {}
    largest, *others = sorted(_sizes(path, transaction), reverse=True)
    patterns = {size: program.image.replace("{size}", str(size)) for size in (largest, *others)}
    return replace(program, image=patterns[largest]), {f"image_{size}": patterns[size] for size in others}


def _counted_keys(program: DatabaseLayout, path: str, transaction: lmdb.Transaction) -> Iterator[str]:
    text = bytes(entry(transaction, path, program.sign))
    if not text.isdigit() or len(text) > _MOST_DIGITS or int(text) > transaction.stat()["entries"]:
        raise malformed(f"{path}, key {program.sign!r}", "be the number of images", text[:40])
    numbers = range(program.first, program.first + int(text))
    return _existing(transaction, path, (program.image.format(number=at) for at in numbers))


def _sizes(path: str, transaction: lmdb.Transaction) -> list[int]:
    """Return the sizes in keys such as 256-00000."""
    sizes = []
    cursor = transaction.cursor()
    while cursor.key() or cursor.first():
        size, dash, number = bytes(cursor.key()).partition(b"-")
        if dash and size.isdigit() and number.isdigit():
            sizes.append(int(size))
        if not cursor.set_range(size + b"."):  # "." follows "-": this skips the other keys of a size
            break
    if not sizes:
        raise malformed(path, "have keys such as '256-00000' beside 'length'", "none of them", _REWRITE)
    return sizes


def _listed_keys(program: DatabaseLayout, path: str, transaction: lmdb.Transaction) -> Iterable[str]:
    keys, length = (
        read_plain(bytes(entry(transaction, path, name)), f"{path}, key {name!r}")
        for name in (program.list, program.sign)
    )
    listed = keys if isinstance(keys, list | tuple) and all(isinstance(key, bytes) for key in keys) else None
    if type(length) is not int or listed is None or len(listed) != length:
        must = f"list its {length if type(length) is int else 'number of'} keys in {program.list!r}"
        raise malformed(path, must, "another list", _REWRITE)
    return _existing(transaction, path, map(os.fsdecode, listed))


def _keys_in_lines(program: DatabaseLayout, path: str, transaction: lmdb.Transaction) -> Iterable[str]:
    """List the lines `name.png (height,width,channels) level`; keys are the names without suffixes."""
    lines = _lines(path)
    matches = [_META_LINE.fullmatch(line) for line in lines]
    if None in matches:
        must, where = "have lines like 'name.png (120,125,3) 1'", os.path.join(path, program.sign)
        raise malformed(where, must, repr(lines[matches.index(None)]), _REWRITE)
    return _existing(transaction, path, (match[1] for match in matches if match))


def _lines(path: str) -> list[str]:
    return read_text(os.path.join(path, BASICSR.sign)).splitlines()


def _every_key(program: DatabaseLayout, path: str, transaction: lmdb.Transaction) -> Iterable[str]:
    keys = NameTable(os.fsdecode(bytes(key)) for key in transaction.cursor().iternext(values=False))
    for at in range(min(_SAMPLED, len(keys))):
        if format_of(bytes(entry(transaction, path, keys[at])[:HEAD_BYTES])) is None:
            known = "CRNN, Efficient-PyTorch, stylegan2-pytorch, BasicSR or LSUN"
            must = f"be an image file, or the database one of {known}"
            raise malformed(f"{path}, key {keys[at]!r}", must, "other bytes", FROM_PYTHON)
    return keys


_KEYS = {"counted": _counted_keys, "listed": _listed_keys, "lines": _keys_in_lines, "all": _every_key}


def _existing(transaction: lmdb.Transaction, path: str, keys: Iterable[str]) -> Iterator[str]:
    """Yield keys that must exist, up to the first that does not: a header may state any number of them."""
    for key in keys:
        entry(transaction, path, key)
        yield key


def _unpickled(data: bytes, where: str) -> tuple[bytes, int]:
    value = read_plain(data, where)
    match value:
        case [bytes(image), int(label)] if type(label) is int and label in INT64:
            return image, label
    got = [type(each).__name__ for each in value] if isinstance(value, list | tuple) else type(value).__name__
    raise malformed(where, "be (bytes of an image, integer label)", str(got), "leave it out")

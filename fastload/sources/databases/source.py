"""LMDB databases of other programs as sources, by the keys of their images."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.schema import Field
from fastload.sources.containers import SHARD, ContainerSource, files_by_split
from fastload.sources.files import NO_LABEL, Values, list_files, read_text
from fastload.sources.listing import Listing
from fastload.sources.malformed import FROM_PYTHON, explaining, malformed
from fastload.sources.names import NameTable
from fastload.sources.protocol import Claim, LeftOutReason, Reading, SourceRecord

if TYPE_CHECKING:
    import lmdb


_LSUN = re.compile(r"(.+)_(train|val|test)_lmdb")
_DATA, _LOCK = "data.mdb", "lock.mdb"
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
        all        every key is that of an image
    """

    kind: str  # the container and the program's name
    sign: str
    keys: Literal["lines", "counted", "all"]
    field: Field
    image: str = ""  # the pattern of their keys; with "{size}", there are several sizes of each image
    value: str = ""  # the pattern of the keys of the field's values
    first: int = 0  # the number of the first image


_LABEL, _LINE, _TEXT = Field.label(), Field("line", "text", internal=True), Field("text", "text")

BASICSR = DatabaseLayout("lmdb-basicsr", "meta_info.txt", "lines", _LINE)  # also MMEngine
CRNN = DatabaseLayout(  # also CLOVA
    "lmdb-crnn", "num-samples", "counted", _TEXT, "image-{number:09d}", "label-{number:09d}", first=1
)
STYLEGAN2 = DatabaseLayout(
    "lmdb-stylegan2", "length", "counted", _LABEL, "{size}-{number:05d}"
)  # stylegan2-pytorch
LSUN = DatabaseLayout("lmdb-lsun", "", "all", _LABEL)  # a database for each class and split

DATABASES = {each.kind: each for each in (BASICSR, CRNN, STYLEGAN2, LSUN)}
"""The layouts that are read and written, by the kind of their sources."""


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder that is an LMDB database, or the folder of LSUN's databases, by class and split."""
    if _DATA in listing.top.others:
        return Claim("lmdb", "an LMDB database", _DATA, lambda: _database(listing))
    names = [
        name for name in listing.top.visible if name.endswith("_lmdb") and listing.has_file(f"{name}/{_DATA}")
    ]
    matches = {name: match[1] for name in names if (match := _LSUN.fullmatch(name))}
    if not matches:
        return None
    return Claim("lmdb", "LSUN's databases", next(iter(matches)), lambda: _lsun(listing, matches))


def open_file(path: str) -> Mapping[str, DatabaseSource] | None:
    """List the records of an LMDB database in a single file."""
    return {"": list_lmdb(path, _UNLABELLED)} if path.lower().endswith((".lmdb", ".mdb")) else None


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

    `keys` are those of the images, and `patterns` give those of other fields. A database is opened for each
    record, which takes 0.1 ms.
    """

    keys: NameTable
    patterns: Mapping[str, str] = field(default_factory=dict)

    def key(self, index: int) -> str:
        return self.keys[index]

    def read_from(self, path: str, index: int) -> SourceRecord:
        key, first = self.keys[index], DATABASES[self.kind].first
        path = os.path.dirname(path) if self.details["is_folder"] else path
        values: dict[str, object] = {}
        with _reading(path) as transaction:
            image = bytes(_entry(transaction, path, key))
            for name, pattern in self.patterns.items():
                data = bytes(_entry(transaction, path, pattern.format(number=first + index)))
                values[name] = data.decode("utf-8", "surrogateescape") if name == "text" else data
        return SourceRecord(key, image, values)


def list_lmdb(path: str, labels: Mapping[str, int], classes: Sequence[str] = ()) -> DatabaseSource:
    """List the records of LMDB databases, which are given with their labels, by their names in a folder.

    `""` is the database at the path itself. SourceError is raised if no program that is known has its keys.
    """
    root, tables, warnings = os.path.abspath(path), list[NameTable](), tuple[str, ...]()
    program, patterns, values = LSUN, dict[str, str](), dict[str, Values]()
    for name in labels:
        place = os.path.join(root, name) if name else root
        with _reading(place) as transaction:
            program, patterns = (LSUN, {}) if name else _program_of(place, transaction)
            keys = NameTable(_KEYS[program.keys](program, place, transaction))
            own = program.keys == "counted"
            unknown = transaction.stat()["entries"] - own - len(keys) * (1 + len(patterns))
        if unknown > 0:
            warnings = (f"{path} has {unknown:,} entries of no record, which are left out",)
        if program.keys == "lines":
            values["line"] = NameTable(_lines(place))
        tables.append(keys)
    every = NameTable(itertools.chain(*tables))
    if not len(every):
        raise malformed(path, "hold at least one image", "none", "check the database")
    shard_of = np.repeat(np.arange(len(tables)), [*map(len, tables)])
    sizes = [Field(each, "image", encoding="keep") for each in patterns if each.startswith("image_")]
    fields = sizes or [program.field]
    if fields == [Field.label()]:
        values["label"] = np.array([*labels.values()], np.int64)[shard_of]
    is_folder = os.path.isdir(root)
    files = [os.path.join(name, _DATA) if is_folder else os.path.basename(root) for name in labels]
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
        keys=every,
        patterns=patterns,
    )


def _program_of(path: str, transaction: lmdb.Transaction) -> tuple[DatabaseLayout, dict[str, str]]:
    """Return the layout of a database, and the patterns of the keys of its records' further fields."""
    if os.path.isfile(os.path.join(path, BASICSR.sign)):
        return BASICSR, {}
    program = next(
        (each for each in (CRNN, STYLEGAN2) if transaction.get(each.sign.encode()) is not None), LSUN
    )
    if program is not STYLEGAN2:
        return program, {program.field.name: program.value} if program.value else {}
    largest, *others = sorted(_sizes(path, transaction), reverse=True)
    patterns = {size: program.image.replace("{size}", str(size)) for size in (largest, *others)}
    return replace(program, image=patterns[largest]), {f"image_{size}": patterns[size] for size in others}


def _counted_keys(program: DatabaseLayout, path: str, transaction: lmdb.Transaction) -> Iterator[str]:
    text = bytes(_entry(transaction, path, program.sign))
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
        if format_of(bytes(_entry(transaction, path, keys[at])[:HEAD_BYTES])) is None:
            known = "CRNN, stylegan2-pytorch, BasicSR or LSUN"
            must = f"be an image file, or the database one of {known}"
            raise malformed(f"{path}, key {keys[at]!r}", must, "other bytes", FROM_PYTHON)
    return keys


_KEYS = {"counted": _counted_keys, "lines": _keys_in_lines, "all": _every_key}


def _existing(transaction: lmdb.Transaction, path: str, keys: Iterable[str]) -> Iterator[str]:
    """Yield keys that must exist, up to the first that does not: a header may state any number of them."""
    for key in keys:
        _entry(transaction, path, key)
        yield key


@contextlib.contextmanager
def _reading(path: str) -> Iterator[lmdb.Transaction]:
    """Yield a transaction of a database that is open only in this block: LMDB forbids opening one twice."""
    import lmdb

    is_folder = os.path.isdir(path)
    options = {"subdir": is_folder, "readonly": True, "lock": False, "create": False, "readahead": False}
    must, step = "be an LMDB database", "copy or write it again"
    with explaining((lmdb.Error,), path, must, step), lmdb.open(path, **options) as opened:
        extent = (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
        size = os.stat(os.path.join(path, _DATA) if is_folder else path).st_size
        if extent > size:  # accessing a missing page would kill the process
            step = "it was cut off: copy it again"
            raise malformed(path, f"have its {extent:,} bytes", f"{size:,}", step)
        with opened.begin(buffers=True) as transaction:
            yield transaction


def _entry(transaction: lmdb.Transaction, path: str, key: str) -> memoryview:
    """Return the value of a key as a buffer; raise SourceError if there is none."""
    value: memoryview | None = transaction.get(os.fsencode(key))
    if value is None:
        raise malformed(f"{path}, key {key!r}", "exist", "no such key", "write the database again")
    return value

"""LMDB databases of other programs as sources, recognised by their keys.

    crnn        num-samples, image-000000001, label-000000001, …: text recognition (CRNN, CLOVA)
    pickled     __len__, __keys__, and pickles of (image, label): Efficient-PyTorch, Image2LMDB
    stylegan2   length, 256-00000, 256-00001, …: one or more sizes of each image (stylegan2-pytorch)
    basicsr     stems of file names, with a meta_info.txt: super-resolution (BasicSR, MMEngine)
    lsun        any keys, all of images; databases named `CLASS_train_lmdb` in a folder are one dataset

Only pickles of plain values are read; records that pyarrow serialized are refused.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.schema import Field
from fastload.sources.containers import SHARD, ContainerSource, files_by_split
from fastload.sources.databases.plain_pickle import read_plain
from fastload.sources.files import NO_LABEL, Values, list_files, read_text
from fastload.sources.malformed import FROM_PYTHON, INT64, explaining, malformed
from fastload.sources.names import NameTable
from fastload.sources.protocol import SourceRecord
from fastload.sources.walking import list_entries

_DATA = "data.mdb"
_META = "meta_info.txt"
_META_LINE = re.compile(r"(.*)\.\w+ \([0-9]+, ?[0-9]+, ?[0-9]+\)( [0-9]+)?")
_LSUN = re.compile(r"(.+)_(train|val|test)_lmdb")
_MOST_DIGITS = 12
_SAMPLED = 8
_REWRITE = "write the database again"


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of a database, and the records found in it."""

    name: str
    keys: NameTable  # of the images
    fields: tuple[Field, ...] = (Field.label(),)
    further: Mapping[str, NameTable] = field(default_factory=dict)  # keys of other fields' values, by field
    values: Mapping[str, NameTable] = field(default_factory=dict)  # by field, not from the database
    others: int = 0  # the number of the layout's entries that belong to no record


def open_lmdb(path: str) -> dict[str, LmdbSource] | None:
    """List the records of a database, or of LSUN's databases by split; raise SourceError for unknown keys."""
    root = os.path.abspath(path)
    if not os.path.isdir(root):
        return {"": _open_one(path, root)} if path.lower().endswith((".lmdb", ".mdb")) else None
    folder = list_entries(root)
    if _DATA in folder.files:
        return {"": _open_one(path, root)}
    matches = {name: match for name in folder.folders if (match := _LSUN.fullmatch(name))}
    matches = {name: match for name, match in matches.items() if os.path.isfile(folder.join(name, _DATA))}
    classes = sorted({match[1] for match in matches.values()})
    labels = {name: classes.index(match[1]) for name, match in matches.items()}
    sources = {}
    for split, names in files_by_split(matches).items():
        if names:
            sources[split] = _open_lsun(path, root, {name: labels[name] for name in names}, classes)
    return sources or None


@contextlib.contextmanager
def _reading(path: str) -> Iterator[Any]:
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


def _open_one(path: str, root: str) -> LmdbSource:
    with _reading(root) as transaction:
        found = _recognise(root, transaction)
        known = len(found.keys) * (1 + len(found.further)) + found.others
        unknown = transaction.stat()["entries"] - known
    values: dict[str, Values] = {**found.values}
    if found.fields == (Field.label(),) and found.name != "pickled":
        values["label"] = np.full(len(found.keys), NO_LABEL, np.int64)
    source = _source(path, root, [""], found, values, np.zeros(len(found.keys), np.int64))
    if unknown > 0:
        source.warnings = (f"{path} has {unknown:,} entries of no record, which are left out",)
    return source


def _recognise(root: str, transaction: Any) -> _Layout:
    if os.path.isfile(meta := os.path.join(root, _META)):
        return _basicsr(root, transaction, meta)
    if (count := transaction.get(b"num-samples")) is not None:
        numbers = range(1, _count(root, transaction, "num-samples", count) + 1)
        keys = _existing(transaction, root, (f"image-{number:09d}" for number in numbers))
        texts = NameTable(f"label-{number:09d}" for number in numbers)
        return _Layout("crnn", keys, (Field("text", "text"),), {"text": texts}, others=1)
    if (count := transaction.get(b"length")) is not None:
        return _stylegan2(root, transaction, _count(root, transaction, "length", count))
    if transaction.get(b"__len__") is not None:
        return _pickled(root, transaction)
    return _lsun(root, transaction)


def _open_lsun(path: str, root: str, labels: Mapping[str, int], classes: Sequence[str]) -> LmdbSource:
    found: list[NameTable] = []
    for name in labels:
        place = os.path.join(root, name)
        with _reading(place) as transaction:
            found.append(_lsun(place, transaction).keys)
    shard_of = np.repeat(np.arange(len(labels)), [*map(len, found)])
    values: dict[str, Values] = {"label": np.array([*labels.values()], np.int64)[shard_of]}
    layout = _Layout("lsun", NameTable(itertools.chain(*found)))
    return _source(path, root, [*labels], layout, values, shard_of, classes)


def _source(
    path: str,
    root: str,
    names: Sequence[str],
    found: _Layout,
    values: Mapping[str, Values],
    shard_of: Any,
    classes: Sequence[str] = (),
) -> LmdbSource:
    if not len(found.keys):
        raise malformed(path, "hold at least one image", "none", "check the database")
    is_folder = os.path.isdir(os.path.join(root, names[0]))
    files = [os.path.join(name, _DATA) if is_folder else os.path.basename(root) for name in names]
    return LmdbSource(
        kind=f"lmdb-{found.name}",
        name=path,
        classes=tuple(classes),
        fields=(*found.fields, SHARD),
        files=list_files(root if is_folder else os.path.dirname(root), files),
        values=values,
        shard_of=shard_of,
        keys=found.keys,
        further=found.further,
        details={"files": files, "is_folder": is_folder},
    )


def _count(path: str, transaction: Any, key: str, stored: Any) -> int:
    text = bytes(stored)
    if not text.isdigit() or len(text) > _MOST_DIGITS or int(text) > transaction.stat()["entries"]:
        raise malformed(f"{path}, key {key!r}", "be the number of images", text[:40])
    return int(text)


def _stylegan2(path: str, transaction: Any, count: int) -> _Layout:
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
    image, *others = sorted(sizes, reverse=True)
    images = _existing(transaction, path, (f"{image}-{number:05d}" for number in range(count)))
    fields = tuple(Field(f"image_{size}", "image", encoding="keep") for size in others)
    further = {
        f"image_{size}": NameTable(f"{size}-{number:05d}" for number in range(count)) for size in others
    }
    return _Layout("stylegan2", images, fields or (Field.label(),), further, others=1)


def _pickled(path: str, transaction: Any) -> _Layout:
    keys, length = (
        read_plain(bytes(_get(transaction, path, name)), f"{path}, key {name!r}")
        for name in ("__keys__", "__len__")
    )
    are_keys = isinstance(keys, (list, tuple)) and all(isinstance(key, bytes) for key in keys)
    if not are_keys or len(keys) != length:
        raise malformed(path, f"list its {length!r} keys in '__keys__'", "another list", _REWRITE)
    return _Layout("pickled", _existing(transaction, path, map(os.fsdecode, keys)), others=2)


def _basicsr(path: str, transaction: Any, meta: str) -> _Layout:
    """List the lines of meta_info.txt, `name.png (height,width,channels) level`; keys are name stems."""
    lines = read_text(meta).splitlines()
    matches = [_META_LINE.fullmatch(line) for line in lines]
    if None in matches:
        must = "have lines like 'name.png (120,125,3) 1'"
        raise malformed(meta, must, repr(lines[matches.index(None)]), _REWRITE)
    keys = _existing(transaction, path, (match[1] for match in matches if match))
    return _Layout(
        "basicsr", keys, (Field("line", "text", internal=True),), values={"line": NameTable(lines)}
    )


def _lsun(path: str, transaction: Any) -> _Layout:
    keys = NameTable(os.fsdecode(bytes(key)) for key in transaction.cursor().iternext(values=False))
    for at in range(min(_SAMPLED, len(keys))):
        if format_of(bytes(_get(transaction, path, keys[at])[:HEAD_BYTES])) is None:
            known = "CRNN, Efficient-PyTorch, stylegan2-pytorch, BasicSR or LSUN"
            must = f"be an image file, or the database one of {known}"
            raise malformed(f"{path}, key {keys[at]!r}", must, "other bytes", FROM_PYTHON)
    return _Layout("lsun", keys)


def _existing(transaction: Any, path: str, keys: Iterable[str]) -> NameTable:
    """List keys that must exist, up to the first that does not: a header may state any number of them."""

    def checked() -> Iterator[str]:
        for key in keys:
            _get(transaction, path, key)
            yield key

    return NameTable(checked())


def _get(transaction: Any, path: str, key: str) -> Any:
    value = transaction.get(os.fsencode(key))
    if value is None:
        raise malformed(f"{path}, key {key!r}", "exist", "no such key", _REWRITE)
    return value


@dataclass(eq=False, kw_only=True)
class LmdbSource(ContainerSource):
    """A `Source` of the records of LMDB databases, by the keys of their images and of `further` fields."""

    keys: NameTable
    further: Mapping[str, NameTable] = field(default_factory=dict)

    def key(self, index: int) -> str:
        return self.keys[index]

    def read_from(self, path: str, index: int) -> SourceRecord:
        """Read one record; opening the database for it takes 0.1 ms."""
        key = self.keys[index]
        path = os.path.dirname(path) if self.details["is_folder"] else path
        values: dict[str, object] = {}
        with _reading(path) as transaction:
            image = bytes(_get(transaction, path, key))
            for name, keys in self.further.items():
                data = bytes(_get(transaction, path, keys[index]))
                values[name] = data.decode("utf-8", "surrogateescape") if name == "text" else data
        if self.kind == "lmdb-pickled":
            image, values["label"] = _unpickled(image, f"{path}, key {key!r}")
        return SourceRecord(key, image, values)


def _unpickled(data: bytes, where: str) -> tuple[bytes, int]:
    match read_plain(data, where):
        case [bytes(image), int(label)] if type(label) is int and label in INT64:
            return image, label
        case [*parts]:
            got: object = [type(each).__name__ for each in parts]
        case value:
            got = type(value).__name__
    raise malformed(where, "be (bytes of an image, integer label)", str(got), "leave it out")

"""Pickles of plain values: bytes, numbers, text, tuples and lists, and nothing else.

An unpickler without classes runs no code of a file. It is asked only after the operations of a pickle were
checked, because a large index of its memo would make it take any amount of memory.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

from fastload.errors import SourceError

_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}
_OPERATIONS = _PUTS | {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("FLOAT", "BINFLOAT", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "APPEND", "APPENDS"),
    *("GLOBAL", "REDUCE"),
}


class _BytesOf:
    """Stand-in for what protocols 0 to 2 call to make bytes: _codecs.encode(text, "latin1"), or bytes()."""

    __slots__ = ()

    def __call__(self, text: str = "", encoding: str = "latin1") -> bytes:
        if encoding != "latin1":
            raise ValueError(f"bytes of {encoding!r}")
        return text.encode("latin1")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in (("_codecs", "encode"), ("__builtin__", "bytes")):
            raise pickle.UnpicklingError(f"{module}.{name}")
        return _BytesOf()


def read_plain(data: bytes, where: str) -> Any:
    """Return the value in a pickle; raise SourceError, naming `where`, if it has more than plain values."""
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name not in _OPERATIONS or (
                operation.name in _PUTS and int(argument or 0) > len(data)
            ):
                shown = "" if argument is None else f" {argument!r}"
                raise ValueError(f"the operation {operation.name}{shown[:80]}")
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (
        *(pickle.UnpicklingError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError),
        *(EOFError, MemoryError),
    ) as error:
        # A pickle begins with an ASCII character or, since protocol 2, with the byte 128.
        is_other = not (
            data[:1] == b"\x80" or (data[:1].isascii() and data[:1].isalnum()) or data[:1] in b"()[]"
        )
        raise SourceError(
            f"{where}: must be a pickle of bytes, numbers, text, tuples and lists, got: {error}: "
            f"{'records of old releases of pyarrow cannot be read' if is_other else 'it could run code'}; "
            "load it yourself, and pack from Python with fastload.pack(dataset, 'DEST.fl')"
        ) from error

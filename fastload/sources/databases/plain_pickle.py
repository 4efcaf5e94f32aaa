"""Pickles of plain values, read without unpickling: bytes, numbers, text, tuples and lists, and nothing else.

`pickletools` splits a pickle into its operations, and those that make plain values are carried out here. An
operation that could name, build or call anything else is an error, so no code in a file is ever run.
"""

from __future__ import annotations

import pickletools
from typing import Any

from fastload.errors import SourceError

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()
# Protocols 0 to 2 have no bytes: they store a call of _codecs.encode(text, "latin1"), or of bytes().
_MAKERS, _BYTES = ("_codecs encode", "__builtin__ bytes"), object()


def read_plain(data: bytes, where: str) -> Any:
    """Return the value in a pickle; raise SourceError, naming `where`, if it has more than plain values."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for operation, argument, _ in pickletools.genops(data):
            _carry_out(operation.name, argument, stack, memo)
        [value] = stack
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        # A pickle begins with an ASCII character or, since protocol 2, with the byte 128.
        is_other = not (
            data[:1] == b"\x80" or (data[:1].isascii() and data[:1].isalnum()) or data[:1] in b"()[]"
        )
        raise SourceError(
            f"{where}: must be a pickle of bytes, numbers, text, tuples and lists, got: {error}: "
            f"{'records of old releases of pyarrow cannot be read' if is_other else 'it could run code'}; "
            "load it yourself, and pack from Python with fastload.pack(dataset, 'DEST.fl')"
        ) from error
    return value


def _carry_out(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in _VALUES:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in ("EMPTY_TUPLE", "EMPTY_LIST"):
        stack.append(() if name == "EMPTY_TUPLE" else [])
    elif name == "MARK":
        stack.append(_MARK)
    elif name in _TUPLES:
        stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
    elif name in ("TUPLE", "LIST"):
        items = _items(stack)
        stack.append(tuple(items) if name == "TUPLE" else items)
    elif name == "APPEND":
        item = stack.pop()
        stack[-1].append(item)
    elif name == "APPENDS":
        items = _items(stack)
        stack[-1].extend(items)
    elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif name == "GLOBAL" and argument in _MAKERS:
        stack.append(_BYTES)
    elif name == "REDUCE" and stack[-2] is _BYTES:
        text, *encoding = stack.pop() or ("", "latin1")
        if encoding != ["latin1"]:
            raise ValueError(f"bytes of {encoding!r}")
        stack[-1] = text.encode("latin1")
    elif name not in ("PROTO", "FRAME", "STOP"):
        raise ValueError(f"the operation {name}{'' if argument is None else f' {argument!r}'}")


def _items(stack: list[Any]) -> list[Any]:
    """Pop the values above the topmost mark, and the mark itself; return the values."""
    begin = max((at for at, each in enumerate(stack) if each is _MARK), default=-1)
    if begin < 0:
        raise ValueError("no mark where a list begins")
    items = stack[begin + 1 :]
    del stack[begin:]
    return items

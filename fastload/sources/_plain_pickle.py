"""Pickles of plain values, read without unpickling: bytes, numbers, text, tuples and lists, and nothing else.

`pickletools` splits a pickle into its operations, and those that make plain values are carried out here. An
operation that could name, build or call anything else is an error, so nothing in a file is ever run.
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
# Python before 3 had no bytes: its protocols 0 to 2 store them as a call of _codecs.encode(text, "latin1").
_ENCODE, _BYTES = "_codecs encode", object()


def read_plain(data: bytes, where: str) -> Any:
    """Return the value in a pickle; raise SourceError, naming `where`, if it is more than plain values."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for operation, argument, _ in pickletools.genops(data):
            _carry_out(operation.name, argument, stack, memo)
        [value] = stack
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        is_other = not data.startswith(b"\x80")  # the first byte of a pickle since protocol 2
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
    elif name == "GLOBAL" and argument == _ENCODE:
        stack.append(_BYTES)
    elif name == "REDUCE" and stack[-2] is _BYTES:
        text, encoding = stack.pop()
        if encoding != "latin1":
            raise ValueError(f"text encoded as {encoding!r}")
        stack[-1] = text.encode("latin1")
    elif name not in ("PROTO", "FRAME", "STOP"):
        raise ValueError(f"the operation {name}{'' if argument is None else f' {argument!r}'}")


def _items(stack: list[Any]) -> list[Any]:
    """Return the values above the topmost mark, and take them and the mark off the stack."""
    begin = len(stack) - 1 - next(at for at, each in enumerate(reversed(stack)) if each is _MARK)
    items = stack[begin + 1 :]
    del stack[begin:]
    return items

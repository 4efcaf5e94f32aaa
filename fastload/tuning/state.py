"""Whether reading a dataset changes it: a fingerprint of what it holds, taken without calling its code.

A dataset that remembers what it has read (a cache, a counter, a random generator of its own) remembers it in
the process that reads. Workers have copies, so with them it would behave differently from what its
author saw without them. Nothing of the dataset's own is called: no `__getstate__`, no `__eq__`, no property.
"""

from __future__ import annotations

import mmap
import random
import types
import zlib
from collections import deque
from typing import Any

import numpy as np
import torch

# Objects looked at, at most: 5 000 take some 5 ms.
_MOST_OBJECTS = 5000
# Elements of one container that are looked into, and, beyond, whose identities are compared.
_MOST_ELEMENTS = 64
_MOST_IDENTITIES = 100_000
# Bytes of one array, and of all of them: 16 MiB take some 10 ms.
_MOST_BYTES = 1 << 20
_MOST_BYTES_IN_ALL = 16 << 20

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def fingerprint(value: Any) -> int:
    """A number that changes when an object, or anything that it holds, does.

    Very large objects are sampled. The datasets of this library look the same always: what they remember is
    the same in every process.

    Args:
        value: The object.
    """
    digest = 0
    left = _MOST_BYTES_IN_ALL
    seen: set[int] = set()
    stack = [value]
    while stack and len(seen) < _MOST_OBJECTS:
        part = stack.pop()
        if type(part) in _PLAIN:
            digest = _mixed(digest, hash(part))
            continue
        if id(part) in seen or issubclass(type(part), _OPAQUE):
            digest = _mixed(digest, id(part))
            continue
        seen.add(id(part))
        if isinstance(part, np.ndarray) and (left := left - min(part.nbytes, _MOST_BYTES)) < 0:
            digest = _mixed(digest, id(part))
            continue
        digest = _mixed(digest, _own_digest(part))
        stack.extend(_parts(part))
    return digest


def _own_digest(part: Any) -> int:
    """What tells of a change to an object itself, its parts aside."""
    kind = type(part)
    if issubclass(kind, np.ndarray):
        return _array_digest(part)
    if issubclass(kind, torch.Tensor):
        return _mixed(id(part), int(part._version)) if part.layout is torch.strided else id(part)
    if issubclass(kind, torch.Generator):
        return zlib.crc32(part.get_state().numpy())
    if issubclass(kind, random.Random):
        return hash(random.Random.getstate(part))
    if issubclass(kind, np.random.Generator):
        return hash(repr(part.bit_generator.state))
    if issubclass(kind, np.random.RandomState):
        return hash(repr(part.get_state(legacy=False)))
    if issubclass(kind, bytearray):
        return zlib.crc32(memoryview(part)[:_MOST_BYTES])
    if issubclass(kind, (list, tuple, dict, set, frozenset, deque)):
        return _container_digest(part)
    return id(part)


def _container_digest(part: Any) -> int:
    length = len(part)
    if length <= _MOST_ELEMENTS:
        return length
    step = max(1, length // _MOST_IDENTITIES)
    if isinstance(part, (list, tuple)):
        return hash(tuple(map(id, part[::step] if step > 1 else part)))
    if isinstance(part, dict) and length <= _MOST_IDENTITIES:
        return hash(tuple(map(id, dict.values(part))))
    return length


def _array_digest(array: Any) -> int:
    if array.dtype.hasobject or array.nbytes == 0 or _is_of_a_file(array):
        return id(array)
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat[: _MOST_BYTES // array.itemsize]
    step = max(1, array.nbytes // _MOST_BYTES)
    return zlib.crc32(np.ascontiguousarray(flat[::step]).view(np.uint8).data)


def _is_of_a_file(array: Any) -> bool:
    """Whether an array's bytes are mapped from a file: looking at them would read it, and may take long."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


def _parts(part: Any) -> list[Any]:
    """What an object holds."""
    kind = type(part)
    if issubclass(kind, dict):
        return [] if len(part) > _MOST_ELEMENTS else [*dict.keys(part), *dict.values(part)]
    if issubclass(kind, (list, tuple)):
        return [] if len(part) > _MOST_ELEMENTS else list(part)
    if issubclass(kind, deque):
        return list(part)[:_MOST_ELEMENTS]
    if issubclass(kind, (set, frozenset, np.ndarray, torch.Tensor)):
        return []
    try:
        held = dict(object.__getattribute__(part, "__dict__"))
    except AttributeError:
        held = {}
    if kind.__module__.partition(".")[0] == "fastload":
        held = {name: value for name, value in held.items() if not name.startswith("_")}
        held.pop("targets", None)
        held.pop("samples", None)
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            member = vars(base).get(name)
            if isinstance(member, types.MemberDescriptorType):
                try:
                    held[name] = member.__get__(part)
                except AttributeError:
                    continue
    return [*held.keys(), *held.values()]


def _mixed(digest: int, value: int) -> int:
    return (digest * 1_000_003 ^ value) & 0xFFFFFFFFFFFFFFFF

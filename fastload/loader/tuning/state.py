"""Whether reading a dataset changes it, and whether it can be read by several processes at all.

A dataset that remembers what it has read (a cache, a counter, a random generator of its own) remembers it in
the process that reads. Workers have copies, so with them it would behave differently from what its
author saw without them. What talks through a file, a socket or a thread of this process has no copy at all.
Nothing of the dataset's own is called: no `__getattr__`, no `__eq__`, no property, no `__iter__`.
"""

from __future__ import annotations

import array
import functools
import io
import mmap
import random
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.pool import Pool
from typing import Any

import lmdb
import numpy as np
import torch

# Objects and plain values looked at, at most, however they are nested.
_MOST_LOOKS = 50_000
# Elements of one container that are looked into, and, beyond, whose identities are compared.
_MOST_ELEMENTS = 2000
_MOST_IDENTITIES = 100_000
# Bytes of one array, and of all of them: 16 MiB take some 10 ms.
_MOST_BYTES = 1 << 20
_MOST_BYTES_IN_ALL = 16 << 20

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_OPAQUE = (types.ModuleType, types.BuiltinFunctionType)
_SEQUENCES = (list, tuple, deque)

# What belongs to the process that made it. Forked workers would share its position or its talk, or lack its
# thread.
_BOUND: dict[type, str] = {
    io.IOBase: "a file that it holds open",
    socket.socket: "a socket that it holds open",
    Connection: "a pipe that it holds open",
    subprocess.Popen: "a process that it has started",
    sqlite3.Connection: "a database that it holds open",
    lmdb.Environment: "a database that it holds open",
    Pool: "threads or processes that it has started",
    Executor: "threads that it has started",
    threading.Thread: "a thread that it has started",
}
_IN_MEMORY = (io.BytesIO, io.StringIO)
# Made to be shared among processes, or to be written to by any of them.
_SHARED = frozenset({"multiprocessing", "logging"})

# Of what a function names in its module: what may be its state.
_LOOKED_INTO: tuple[type, ...] = (
    *_PLAIN, *_SEQUENCES, *_BOUND, dict, set, np.ndarray, functools._lru_cache_wrapper, types.FunctionType
)  # fmt: skip

LIBRARIES = frozenset({*sys.stdlib_module_names, "numpy", "torch", "torchvision", "cv2", "PIL", "fastload"})
"""Packages whose classes and functions hold no state of a user's dataset."""


def fingerprint(value: Any) -> int:
    """A number that changes when an object, or anything that it holds, does.

    Very large objects are sampled. The datasets of this library look the same always: what they remember is
    the same in every process.

    Args:
        value: The object.
    """
    digest, left = 0, _MOST_BYTES_IN_ALL
    for part in _walked(value):
        if type(part) in _PLAIN:
            digest = _mixed(digest, hash(part))
        elif isinstance(part, np.ndarray) and (left := left - min(part.nbytes, _MOST_BYTES)) < 0:
            digest = _mixed(digest, id(part))
        else:
            digest = _mixed(digest, _own_digest(part))
    return digest


def bound_to(value: Any) -> str:
    """What an object holds that belongs to this process, in words; "" for nothing.

    Args:
        value: The object.
    """
    for part in _walked(value):
        for kind, words in _BOUND.items():
            if issubclass(type(part), kind) and not _is_standard(part):
                return words
        if _is_iterator(type(part)) and not _is_standard(part):
            return "an iterator, which gives each of its values once"
    return ""


def _is_iterator(kind: type) -> bool:
    """Whether a type is an iterator whose position shows nowhere: a generator, a `zip`, an `itertools.count`.

    Of one that is written in Python, the position is in its attributes.
    """
    found = next((vars(base)["__next__"] for base in kind.__mro__ if "__next__" in vars(base)), None)
    return found is not None and not isinstance(found, types.FunctionType)


def _is_standard(part: Any) -> bool:
    """Whether a file is one that every process has, or lies in memory."""
    streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return issubclass(type(part), _IN_MEMORY) or any(part is stream for stream in streams)


def _walked(value: Any) -> Iterator[Any]:
    """An object and all that it holds, each once, plain values as often as they are met."""
    seen: set[int] = set()
    stack = [value]
    for _ in range(_MOST_LOOKS):
        if not stack:
            return
        part = stack.pop()
        if type(part) not in _PLAIN:
            if id(part) in seen:
                continue
            seen.add(id(part))
            stack.extend(_parts(part))
        yield part


def _own_digest(part: Any) -> int:
    """What tells of a change to an object itself, its parts aside."""
    kind = type(part)
    if issubclass(kind, np.ndarray):
        return _array_digest(part)
    if issubclass(kind, torch.Tensor):
        is_counted = part.layout is torch.strided and not part.is_inference()
        return _mixed(id(part), int(part._version)) if is_counted else id(part)
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
    if issubclass(kind, array.array):
        return zlib.crc32(memoryview(part)[: _MOST_BYTES // part.itemsize])
    if kind is functools._lru_cache_wrapper:
        # Not its hits: what is found in a cache that is full changes nothing.
        info = part.cache_info()
        return hash((info.misses, info.currsize))
    return _container_digest(part)


def _container_digest(part: Any) -> int:
    kind = type(part)
    for sequence in _SEQUENCES:
        if issubclass(kind, sequence):
            length = sequence.__len__(part)
            if length <= _MOST_ELEMENTS:
                return length
            step = max(1, length // _MOST_IDENTITIES)
            return hash(tuple(map(id, islice(sequence.__iter__(part), None, None, step))))
    if issubclass(kind, dict):
        length = dict.__len__(part)
        is_small = length <= _MOST_ELEMENTS or length > _MOST_IDENTITIES
        return length if is_small else hash(tuple(map(id, dict.values(part))))
    for group in (set, frozenset):
        if issubclass(kind, group):
            return int(group.__len__(part))
    return id(part)


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
        if dict.__len__(part) > _MOST_ELEMENTS:
            return []
        return [*dict.keys(part), *dict.values(part)]
    for sequence in _SEQUENCES:
        if issubclass(kind, sequence):
            length = sequence.__len__(part)
            return [] if length > _MOST_ELEMENTS else [*sequence.__iter__(part), *_attributes(part)]
    if issubclass(kind, types.FunctionType):
        return _held_by_function(part)
    if issubclass(kind, types.MethodType):
        return [part.__func__, part.__self__]
    if issubclass(kind, type):
        return _held_by_class(part)
    if issubclass(kind, (*_OPAQUE, set, frozenset, np.ndarray, torch.Tensor)):
        return []
    if kind.__module__.partition(".")[0] in _SHARED:
        return []
    return [kind, *_attributes(part)]


def _attributes(part: Any) -> list[Any]:
    """An object's attributes, those in slots included."""
    kind = type(part)
    # What a thread keeps for itself is not where other objects have it.
    owner: Any = threading.local if issubclass(kind, threading.local) else object
    try:
        held = dict(owner.__getattribute__(part, "__dict__"))
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


def _held_by_class(kind: type) -> list[Any]:
    """What a user's class holds: counters, caches, and its functions."""
    if kind.__module__.partition(".")[0] in LIBRARIES:
        return []
    held = [value for value in vars(kind).values() if not isinstance(value, types.GetSetDescriptorType)]
    return [*held, *kind.__bases__]


def _held_by_function(function: types.FunctionType) -> list[Any]:
    """What a user's function closes over, and what it names of its module, other than code."""
    if function.__module__ is None or function.__module__.partition(".")[0] in LIBRARIES:
        return []
    held: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:
            continue
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [*held, *(value for value in named if issubclass(type(value), _LOOKED_INTO))]


def _mixed(digest: int, value: int) -> int:
    return (digest * 1_000_003 ^ value) & 0xFFFFFFFFFFFFFFFF

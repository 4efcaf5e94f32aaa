"""State of a dataset that workers would not share.

A cache, a counter or a random generator of the dataset's own changes in the process that reads; workers would
change copies. An open file, socket or database has no copy at all. None of the dataset's own code is called.
"""

from __future__ import annotations

import array
import functools
import io
import mmap
import os
import random
import stat
import sys
import threading
import types
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

_MOST_PARTS = 50_000
# Elements of a container that are looked into; beyond, identities are compared.
_MOST_ELEMENTS = 2000
_MOST_IDENTITIES = 100_000
# Bytes of one array, and of all of them: 16 MiB take some 10 ms.
_MOST_BYTES = 1 << 20
_MOST_BYTES_IN_ALL = 16 << 20

PLAIN = (int, float, complex, str, bytes, bool, type(None))
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)

# Objects that belong to the process that made them, by module and name: forked workers would share their
# position or their connection, or lack their thread.
_BOUND = {
    ("io", "IOBase"): "a file that it holds open",
    ("h5py", "HLObject"): "an HDF5 file that it holds open",
    ("socket", "socket"): "a socket that it holds open",
    ("multiprocessing.connection", "Connection"): "a pipe that it holds open",
    ("subprocess", "Popen"): "a process that it has started",
    ("sqlite3", "Connection"): "a database that it holds open",
    ("lmdb", "Environment"): "a database that it holds open",
    ("multiprocessing.pool", "Pool"): "threads or processes that it has started",
    ("concurrent.futures", "Executor"): "threads that it has started",
    ("threading", "Thread"): "a thread that it has started",
}
# Made to be shared among processes, or to be written to by any of them.
_SHARED = frozenset({"multiprocessing", "logging"})

LIBRARIES = frozenset({*sys.stdlib_module_names, "numpy", "torch", "torchvision", "cv2", "PIL", "fastload"})
"""Packages whose classes and functions hold no state of a user's dataset."""


class DatasetState:
    """State of a dataset, and of the files that this process reads, before a batch is loaded."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._fingerprint = fingerprint(dataset)
        self._files = file_positions()

    def change_by_reading(self) -> str:
        """Return why workers must not read the dataset, now that a batch was read; "" if they may."""
        if held := bound_to_process(self._dataset):
            return (
                f"the dataset reads through {held}, which forked workers would share or lack: "
                "make it in __getitem__, or set num_workers"
            )
        if any(self._files.get(number, 0) != position for number, position in file_positions().items()):
            return (
                "the dataset reads through a file that it holds open, and forked workers would share its "
                "position: open it in __getitem__, or set num_workers"
            )
        if fingerprint(self._dataset) != self._fingerprint:
            return (
                "reading changes the dataset (a cache, a counter, a random generator of its own), and "
                "workers would change copies of it: set num_workers if that does not matter"
            )
        return ""

    def change_by_training(self) -> str:
        """Return why workers must not read the dataset, now that a training step is over; "" if they may."""
        if fingerprint(self._dataset) != self._fingerprint:
            return (
                "the training changes the dataset while it iterates, and workers would not see that: set "
                "num_workers if it does not matter"
            )
        return ""


def fingerprint(value: Any) -> int:
    """Return a number that changes with an object or anything that it holds; large ones are sampled."""
    digest, left = 0, _MOST_BYTES_IN_ALL
    for part in walk(value):
        if type(part) in PLAIN:
            number = hash(part)
        elif isinstance(part, np.ndarray) and (left := left - min(part.nbytes, _MOST_BYTES)) < 0:
            number = id(part)
        else:
            number = _digest(part)
        digest = (digest * 1_000_003 ^ number) & 0xFFFFFFFFFFFFFFFF
    return digest


def bound_to_process(value: Any) -> str:
    """Return what an object holds that belongs to this process, in words; "" for nothing."""
    bound = _loaded_bound_types()
    streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    for part in walk(value):
        kind = type(part)
        if issubclass(kind, (io.BytesIO, io.StringIO)) or any(part is stream for stream in streams):
            continue
        for each, words in bound.items():
            if issubclass(kind, each):
                return words
        advance = next((vars(base)["__next__"] for base in kind.__mro__ if "__next__" in vars(base)), None)
        # The position of a generator, a `zip` or an `itertools.count` shows nowhere; that of an iterator
        # written in Python is in its attributes.
        if advance is not None and not isinstance(advance, types.FunctionType):
            return "an iterator, which gives each of its values once"
    return ""


def file_positions() -> dict[int, int]:
    """Return the positions of the regular files that this process has open for reading, by descriptor."""
    positions: dict[int, int] = {}
    try:
        names = os.listdir("/proc/self/fdinfo")
    except OSError:
        return positions
    for name in names:
        try:
            if not stat.S_ISREG(os.stat(int(name)).st_mode):
                continue
            with open(f"/proc/self/fdinfo/{name}", encoding="ascii") as info:
                fields = dict(line.split(":", 1) for line in info if ":" in line)
        except (OSError, ValueError):
            continue
        if int(fields["flags"], 8) & os.O_ACCMODE != os.O_WRONLY:
            positions[int(name)] = int(fields["pos"])
    return positions


def walk(value: Any, most: int = _MOST_PARTS) -> Iterator[Any]:
    """Yield an object and all that it holds, each once; plain values as often as they are met."""
    seen: set[int] = set()
    stack = [value]
    for _ in range(most):
        if not stack:
            return
        part = stack.pop()
        if type(part) not in PLAIN:
            if id(part) in seen:
                continue
            seen.add(id(part))
            stack.extend(_parts(part))
        yield part


def _loaded_bound_types() -> dict[type, str]:
    """Return the bound types of the modules that are imported: of others there are no objects."""
    return {
        getattr(sys.modules[module], name): words
        for (module, name), words in _BOUND.items()
        if hasattr(sys.modules.get(module), name)
    }


def _digest(part: Any) -> int:
    """Return a number that changes with an object itself, its parts aside."""
    kind = type(part)
    for each, digest in _DIGESTS.items():
        if issubclass(kind, each):
            return digest(part)
    for sequence in _SEQUENCES:
        if issubclass(kind, sequence):
            length = sequence.__len__(part)
            if length <= _MOST_ELEMENTS:
                return length
            step = max(1, length // _MOST_IDENTITIES)
            return hash(tuple(map(id, islice(sequence.__iter__(part), None, None, step))))
    if issubclass(kind, dict):
        length = dict.__len__(part)
        is_compared = _MOST_ELEMENTS < length <= _MOST_IDENTITIES
        return hash(tuple(map(id, dict.values(part)))) if is_compared else length
    for each in _SETS:
        if issubclass(kind, each):
            return int(each.__len__(part))
    return id(part)


def _array_digest(values: Any) -> int:
    if values.dtype.hasobject or values.nbytes == 0 or _is_mapped(values):
        return id(values)
    flat = values.reshape(-1) if values.flags.c_contiguous else values.flat[: _MOST_BYTES // values.itemsize]
    step = max(1, values.nbytes // _MOST_BYTES)
    return zlib.crc32(np.ascontiguousarray(flat[::step]).view(np.uint8).data)


def _is_mapped(values: Any) -> bool:
    """Return whether an array's bytes are mapped from a file: looking at them would read it."""
    while isinstance(values, np.ndarray):
        values = values.base
    return isinstance(values.obj if isinstance(values, memoryview) else values, mmap.mmap)


def _tensor_digest(tensor: torch.Tensor) -> int:
    is_counted = tensor.layout is torch.strided and not tensor.is_inference()
    return hash((id(tensor), tensor._version)) if is_counted else id(tensor)


_DIGESTS: dict[type, Callable[[Any], int]] = {
    np.ndarray: _array_digest,
    torch.Tensor: _tensor_digest,
    torch.Generator: lambda part: zlib.crc32(part.get_state().numpy()),
    random.Random: lambda part: hash(random.Random.getstate(part)),
    np.random.Generator: lambda part: hash(repr(part.bit_generator.state)),
    np.random.RandomState: lambda part: hash(repr(part.get_state(legacy=False))),
    bytearray: lambda part: zlib.crc32(memoryview(part)[:_MOST_BYTES]),
    array.array: lambda part: zlib.crc32(memoryview(part)[: _MOST_BYTES // part.itemsize]),
    # Not its hits: what is found in a cache that is full changes nothing.
    functools._lru_cache_wrapper: lambda part: hash((part.cache_info().misses, part.cache_info().currsize)),
}


def _parts(part: Any) -> list[Any]:
    """Return what an object holds."""
    kind = type(part)
    if issubclass(kind, dict):
        return [] if dict.__len__(part) > _MOST_ELEMENTS else [*dict.keys(part), *dict.values(part)]
    for sequence in _SEQUENCES:
        if issubclass(kind, sequence):
            length = sequence.__len__(part)
            return [] if length > _MOST_ELEMENTS else [*sequence.__iter__(part), *_attributes(part)]
    if issubclass(kind, types.FunctionType):
        return _held_by_function(part)
    if issubclass(kind, types.MethodType):
        return [part.__func__, part.__self__]
    if issubclass(kind, functools.partial):
        return [part.func, *part.args, *part.keywords.items()]
    if issubclass(kind, type):
        return _held_by_class(part)
    if issubclass(kind, (types.ModuleType, types.BuiltinFunctionType, *_SETS, np.ndarray, torch.Tensor)):
        return []
    if kind.__module__.partition(".")[0] in _SHARED:
        return []
    return [kind, *_attributes(part)]


def _attributes(part: Any) -> list[Any]:
    """Return an object's attributes, those in slots included."""
    kind = type(part)
    # The values of a thread are not where other objects have theirs.
    owner: Any = threading.local if issubclass(kind, threading.local) else object
    try:
        held = dict(owner.__getattribute__(part, "__dict__"))
    except AttributeError:
        held = {}
    if kind.__module__.partition(".")[0] == "fastload":
        # What our own datasets remember is the same in every process.
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
    """Return what a user's class holds: counters, caches, and its functions."""
    if kind.__module__.partition(".")[0] in LIBRARIES:
        return []
    held = [value for value in vars(kind).values() if not isinstance(value, types.GetSetDescriptorType)]
    return [*held, *kind.__bases__]


def _held_by_function(function: types.FunctionType) -> list[Any]:
    """Return what a user's function closes over, its defaults, and what it names of its module, but code."""
    if function.__module__ is None or function.__module__.partition(".")[0] in LIBRARIES:
        return []
    held: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    looked_into: tuple[type, ...] = (
        *PLAIN, *_SEQUENCES, *_loaded_bound_types(), dict, set, np.ndarray,
        functools._lru_cache_wrapper, types.FunctionType,
    )  # fmt: skip
    return [*held, *(value for value in named if issubclass(type(value), looked_into))]

"""State of a dataset, its collate_fn and its sampler that worker processes would not share.

A cache, a counter or a random generator inside the dataset or the collate_fn changes in the process that
loads; workers would change copies of it. An open file, socket or database cannot be copied. Changes that the
training makes come too late for batches that workers make in advance. No code of these objects is called.
"""

from __future__ import annotations

import array
import contextlib
import functools
import inspect
import io
import mmap
import random
import sys
import threading
import types
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import psutil
import torch

# Objects that are visited; those beyond are not compared.
_MOST_PARTS = 50_000
# Containers with more elements are not searched: the identities of their elements are compared.
_MOST_ELEMENTS = 2000
_MOST_IDENTITIES = 100_000
# Bytes hashed of one array, and of all arrays together: 16 MiB take some 10 ms.
_MOST_BYTES = 1 << 20
_MOST_BYTES_IN_ALL = 16 << 20

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_CONTAINERS = (dict, list, tuple, deque, set, frozenset)

# Objects that belong to the process that made them, by module and name: forked workers would share their
# position or connection, or lack their thread.
_BOUND = {
    ("io", "IOBase"): "a file that it holds open",
    ("h5py", "HLObject"): "an HDF5 file that it holds open",
    # Of h5py's low-level interface; a FileID is a GroupID.
    ("h5py.h5g", "GroupID"): "an HDF5 file that it holds open",
    ("h5py.h5d", "DatasetID"): "an HDF5 file that it holds open",
    ("socket", "socket"): "a socket that it holds open",
    ("multiprocessing.connection", "Connection"): "a pipe that it holds open",
    ("subprocess", "Popen"): "a process that it has started",
    ("sqlite3", "Connection"): "a database that it holds open",
    ("lmdb", "Environment"): "a database that it holds open",
    ("multiprocessing.pool", "Pool"): "threads or processes that it has started",
    ("concurrent.futures", "Executor"): "threads that it has started",
    ("threading", "Thread"): "a thread that it has started",
}
# Packages whose objects are made to be shared among processes, or written to by any of them.
_SHARED = frozenset({"multiprocessing", "logging"})
# Packages whose classes and functions hold no state of a user's dataset.
_LIBRARIES = frozenset({*sys.stdlib_module_names, "numpy", "torch", "torchvision", "cv2", "PIL", "fastload"})


class DatasetState:
    """Snapshot of a dataset's state, and of this process's file positions, to compare with a later one.

    It includes the state of the dataset's `collate_fn` and `sampler`, if they are given.
    """

    def __init__(self, dataset: object, collate_fn: object = None, sampler: object = None) -> None:
        self._owners = {"dataset": dataset, "collate_fn": collate_fn, "sampler": sampler}
        self._fingerprints = self._current()
        self._files = file_positions()

    def change_by_loading(self) -> str:
        """Return why workers must not load, judged after loading a batch; "" if they may."""
        bound = {name: bound_to_process(self._owners[name]) for name in ("dataset", "collate_fn")}
        if any(self._files.get(number, 0) != position for number, position in file_positions().items()):
            bound["dataset"] = bound["dataset"] or "a file that it holds open"
        for name, description in bound.items():
            if description:
                return (
                    f"the {name} uses {description}, which forked workers would share or lack: "
                    "open or create it for each batch, or set num_workers"
                )
        if changed := self._changed():
            return (
                f"loading changes the {changed} (such as a cache, a counter or a random generator), and "
                "workers would change copies of it: set num_workers if that does not matter"
            )
        return ""

    def change_by_training(self) -> str:
        """Return why workers must not load, judged after a training step; "" if they may."""
        if changed := self._changed():
            return (
                f"the training changes the {changed} during an epoch, and batches that workers make in "
                "advance would not see the change: set num_workers if that does not matter"
            )
        return ""

    def _changed(self) -> str:
        """Return the name of the first owner whose state has changed; "" if none has."""
        current = self._current()
        return next((name for name in current if current[name] != self._fingerprints[name]), "")

    def _current(self) -> dict[str, int]:
        owners = list(self._owners.values())
        # A collate_fn or a sampler may refer to the dataset, whose changes are its own.
        return {name: fingerprint(owner, owners) for name, owner in self._owners.items()}


def fingerprint(value: object, others: Iterable[object] = ()) -> int:
    """Return a hash of an object and everything it refers to, except `others`; large parts are sampled."""
    digest, left = 0, _MOST_BYTES_IN_ALL
    for part in _walk(value, others=others):
        if type(part) in _PLAIN:
            number = hash(part)
        elif isinstance(part, np.ndarray) and (left := left - min(part.nbytes, _MOST_BYTES)) < 0:
            number = id(part)
        else:
            number = _digest(part)
        digest = (digest * 1_000_003 ^ number) & 0xFFFFFFFFFFFFFFFF
    return digest


def bound_to_process(value: object) -> str:
    """Return, as a noun phrase, a part of an object that belongs to this process; "" if there is none."""
    bound = _loaded_bound_types()
    streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    for part in _walk(value, global_objects=True):
        kind = type(part)
        if issubclass(kind, (io.BytesIO, io.StringIO)) or any(part is stream for stream in streams):
            continue
        for each, description in bound.items():
            if issubclass(kind, each):
                return description
        advance = next((vars(base)["__next__"] for base in kind.__mro__ if "__next__" in vars(base)), None)
        # A generator, a `zip` or an `itertools.count` does not expose its position; an iterator written in
        # Python keeps it in its attributes.
        if advance is not None and not isinstance(advance, types.FunctionType):
            return "an iterator, which returns each of its values only once"
    return ""


def file_positions() -> dict[int, int]:
    """Return the positions of the regular files that this process has open for reading, by descriptor."""
    if not sys.platform.startswith("linux"):
        return {}  # psutil knows positions on Linux alone
    with contextlib.suppress(psutil.Error, OSError):
        return {file.fd: file.position for file in psutil.Process().open_files() if file.mode not in "wa"}
    return {}


def _walk(value: object, global_objects: bool = False, others: Iterable[object] = ()) -> Iterator[object]:
    """Yield an object and everything it refers to, each once; plain values each time they occur.

    With `global_objects`, that includes instances of any class in the global variables of its functions. They
    matter if they hold a file; whether they change does not, because most are not state of the dataset.
    `others` are left out.
    """
    seen = {id(other) for other in others if other is not value}
    stack = [value]
    for _ in range(_MOST_PARTS):
        if not stack:
            return
        part = stack.pop()
        if type(part) not in _PLAIN:
            if id(part) in seen:
                continue
            seen.add(id(part))
            stack.extend(_parts(part, global_objects))
        yield part


def _loaded_bound_types() -> dict[type, str]:
    # A module that is not imported cannot have objects here.
    return {
        getattr(sys.modules[module], name): description
        for (module, name), description in _BOUND.items()
        if hasattr(sys.modules.get(module), name)
    }


def _digest(part: Any) -> int:
    # A digest of the object alone, without its parts.
    kind = type(part)
    for each, digest in _DIGESTS.items():
        if issubclass(kind, each):
            return digest(part)
    container = _container(kind)
    if container is None:
        return id(part)
    length = int(container.__len__(part))
    if length <= _MOST_ELEMENTS:
        return length
    # The built-in classes' own methods are used: those of a subclass are user code.
    elements = dict.values(part) if container is dict else container.__iter__(part)
    return hash(tuple(map(id, islice(elements, None, None, max(1, length // _MOST_IDENTITIES)))))


def _container(kind: type) -> Any:
    return next((each for each in _CONTAINERS if issubclass(kind, each)), None)


def _array_digest(values: Any) -> int:
    if values.dtype.hasobject or values.nbytes == 0 or _is_mapped(values):
        return id(values)
    flat = values.reshape(-1) if values.flags.c_contiguous else values.flat[: _MOST_BYTES // values.itemsize]
    step = max(1, values.nbytes // _MOST_BYTES)
    return zlib.crc32(np.ascontiguousarray(flat[::step]).view(np.uint8).data)


def _is_mapped(values: object) -> bool:
    # Hashing the bytes would read the file.
    while isinstance(values, np.ndarray):
        values = values.base
    return isinstance(values.obj if isinstance(values, memoryview) else values, mmap.mmap)


def _tensor_digest(tensor: torch.Tensor) -> int:
    # torch counts how often a tensor was modified in place.
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
    # Not its hits: looking up a value changes nothing.
    functools._lru_cache_wrapper: lambda part: hash((part.cache_info().misses, part.cache_info().currsize)),
}


def _parts(part: Any, global_objects: bool) -> list[object]:
    kind = type(part)
    container = _container(kind)
    if container is not None:
        # The order of a set differs from run to run, and its elements do not change.
        if container in (set, frozenset) or container.__len__(part) > _MOST_ELEMENTS:
            return []
        elements = [*container.__iter__(part), *(dict.values(part) if container is dict else ())]
        return elements if kind is container else [*elements, *_attributes(part)]
    if issubclass(kind, types.FunctionType):
        return _held_by_function(part, global_objects)
    if issubclass(kind, types.MethodType):
        return [part.__func__, part.__self__]
    if issubclass(kind, functools.partial):
        return [part.func, *part.args, *part.keywords.items()]
    if issubclass(kind, type):
        if _package(part) in _LIBRARIES:
            return []
        held = [each for each in vars(part).values() if not isinstance(each, types.GetSetDescriptorType)]
        return [*held, *part.__bases__]
    leaves = (types.ModuleType, types.BuiltinFunctionType, np.ndarray, torch.Tensor)
    return [] if issubclass(kind, leaves) or _package(kind) in _SHARED else [kind, *_attributes(part)]


def _package(definition: object) -> str:
    return (definition.__module__ or "").partition(".")[0]


def _attributes(part: object) -> list[object]:
    kind = type(part)
    # A thread's values are not in the usual `__dict__`.
    owner: Any = threading.local if issubclass(kind, threading.local) else object
    held: dict[str, object] = {}
    with contextlib.suppress(AttributeError):
        held = dict(owner.__getattribute__(part, "__dict__"))
    if _package(kind) == "fastload":
        # Our own datasets keep the same data in memory in every process.
        memory = ("targets", "samples", "pixel_type")
        held = {
            name: value for name, value in held.items() if not name.startswith("_") and name not in memory
        }
    for base in kind.__mro__:
        for name, member in vars(base).items() if "__slots__" in vars(base) else ():
            if isinstance(member, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    held[name] = member.__get__(part)
    return [*held.keys(), *held.values()]


def _held_by_function(function: types.FunctionType, global_objects: bool) -> list[object]:
    # Defaults, and the variables of enclosing functions and of the module that the function uses.
    if not function.__module__ or _package(function) in _LIBRARIES:
        return []
    held: list[object] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    named: Iterable[object] = ()
    with contextlib.suppress(ValueError):  # a variable has no value yet
        variables = inspect.getclosurevars(function)
        held += variables.nonlocals.values()
        named = variables.globals.values()
    looked_into: tuple[type, ...] = (
        *_PLAIN, *_CONTAINERS, *_loaded_bound_types(), np.ndarray,
        functools._lru_cache_wrapper, types.FunctionType,
    )  # fmt: skip
    for value in named:
        kind = type(value)
        is_object = not issubclass(kind, (type, types.ModuleType)) and _package(kind) not in _LIBRARIES
        if issubclass(kind, looked_into) or (global_objects and is_object):
            held.append(value)
    return held

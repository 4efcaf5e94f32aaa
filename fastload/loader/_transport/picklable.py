"""Error messages for objects that cannot be sent to a worker, with the part that cannot be pickled."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import socket
import types
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastload.errors import UnpicklableError

if TYPE_CHECKING:
    from fastload.loader._arguments import LoaderView

# The most elements of one container that are checked.
_MOST_ELEMENTS = 1000


@contextlib.contextmanager
def naming_unpicklable_parts(loader: LoaderView) -> Iterator[None]:
    """Raise UnpicklableError, which names the part, if workers fail to start because of a loader's part."""
    context = loader.multiprocessing_context or multiprocessing
    method = context.get_start_method()
    if method == "fork":
        yield
        return
    try:
        with warnings.catch_warnings():
            # torch warns before it raises pickle's error.
            warnings.filterwarnings("ignore", "Got pickle error when attempting to start")
            yield
    except Exception as error:
        for name in ("dataset", "collate_fn", "worker_init_fn"):
            if why := unpicklable_part(getattr(loader, name), name):
                raise UnpicklableError(
                    f"workers that are started by {method} receive a pickled copy of the loader's parts, and "
                    f"{why}: define functions and classes at the top level of a module, open files in "
                    "__getitem__, or set num_workers=0"
                ) from error
        raise


def unpicklable_part(value: Any, name: str) -> str:
    """Return, as a clause, the innermost part of `value` that cannot be pickled and why; "" if there is none.

    The clause calls the value `name`.
    """
    why = _why_not(value)
    if not why:
        return ""
    seen = {id(value)}
    while True:
        for step, part in _parts(value):
            if id(part) not in seen and (inner := _why_not(part)):
                seen.add(id(part))
                value, name, why = part, name + step, inner
                break
        else:
            return f"{name} cannot be pickled: it is {_described(value)} ({why})"


class _Probe(pickle.Pickler):
    """Pickler that discards its output and skips large parts that are known to be picklable."""

    def reducer_override(self, value: Any) -> Any:
        is_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
        if is_array or isinstance(value, (torch.Tensor, Connection, socket.socket)):
            return int, ()
        return NotImplemented


def _why_not(value: Any) -> str:
    try:
        with open(os.devnull, "wb") as nowhere:
            _Probe(nowhere, 5).dump(value)
    except RecursionError:
        return "it is nested too deeply"
    except RuntimeError:
        return ""  # a lock or queue of multiprocessing, which can be sent while a process is started
    except Exception as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the elements or attributes of an object, each with the suffix of its name."""
    parts: Iterator[tuple[str, Any]]
    if isinstance(value, dict):
        parts = ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        parts = ((f"[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, types.MethodType):
        parts = iter([(".__self__", value.__self__)])
    else:
        attributes = {} if isinstance(value, type) else getattr(value, "__dict__", {})
        parts = ((f".{name}", part) for name, part in attributes.items())
    yield from itertools.islice(parts, _MOST_ELEMENTS)


def _described(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        kind = "a lambda" if value.__name__ == "<lambda>" else f"the function {value.__qualname__}"
        return f"{kind} of {value.__code__.co_filename}, line {value.__code__.co_firstlineno}"
    return f"of type {type(value).__module__}.{type(value).__qualname__}"

"""Errors for what cannot be sent to a worker, or imported by one."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import socket
import sys
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from fastload.errors import UnpicklableError
from fastload.loader.arguments import LoaderView
from fastload.loader.measurements import may_import_main


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
            if why := why_not_picklable(getattr(loader, name)):
                raise UnpicklableError(
                    f"workers that are started by {method} receive a pickled copy of the loader's parts, and "
                    f"{name} cannot be pickled ({why}): define functions and classes at the top level of a "
                    "module, open files in __getitem__, or set num_workers=0"
                ) from error
        raise


def start_failure(error: Exception, loader: LoaderView) -> Exception:
    """Return an error of workers, with the reason if they died because they cannot import the main module."""
    context = loader.multiprocessing_context or multiprocessing
    method = context.get_start_method()
    if method == "fork" or "exited unexpectedly" not in str(error):
        return error
    if not may_import_main():
        why = "import the script, which must be protected by 'if __name__ == \"__main__\":'"
    elif not hasattr(sys.modules["__main__"], "__file__"):
        why = (
            "cannot import what is defined in a notebook or an interactive session: write classes and "
            "functions to a module and import it, or set num_workers=0"
        )
    else:
        return error
    explained = RuntimeError(f"{error}: workers that are started by {method} {why}")
    explained.__cause__ = error
    return explained


class _Probe(pickle.Pickler):
    """Pickler that discards its output and skips large parts that are known to be picklable."""

    def reducer_override(self, value: object) -> Any:
        is_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
        if is_array or isinstance(value, (torch.Tensor, Connection, socket.socket)):
            return int, ()
        return NotImplemented


def why_not_picklable(value: object) -> str:
    """Return pickle's reason why a value cannot be pickled; "" if it can be."""
    try:
        with open(os.devnull, "wb") as nowhere:
            _Probe(nowhere, 5).dump(value)
    except RecursionError:
        return "it is nested too deeply"
    except RuntimeError:
        return ""  # a lock or queue of multiprocessing, which can be sent while a process is started
    except Exception as error:
        # From Python 3.14 on, pickle's notes tell where the part is.
        reasons = str(error) or type(error).__name__, *getattr(error, "__notes__", ())
        return " ".join(" ".join(reasons).split())
    return ""

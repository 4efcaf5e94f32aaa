"""Choice of the executor: the worker processes of this machine, or a Ray cluster."""

from __future__ import annotations

import contextlib
import os
from functools import partial

from fastload.errors import OptionError
from fastload.packing.running.local import Executor, pack_here
from fastload.system.cpus import usable_cpus


def executor_for(
    on: str | None, workers: int | None, source: object
) -> contextlib.AbstractContextManager[Executor]:
    """Return the executor for `pack`'s options, connected to a Ray cluster in the block if `on` names one."""
    if on is None:
        return contextlib.nullcontext(partial(pack_here, workers or usable_cpus()))
    name, sign, address = on.partition("=")
    if name != "ray" or bool(sign) != bool(address):
        raise OptionError(f"on must be 'ray' or 'ray=ADDRESS', as in ray=10.0.0.1:6379, got {on!r}")
    if workers is not None:
        raise OptionError(
            "workers are processes of this machine, and on='ray' uses those of Ray: leave one out"
        )
    from fastload.packing.running.ray import connected

    origin = None
    if isinstance(source, str | os.PathLike) and os.path.exists(path := os.path.expanduser(source)):
        origin = os.path.abspath(path)
    return connected(address or None, origin)

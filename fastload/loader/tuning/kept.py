"""Plans that outlive a run: one small JSON file each, in the user's cache folder.

A plan is found again by what it depends on: the machine, the dataset and what is done to its samples, and
what the user said. What is no plan, or cannot be written, is as if it were not there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import sys
import tempfile
import types
import zlib
from pathlib import Path
from typing import Any

from fastload._version import __version__
from fastload.errors import OptionError
from fastload.loader.strategy import LoaderView
from fastload.loader.tuning.plan import Plan
from fastload.loader.tuning.state import LIBRARIES
from fastload.system.cpus import local_ranks
from fastload.system.overview import identity, read_machine

_VARIABLE = "FASTLOAD_PLAN"
_MODES = ("", "off", "fresh")


def mode() -> str:
    """What the user says of plans in FASTLOAD_PLAN: "off", "fresh", or "" for neither.

    Raises:
        OptionError: It has another value.
    """
    value = os.environ.get(_VARIABLE, "")
    if value not in _MODES:
        raise OptionError(f'{_VARIABLE} must be "off" or "fresh", or not set, got {value!r}')
    return value


def folder() -> Path:
    """Where plans are kept: `fastload/plans` in the user's cache folder."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "fastload" / "plans"


def parts_of(view: LoaderView) -> dict[str, Any]:
    """All that a loader's plan depends on.

    Args:
        view: The loader.
    """
    return {
        "machine": identity(read_machine()),
        "dataset": described(view.dataset),
        "collate_fn": described(view.collate_fn),
        "batch_size": view.batch_size,
        "said": {name: described(value) for name, value in view.explicit.items()},
        "samplers": [described(type(view.sampler)), described(type(view.batch_sampler))],
        "context": described(view.multiprocessing_context),
        "ranks": local_ranks(),
    }


def key_of(parts: dict[str, Any]) -> str:
    """The name of a plan: a hash of all that it depends on."""
    text = json.dumps({**parts, "release": __version__}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_plan(key: str) -> Plan | None:
    """The plan kept under a key, None where there is none."""
    try:
        with open(folder() / f"{key}.json", encoding="utf-8") as file:
            plan = Plan.from_dict(json.load(file))
        return plan if _is_sound(plan) else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_sound(plan: Plan) -> bool:
    """Whether a plan's numbers can be worked with: somebody may have changed the file."""
    measured = plan.measured
    alone, limits = measured.alone, measured.limits
    counts = [plan.num_workers.value, plan.prefetch_factor.value or 1, limits.cpus, limits.most_workers]
    counts += [limits.most_batches, *([] if alone is None else [alone.batch_size, alone.batch_bytes])]
    seconds = [limits.start_s, *([] if alone is None else [alone.load_s, alone.load_cpu_s])]
    seconds += [] if alone is None else [alone.load_blocked_s, alone.step_s]
    for trial in measured.trials:
        counts += [trial.num_workers, trial.prefetch_factor, trial.batches - 1]
        seconds += [trial.seconds - 1e-9, trial.waiting_s]
    are_whole = all(type(count) is int and count >= 0 for count in counts)
    return are_whole and all(math.isfinite(each) and each >= 0 for each in seconds)


def write_plan(key: str, plan: Plan) -> None:
    """Keeps a plan; where the folder cannot be written to, or there is no home for it, nothing is kept."""
    with contextlib.suppress(OSError, RuntimeError):
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that runs that end at the same time never leave half a plan.
        descriptor, name = tempfile.mkstemp(dir=place, suffix=".tmp")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(plan.to_dict(), file, indent=1, default=str)
            os.replace(name, place / f"{key}.json")
        except BaseException:
            os.unlink(name)
            raise


def forget_plan(key: str) -> None:
    """Removes the plan kept under a key, if there is one."""
    with contextlib.suppress(OSError, RuntimeError):
        os.unlink(folder() / f"{key}.json")


def described(value: Any, depth: int = 4) -> Any:
    """What an object is, for a key: types, numbers, strings and lengths, from attributes alone.

    None of its own code is called. Two datasets that look the same get the same key; their plans are
    measured against the epoch all the same.
    """
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.FunctionType):
        # Lambdas share a name; what they do is in their code.
        code = value.__code__
        numbers = [const for const in code.co_consts if isinstance(const, (int, float, str, bytes))]
        body = zlib.crc32(code.co_code + repr((code.co_names, numbers)).encode())
        held = [described(each, depth - 1) for each in _parameters(value)] if depth else []
        return [value.__module__, value.__qualname__, body, held]
    if isinstance(value, (types.MethodType, functools.partial)) and depth:
        parts = (value.func, value.args, value.keywords) if isinstance(value, functools.partial) else ()
        bound = (value.__func__, value.__self__) if isinstance(value, types.MethodType) else ()
        return [name, [described(part, depth - 1) for part in (*parts, *bound)]]
    if isinstance(value, types.BuiltinFunctionType):
        return [name, value.__module__, value.__qualname__]
    if isinstance(value, (list, tuple)):
        sequence: Any = list if isinstance(value, list) else tuple
        first = itertools.islice(sequence.__iter__(value), 16) if depth else ()
        return [name, sequence.__len__(value), [described(each, depth - 1) for each in first]]
    if isinstance(value, dict):
        items = itertools.islice(dict.items(value), 16) if depth else ()
        pairs = [[described(part, depth - 1) for part in item] for item in items]
        return [name, dict.__len__(value), pairs]
    if not depth:
        return name
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return name
    attributes = {str(key): described(each, depth - 1) for key, each in list(held.items())[:64]}
    return [name, attributes, *_code_of(kind)]


def _parameters(function: types.FunctionType) -> list[Any]:
    """What a user's function depends on besides its arguments: what it closes over, defaults, constants."""
    if (function.__module__ or "").partition(".")[0] in LIBRARIES:
        return []
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # A cell that is not filled yet.
            held.append(cell.cell_contents)
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [*held, *(value for value in named if isinstance(value, (bool, int, float, str)))]


def _code_of(kind: type) -> list[Any]:
    """What the functions of a user's class do: a plan is no good for other code under the same name."""
    if kind.__module__.partition(".")[0] in LIBRARIES:
        return []
    functions = [value for value in vars(kind).values() if isinstance(value, types.FunctionType)]
    return [described(function, 1) for function in functions]

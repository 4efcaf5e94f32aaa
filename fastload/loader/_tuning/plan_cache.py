"""Plan cache: plans that outlive a run, one small JSON file each in the user's cache folder.

A plan is found again by what it depends on: the machine, the dataset and its transforms, and the explicit
parameters. A damaged file is ignored, and so is a folder that cannot be written to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import tempfile
import types
from pathlib import Path, PurePath
from typing import Any

import platformdirs

from fastload._version import __version__
from fastload.errors import OptionError
from fastload.loader._dataset_state import PLAIN, walk
from fastload.loader._strategy import LoaderView
from fastload.loader._tuning.plan import Plan
from fastload.system.cpus import affine_cpus, local_ranks

# Parts of the dataset and its transforms that a key is made of: 1 ms.
_MOST_PARTS = 2000


def cache_mode() -> str:
    """Return the value of FASTLOAD_PLAN: "off", "fresh", or "" for neither.

    Raises:
        OptionError: It has another value.
    """
    value = os.environ.get("FASTLOAD_PLAN", "")
    if value not in ("", "off", "fresh"):
        raise OptionError(f'FASTLOAD_PLAN must be "off" or "fresh", or not set, got {value!r}')
    return value


def plan_key(view: LoaderView) -> str:
    """Return the name of a loader's plan: a hash of all that it depends on."""
    parts = [
        __version__,
        platform.node(),
        affine_cpus(),
        local_ranks(),
        view.batch_size,
        *(
            describe(each)
            for each in (view.dataset, view.collate_fn, dict(view.explicit), view.multiprocessing_context)
        ),
        *(type(each).__qualname__ for each in (view.sampler, view.batch_sampler)),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def describe(value: Any) -> str:
    """Return a digest of an object's types, numbers, strings, lengths and code, the same in every run.

    Two datasets with the same description share a plan, which each epoch's times are compared with.
    """
    digest = hashlib.sha256()
    for part in walk(value, _MOST_PARTS):
        if type(part) in PLAIN:
            text = repr(part)
        elif isinstance(part, types.FunctionType):
            code = part.__code__
            numbers = [const for const in code.co_consts if isinstance(const, PLAIN)]
            text = repr((part.__module__, part.__qualname__, code.co_code, code.co_names, numbers))
        elif isinstance(part, (type, types.BuiltinFunctionType)):
            text = f"{part.__module__}.{part.__qualname__}"
        elif isinstance(part, PurePath):
            text = str(part)
        else:
            kind = type(part)
            length = next((each.__len__(part) for each in (list, tuple, dict) if issubclass(kind, each)), 0)
            text = f"{kind.__module__}.{kind.__qualname__} {length}"
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def read_plan(view: LoaderView) -> Plan | None:
    """Return the plan cached for a loader; None where there is none, or no sound one."""
    if not _folder().is_dir():
        return None
    try:
        plan = Plan.from_dict(json.loads(_path(view).read_text(encoding="utf-8")))
        return plan if _is_sound(plan) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_plan(view: LoaderView, plan: Plan) -> None:
    """Cache a plan, if the folder can be written to."""
    with contextlib.suppress(OSError):
        path = _path(view)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that runs that end at the same time never leave half a plan.
        descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(plan.to_dict(), file, indent=1, default=str)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


def forget_plan(view: LoaderView) -> None:
    """Remove the plan cached for a loader, if there is one."""
    with contextlib.suppress(OSError):
        if _folder().is_dir():
            _path(view).unlink()


def _folder() -> Path:
    return Path(platformdirs.user_cache_dir("fastload", appauthor=False)) / "plans"


def _path(view: LoaderView) -> Path:
    return _folder() / f"{plan_key(view)}.json"


def _is_sound(plan: Plan) -> bool:
    """Return whether all numbers of a plan can be worked with: somebody may have changed the file."""
    measured, cost = plan.measured, plan.measured.single_process
    limits = measured.limits
    if cost is None or not measured.trials:
        return False
    counts = [limits.cpus, limits.most_workers, limits.most_batches, cost.batch_size, cost.batch_bytes]
    seconds = [limits.start_s, cost.load_s, cost.load_cpu_s, cost.load_blocked_s, cost.step_s]
    counts += [plan.num_workers.value, plan.prefetch_factor.value or 1]
    for trial in measured.trials:
        counts += [trial.num_workers, trial.prefetch_factor, trial.batches - 1]
        seconds += [trial.seconds - 1e-9, trial.waiting_s]
    are_whole = all(type(count) is int and count >= 0 for count in counts)
    return are_whole and all(math.isfinite(each) and each >= 0 for each in seconds)

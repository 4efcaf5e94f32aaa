"""Plans that outlive a run: one small JSON file each, in the user's cache folder.

A plan is found again by what it depends on: the machine, the dataset and what is done to its samples, and
what the user said. What is no plan, or cannot be written, is as if it were not there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import types
import zlib
from pathlib import Path
from typing import Any

from fastload import __version__
from fastload.errors import OptionError
from fastload.tuning.plan import Plan

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


def key_of(parts: dict[str, Any]) -> str:
    """The name of a plan: a hash of all that it depends on."""
    text = json.dumps({**parts, "release": __version__}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_plan(key: str) -> Plan | None:
    """The plan kept under a key, None where there is none."""
    try:
        with open(folder() / f"{key}.json", encoding="utf-8") as file:
            return Plan.from_dict(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_plan(key: str, plan: Plan) -> None:
    """Keeps a plan; where the folder cannot be written to, nothing is kept."""
    with contextlib.suppress(OSError):
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
    with contextlib.suppress(OSError):
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
        return [value.__module__, value.__qualname__, body]
    if isinstance(value, (types.MethodType, functools.partial)) and depth:
        parts = (value.func, value.args, value.keywords) if isinstance(value, functools.partial) else ()
        bound = (value.__func__, value.__self__) if isinstance(value, types.MethodType) else ()
        return [name, [described(part, depth - 1) for part in (*parts, *bound)]]
    if isinstance(value, types.BuiltinFunctionType):
        return [name, value.__module__, value.__qualname__]
    if isinstance(value, (list, tuple)):
        inside = [described(each, depth - 1) for each in value[:16]] if depth else []
        return [name, len(value), inside]
    if isinstance(value, dict):
        return [name, len(value)]
    if not depth:
        return name
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return name
    return [name, {key: described(each, depth - 1) for key, each in list(held.items())[:64]}]

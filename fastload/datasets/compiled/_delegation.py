"""Detection of callables that only call another one, such as the presets of training scripts."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from typing import Any

import torch


def delegate_of(transform: object) -> object:
    """Return the callable to which `transform` passes its argument; None if it does anything else.

    The class of such a callable has a one-line `__call__`, `return self.transforms(image)`, with any names; a
    Module has such a `forward`, and no hooks.
    """
    kind: Any = type(transform)
    call = kind.__call__
    inner: Mapping[str, object] = {}
    if isinstance(transform, torch.nn.Module) and call is torch.nn.Module.__call__:
        if any(hooks for name, hooks in vars(transform).items() if name.endswith("_hooks")):
            return None
        call, inner = kind.forward, vars(transform)["_modules"]
    if not isinstance(call, types.FunctionType) or not _is_delegating(call.__code__):
        return None
    [name] = call.__code__.co_names
    # Only an attribute of the instance itself counts, and only if that line would find the same one.
    is_plain = kind.__getattribute__ is object.__getattribute__
    found = {**inner, **vars(transform)}.get(name) if is_plain and hasattr(transform, "__dict__") else None
    return None if inspect.isdatadescriptor(getattr(kind, name, None)) else found


def _delegating(self: Any, image: object) -> object:
    return self.transforms(image)


def _is_delegating(code: types.CodeType) -> bool:
    """Return True for code that differs from the function above only in names."""
    ours = _delegating.__code__
    takes_more = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return (
        code.co_code == ours.co_code
        and (code.co_argcount, code.co_kwonlyargcount) == (ours.co_argcount, ours.co_kwonlyargcount)
        and not code.co_flags & takes_more
        and len(code.co_names) == 1
    )

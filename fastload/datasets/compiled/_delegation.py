"""Callables of the user's own that only hand their argument on, such as presets of training scripts."""

from __future__ import annotations

import inspect
import types
from typing import Any


def delegate_of(transform: Any) -> Any:
    """Return the callable that `transform` calls with its argument, and nothing else; None for any other.

    Such a class has a `__call__` of one line, `return self.transforms(image)`, in whatever names.
    """
    kind: Any = type(transform)
    call = kind.__call__
    if not isinstance(call, types.FunctionType) or not _is_delegating(call.__code__):
        return None
    [name] = call.__code__.co_names
    # What the instance itself holds, so that the line finds the same object.
    is_plain = kind.__getattribute__ is object.__getattribute__
    held = vars(transform).get(name) if is_plain and hasattr(transform, "__dict__") else None
    return None if inspect.isdatadescriptor(getattr(kind, name, None)) else held


def _delegating(self: Any, image: Any) -> Any:
    return self.transforms(image)


def _is_delegating(code: types.CodeType) -> bool:
    """Return True for code that differs from the function above in names only."""
    ours = _delegating.__code__
    takes_more = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return (
        code.co_code == ours.co_code
        and (code.co_argcount, code.co_kwonlyargcount) == (ours.co_argcount, ours.co_kwonlyargcount)
        and not code.co_flags & takes_more
        and len(code.co_names) == 1
    )

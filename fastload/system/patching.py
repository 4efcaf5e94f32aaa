"""Temporary replacement of attributes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_MISSING = object()


@contextlib.contextmanager
def patched(*replacements: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace attributes, given as (owner, name, value), and restore the originals at the end."""
    originals = [(owner, name, _own(owner, name)) for owner, name, _ in replacements]
    for owner, name, value in replacements:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, original in originals:
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _own(owner: Any, name: str) -> Any:
    # The bases of a class are not in its own dictionary.
    return owner.__bases__ if name == "__bases__" else vars(owner).get(name, _MISSING)

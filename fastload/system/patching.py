"""Temporary replacement of attributes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

Replacement = tuple[object, str, object]
"""An owner, the name of its attribute, and the value in its place."""

_MISSING = object()


@contextlib.contextmanager
def patched(*replacements: Replacement) -> Iterator[None]:
    """Replace attributes, and restore the originals at the end."""
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


def _own(owner: object, name: str) -> object:
    # The bases of a class are not in its own dictionary.
    return getattr(owner, name) if name == "__bases__" else vars(owner).get(name, _MISSING)

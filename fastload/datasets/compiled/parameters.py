"""Parameters of a transform, compared with those that it had when it was compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

# Parameters that are nested more deeply, or in larger containers, are not compared.
_MOST_DEPTH, _MOST_PARTS = 6, 32
_WITHOUT_PARTS = frozenset((bool, int, float, str, type(None)))


class _Held:
    """The parameters of a transform, or the parts of a list in one, as they were when it was compiled."""

    def __init__(self, holder: dict[str, object] | Sequence[object], parts: Mapping[Any, object]) -> None:
        self._holder: Any = holder
        self._parts = tuple(parts.items())
        self._size = len(holder)

    def are_same(self) -> bool:
        """Return True if nothing has been replaced since."""
        holder = self._holder
        try:
            return len(holder) == self._size and all(holder[key] is part for key, part in self._parts)
        except LookupError:
            return False


class _Contents:
    """The numbers of a tensor in a transform, as they were when it was compiled."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor, self._version = tensor, tensor._version

    def are_same(self) -> bool:
        """Return True if they have not been changed in place since."""
        return self._tensor._version == self._version


def parameters_of(value: object, depth: int = 0) -> Iterator[_Held | _Contents]:
    """Yield the parameters of a transform and of its inner transforms."""
    if isinstance(value, torch.Tensor):
        yield _Contents(value)
    elif isinstance(value, (list, tuple)) and len(value) <= _MOST_PARTS:
        yield from _held_by(value, dict(enumerate(value)), depth)
    elif depth < _MOST_DEPTH and callable(value) and not isinstance(value, type):
        attributes = getattr(value, "__dict__", {})
        # The user's code may count in private attributes.
        yield from _held_by(attributes, {k: v for k, v in attributes.items() if k[0] != "_"}, depth + 1)
        modules = attributes.get("_modules", {})
        yield from _held_by(modules, modules, depth + 1)


def _held_by(
    holder: dict[str, object] | Sequence[object], parts: Mapping[Any, object], depth: int
) -> Iterator[_Held | _Contents]:
    if parts:
        yield _Held(holder, parts)
    for part in parts.values():
        if type(part) not in _WITHOUT_PARTS:
            yield from parameters_of(part, depth)

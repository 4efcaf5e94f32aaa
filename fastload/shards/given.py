"""Values out of JSON that anybody may have written: each of the type asked for, or refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What a manifest nests is five deep; recursion of Python's own ends at some hundreds.
_MOST_LEVELS = 30
# Beyond any file system's sizes, and within what NumPy and mmap take.
_MOST = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Given:
    """A value, and where it stands.

    Attributes:
        value: What `json` made of it.
        name: Where it stands: `shards[3].records`; empty for the whole.

    Raises:
        ValueError: By every method: the value is not what is asked for.
    """

    value: Any
    name: str = ""

    @classmethod
    def parsed(cls, data: bytes) -> Given:
        """Parses JSON.

        Raises:
            ValueError: It is none, names a member twice, or is nested without end.
        """
        try:
            value = json.loads(data, object_pairs_hook=_unrepeated)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error
        _require_shallow(value)
        return cls(value)

    def __getitem__(self, member: str) -> Given:
        """A member that must be there."""
        return self._known(self.mapping(), member)

    def get(self, member: str) -> Given | None:
        """A member that may be missing."""
        mapping = self.mapping()
        return self._known(mapping, member) if member in mapping else None

    def _known(self, mapping: Mapping[str, Any], member: str) -> Given:
        name = f"{self.name}.{member}" if self.name else member
        if member not in mapping:
            raise ValueError(f"{name} is missing")
        return Given(mapping[member], name)

    def mapping(self) -> Mapping[str, Any]:
        """As an object."""
        if not isinstance(self.value, dict):
            raise self._refusal("an object")
        return self.value

    def each(self) -> list[Given]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self._refusal("a list")
        return [Given(value, f"{self.name}[{place}]") for place, value in enumerate(self.value)]

    def text(self, pattern: re.Pattern[str] | None = None) -> str:
        """As a string, of which all matches the pattern."""
        if not isinstance(self.value, str):
            raise self._refusal("a string")
        if pattern is not None and not pattern.fullmatch(self.value):
            raise self._refusal(f"a string like {pattern.pattern}")
        return self.value

    def count(self, least: int = 0, most: int = _MOST) -> int:
        """As a whole number within bounds."""
        # Not isinstance: true is an int in Python.
        if type(self.value) is not int or not least <= self.value <= most:
            raise self._refusal(f"a whole number from {least} to {most}")
        return self.value

    def flag(self) -> bool:
        """As true or false."""
        if not isinstance(self.value, bool):
            raise self._refusal("true or false")
        return self.value

    def _refusal(self, wanted: str) -> ValueError:
        got = (
            repr(self.value)
            if isinstance(self.value, str | int | float | None)
            else type(self.value).__name__
        )
        return ValueError(f"{self.name or 'it'} must be {wanted}, got {got[:80]}")


def _unrepeated(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found


def _require_shallow(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_MOST_LEVELS):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise ValueError("it is nested too deep")

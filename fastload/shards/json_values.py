"""Typed access to untrusted JSON: each value has the expected type, or the error says where it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

# A manifest nests five levels; Python's own recursion ends at some hundreds.
_MOST_LEVELS = 30
# More than any file system holds, and within the range of NumPy and mmap.
_MOST = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A parsed value and its path; every method raises ValueError if the value has another type."""

    value: object
    name: str = ""  # its path, such as `shards[3].records`; empty for the document itself

    @classmethod
    def parsed(cls, data: bytes) -> JsonValue:
        """Parse JSON; raise ValueError if it is malformed, names a member twice, or nests too deep."""
        try:
            value = json.loads(data, object_pairs_hook=_unique_members)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error
        _require_shallow(value)
        return cls(value)

    def __getitem__(self, member: str) -> JsonValue:
        found = self.get(member)
        if found is None:
            raise ValueError(f"{self._path(member)} is missing")
        return found

    def get(self, member: str) -> JsonValue | None:
        """Return a member; None if it is missing."""
        mapping = self.mapping()
        return JsonValue(mapping[member], self._path(member)) if member in mapping else None

    def _path(self, member: str) -> str:
        return f"{self.name}.{member}" if self.name else member

    def mapping(self) -> Mapping[str, object]:
        """Return the members of an object."""
        if not isinstance(self.value, dict):
            raise self._error("an object")
        return self.value

    def each(self) -> list[JsonValue]:
        """Return the elements of a list."""
        if not isinstance(self.value, list):
            raise self._error("a list")
        return [JsonValue(value, f"{self.name}[{place}]") for place, value in enumerate(self.value)]

    def text(self, pattern: re.Pattern[str] | None = None) -> str:
        """Return the value as a string that matches a pattern."""
        if not isinstance(self.value, str):
            raise self._error("a string")
        if pattern is not None and not pattern.fullmatch(self.value):
            raise self._error(f"a string like {pattern.pattern}")
        return self.value

    def texts(self) -> dict[str, str]:
        """Return the members of an object, all of which are strings."""
        return {name: self[name].text() for name in self.mapping()}

    def count(self, least: int = 0, most: int = _MOST) -> int:
        """Return the value as an integer within bounds."""
        # Not isinstance: True is an int in Python.
        if type(self.value) is not int or not least <= self.value <= most:
            raise self._error(f"a whole number from {least} to {most}")
        return self.value

    def flag(self) -> bool:
        """Return the value as true or false."""
        if not isinstance(self.value, bool):
            raise self._error("true or false")
        return self.value

    def _error(self, wanted: str) -> ValueError:
        is_scalar = isinstance(self.value, str | int | float | None)
        got = repr(self.value) if is_scalar else type(self.value).__name__
        return ValueError(f"{self.name or 'it'} must be {wanted}, got {got[:80]}")


def _unique_members(members: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in members:
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value
    return found


def _require_shallow(value: object) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_MOST_LEVELS):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise ValueError("it is nested too deep")

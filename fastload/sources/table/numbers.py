"""Numbers in the cells of a column, which holds numbers only if every cell can be written back unchanged.

So identifiers keep their leading zeros, and `1e5` and `100000` stay two names, as do `1` and `1.0`.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fastload.sources.malformed import INT64, numbers_of

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?\s*")


def numbers_in(cells: Sequence[str]) -> Numbers | None:
    """Return the cells as int64 or float64; None for text, as are integers with empty cells."""
    texts = [*cells]
    integers = integers_in(texts)
    return floats_in(texts) if integers is None else integers


def integers_in(cells: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """Return the cells as int64; None unless all are as Python writes them: 7 or -1, never 007, +7 or 7.0."""
    try:
        numbers = np.fromiter(map(int, cells), np.int64, len(cells))
    except (ValueError, OverflowError):
        return None
    return numbers if all(map(operator.eq, map(str, numbers.tolist()), cells)) else None


def floats_in(cells: Sequence[str]) -> npt.NDArray[np.float64] | None:
    """Return the cells as float64, empty ones as NaN; None unless all are as Python writes them.

    All may lack a final ".0" (0.5, 3), as R, JavaScript and spreadsheets write numbers.
    """
    try:
        numbers = [float(cell) if cell else math.nan for cell in cells]
    except ValueError:
        return None
    written = [repr(number) if cell else "" for number, cell in zip(numbers, cells, strict=True)]
    if not all(map(operator.eq, written, cells)):
        written = [text.removesuffix(".0") for text in written]
        if not all(map(operator.eq, written, cells)) or all_filled(cells, _INTEGER.fullmatch):
            return None
    return np.array(numbers, np.float64) if any(cells) else None


def floats_of(cells: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the number in each cell, NaN if there is none."""
    text = "".join(cells)
    if text.isascii() and "_" not in text:  # float() accepts 1_0, and the digits of all scripts
        with contextlib.suppress(ValueError):
            return np.array([float(cell) if cell else math.nan for cell in cells], np.float64)
    return np.array([(numbers_of([cell]) or [math.nan])[0] for cell in cells], np.float64)


def all_filled(cells: Iterable[str], holds: Callable[[str], object]) -> bool:
    """Return True if a condition holds for all cells that are not empty."""
    return all(not cell or holds(cell) for cell in cells)


def look_like_decimals(counts: Mapping[str, int]) -> bool:
    """Return True if most cells look like numbers, and some of these have a fraction."""
    numeric = {cell: count for cell, count in counts.items() if _NUMBER.fullmatch(cell)}
    has_fraction = any("." in cell or "," in cell for cell in numeric)
    return has_fraction and 2 * sum(numeric.values()) >= sum(counts.values()) - counts.get("", 0)


def _as_integer(cell: str) -> int:
    """Return the integer in a cell, however it is written; raise ValueError if int64 cannot hold it."""
    if _INTEGER.fullmatch(cell) and int(cell) in INT64:
        return int(cell)
    raise ValueError(cell)


def _as_float(cell: str) -> float:
    """Return the number in a cell, NaN if it is empty; raise ValueError if float64 cannot hold it."""
    number = float(cell) if cell else math.nan
    is_too_large = math.isinf(number) and "inf" not in cell.lower()
    if "_" in cell or is_too_large:  # Python reads 1_0 as 10
        raise ValueError(cell)
    if _INTEGER.fullmatch(cell.strip()) and int(number) != int(cell):  # an identifier of 17 digits or more
        raise ValueError(cell)
    return number


# Conversions to the numeric kinds: the dtype, the function and the requirement.
CONVERSIONS: dict[str, tuple[type, Callable[[str], float], str]] = {
    "int": (np.int64, _as_integer, "be an integer that int64 holds"),
    "float": (np.float64, _as_float, "be a number that float64 holds, or empty for NaN"),
}

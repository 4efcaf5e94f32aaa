"""Conversion of table cells to numbers, only where every cell can be written back unchanged.

    integers    every cell is an int64 as Python writes it: 7 or -1, never 007, +7 or 7.0
    floats      every cell is a float64 as Python writes it (0.5, 3.0, 1e-05, nan), or every cell is one
                without ".0" (0.5, 3), as R, JavaScript and spreadsheets write it; empty cells are NaN
    text        everything else

Nothing is lost: identifiers keep their zeros, `1e5` and `100000` stay two names, and so do `1` and `1.0`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?\s*")
_INT64 = range(-(2**63), 2**63)
_INT64_CHARACTERS = 20


def numbers_in(cells: Sequence[str]) -> Numbers | None:
    """Return the cells as int64 or float64 by the module's rule; None if they are text.

    Empty cells become NaN among floats; integers with empty cells are not numbers.
    """
    if all(map(_is_integer, cells)):
        return np.fromiter(map(int, cells), np.int64, len(cells))
    if not any(cells):
        return None
    are_floats = all_filled(cells, _is_python_float) or (
        all_filled(cells, _is_short_float) and not all_filled(cells, _INTEGER.fullmatch)
    )
    return np.fromiter(map(as_float, cells), np.float64, len(cells)) if are_floats else None


def are_integers_but_for_empty(cells: Sequence[str]) -> bool:
    """Return whether the cells would be integers if none were empty."""
    return any(cells) and all_filled(cells, _is_integer)


def look_like_decimals(cells: Iterable[str]) -> bool:
    """Return whether most cells look like numbers, and some of these have a fraction."""
    filled = numeric = fractions = 0
    for cell in cells:
        filled += bool(cell)
        if _NUMBER.fullmatch(cell):
            numeric += 1
            fractions += "." in cell or "," in cell
    return fractions > 0 and 2 * numeric >= filled


def reason_for_text(cells: Sequence[str]) -> str:
    """Return why a column that mostly looks like numbers is text, naming a row; else an empty string."""
    filled, numeric = sum(map(bool, cells)), sum(1 for cell in cells if _NUMBER.fullmatch(cell))
    if 2 * numeric < filled or not numeric:
        return ""
    are_integers = all_filled(cells, _INTEGER.fullmatch)
    for row, cell in enumerate(cells, 1):
        if not cell or (
            _is_integer(cell) if are_integers else _is_python_float(cell) or _is_short_float(cell)
        ):
            continue
        try:
            written = _written_back(cell)
        except ValueError:
            return f"row {row} is {cell!r}, which is not a number"
        return f"row {row} is {cell!r}, which as a number would be written back as {written!r}"
    row, cell = next((row, cell) for row, cell in enumerate(cells, 1) if cell and not _is_python_float(cell))
    return f"row {row} is {cell!r}, a number written differently from the others"


def as_integer(cell: str) -> int:
    """Return the integer in a cell, however it is written; raise ValueError if int64 cannot hold it."""
    if _INTEGER.fullmatch(cell) and len(cell) <= _INT64_CHARACTERS and int(cell) in _INT64:
        return int(cell)
    raise ValueError(cell)


def as_float(cell: str) -> float:
    """Return the number in a cell, NaN if it is empty; raise ValueError if float64 cannot hold it."""
    number = float(cell) if cell else math.nan
    is_too_large = math.isinf(number) and "inf" not in cell.lower()
    if "_" in cell or is_too_large:  # Python reads 1_0 as 10
        raise ValueError(cell)
    if _INTEGER.fullmatch(cell.strip()) and int(number) != int(cell):  # an identifier of 17 digits or more
        raise ValueError(cell)
    return number


def all_filled(cells: Iterable[str], holds: Callable[[str], object]) -> bool:
    """Return whether a condition holds for all cells that are not empty."""
    return all(not cell or holds(cell) for cell in cells)


def _is_integer(cell: str) -> bool:
    try:
        return str(as_integer(cell)) == cell
    except ValueError:
        return False


def _is_python_float(cell: str) -> bool:
    return _python_float(cell) == cell


def _is_short_float(cell: str) -> bool:
    return _python_float(cell).removesuffix(".0") == cell


def _python_float(cell: str) -> str:
    """Return the number in a cell as Python writes it; empty if there is none."""
    try:
        return repr(float(cell))
    except ValueError:
        return ""


def _written_back(cell: str) -> str:
    try:
        return str(as_integer(cell))
    except ValueError:
        return repr(float(cell))

"""Whether cells of a table are numbers: only where each says the same when written back.

    integers    every cell is one that int64 holds, as Python writes it: 7 or -1, never 007, +7 or 7.0
    floats      every cell is one that float64 holds, all as Python writes them (0.5, 3.0, 1e-05, nan), or
                all so but without ".0" (0.5, 3), as R, JavaScript and spreadsheets do; empty cells are NaN
    text        everything else

So nothing is lost: identifiers keep their zeros, `1e5` and `100000` stay two names, `1` and `1.0` too.
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
    """The numbers that the cells are by the module's rule; None where they are text.

    Empty cells are left out of account, and are NaN where the others are floats.

    Returns:
        int64 or float64. Integers among which cells are empty are None too.
    """
    if all(map(_is_integer, cells)):
        return np.fromiter(map(int, cells), np.int64, len(cells))
    filled = sum(map(bool, cells))
    if not filled:
        return None
    are_floats = all_filled(cells, _is_pythons) or (
        all_filled(cells, _is_short) and not all_filled(cells, _INTEGER.fullmatch)
    )
    return np.fromiter(map(as_float, cells), np.float64, len(cells)) if are_floats else None


def are_integers_but_for_empty(cells: Sequence[str]) -> bool:
    """Whether the cells would be integers if none were empty."""
    return any(cells) and all_filled(cells, _is_integer)


def look_like_decimals(cells: Iterable[str]) -> bool:
    """Whether most cells look like numbers, and some of them have a fraction."""
    filled = like = fractions = 0
    for cell in cells:
        filled += bool(cell)
        if _NUMBER.fullmatch(cell):
            like += 1
            fractions += "." in cell or "," in cell
    return fractions > 0 and 2 * like >= filled


def reason_for_text(cells: Sequence[str]) -> str:
    """Why a column is text, in a few words that name a row, where most of its cells look like numbers."""
    filled, like = sum(map(bool, cells)), sum(1 for cell in cells if _NUMBER.fullmatch(cell))
    if 2 * like < filled or not like:
        return ""
    is_written = _is_integer if all_filled(cells, _INTEGER.fullmatch) else _is_written
    for row, cell in enumerate(cells, 1):
        if not cell or is_written(cell):
            continue
        try:
            return f"row {row} says {cell!r}, which as a number would come back as {_written_back(cell)!r}"
        except ValueError:
            return f"row {row} says {cell!r}, which is no number"
    row = next(row for row, cell in enumerate(cells, 1) if cell and not _is_pythons(cell))
    return f"row {row} says {cells[row - 1]!r}, a number written otherwise than others"


def as_integer(cell: str) -> int:
    """The integer that a cell is, however it is written.

    Raises:
        ValueError: It is none, or int64 does not hold it.
    """
    if _INTEGER.fullmatch(cell) and len(cell) <= _INT64_CHARACTERS and int(cell) in _INT64:
        return int(cell)
    raise ValueError(cell)


def as_float(cell: str) -> float:
    """The number that a cell is, however it is written; NaN where it is empty.

    Raises:
        ValueError: It is none, or float64 does not hold it.
    """
    number = float(cell) if cell else math.nan
    is_beyond = math.isinf(number) and "inf" not in cell.lower()
    if "_" in cell or is_beyond:  # Python reads 1_0 as 10
        raise ValueError(cell)
    if _INTEGER.fullmatch(cell.strip()) and int(number) != int(cell):  # an identifier of 17 digits or more
        raise ValueError(cell)
    return number


def all_filled(cells: Iterable[str], holds: Callable[[str], object]) -> bool:
    """Whether something holds for all cells that are not empty."""
    return all(not cell or holds(cell) for cell in cells)


def _is_integer(cell: str) -> bool:
    """Whether a cell is an integer that int64 holds, as Python writes it."""
    try:
        return str(as_integer(cell)) == cell
    except ValueError:
        return False


def _is_pythons(cell: str) -> bool:
    """Whether a cell is a float as Python writes it."""
    try:
        return repr(float(cell)) == cell
    except ValueError:
        return False


def _is_short(cell: str) -> bool:
    """Whether a cell is a float as Python writes it, but for a ".0" at its end."""
    try:
        return repr(float(cell)).removesuffix(".0") == cell
    except ValueError:
        return False


def _is_written(cell: str) -> bool:
    return _is_pythons(cell) or _is_short(cell)


def _written_back(cell: str) -> str:
    try:
        return str(as_integer(cell))
    except ValueError:
        return repr(float(cell))

"""Errors about malformed sources, and checks of JSON values and numbers that the layouts share."""

from __future__ import annotations

import contextlib
import math
import reprlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from fastload.errors import SourceError

CORRECT = "correct or remove it"
FROM_PYTHON = (
    "in Python, fastload.pack takes a map-style dataset that reads them: fastload.pack(dataset, 'DEST.fl')"
)
INT64 = range(-(2**63), 2**63)
_MOST_CHARACTERS, _MOST_NAMES = 300, 5  # in a message


def malformed(where: str, must: str, got: object, step: str = CORRECT) -> SourceError:
    """Return an error that states a place, the requirement, the value found there, and the next step.

    A text is printed as it is, as a description: `quoted` distinguishes a user's text from one.
    """
    shown = got if isinstance(got, str) else quoted(got)
    return SourceError(f"{where}: must {must}, got {shown[:_MOST_CHARACTERS]}: {step}")


def quoted(value: object) -> str:
    """Return a user's value for a message: the text '450' within quotes, unlike the number 450."""
    if isinstance(value, str):
        return repr(value)
    # Aliases let a YAML list hold another one many times over: its repr() might never end.
    return reprlib.repr(value) if isinstance(value, list | tuple | dict) else str(value)


@contextlib.contextmanager
def explaining(
    errors: tuple[type[Exception], ...], where: str, must: str, step: str = CORRECT
) -> Iterator[None]:
    """Turn a library's errors into a SourceError that says what a place must be or hold."""
    try:
        yield
    except SourceError:
        raise
    except errors as error:
        raise malformed(where, must, error, step) from error


def finite_numbers(value: object, where: str, name: str) -> list[float]:
    """Return a list of JSON numbers as floats; raise SourceError unless all are finite."""
    if not isinstance(value, list):
        raise malformed(where, f"have a list of numbers as {name}", quoted(value))
    for number in value:
        if not is_finite(number):
            raise malformed(where, f"have finite numbers in {name}", quoted(number))
    return [float(number) for number in value]


def is_finite(value: object) -> bool:
    """Return True for a JSON number that float64 can hold, but not for NaN or a boolean."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def is_text(value: object) -> TypeGuard[str]:
    """Return True for a str that UTF-8 can encode: JSON and YAML can contain lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def numbers_of(cells: Sequence[str]) -> list[float] | None:
    """Return cells as floats; None if any of them is not a finite number."""
    text = "".join(cells)
    if "_" in text or not text.isascii():  # float() accepts 1_0, and the digits of all scripts
        return None
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def in_quotes(names: Sequence[str]) -> str:
    """Return the first names in quotes, and the number of the others."""
    shown, others = ", ".join(map(repr, names[:_MOST_NAMES])), len(names) - _MOST_NAMES
    return f"{shown} and {others} more" if others > 0 else shown


def pack_command(path: str) -> str:
    """Return the command that packs a path, for a message; it can be copied into a shell.

    >>> pack_command("photos"), pack_command("my photos")
    ("'fastload pack photos DEST'", "fastload pack 'my photos' DEST")
    """
    shown = shlex.quote(path)
    return f"'fastload pack {path} DEST'" if shown == path else f"fastload pack {shown} DEST"

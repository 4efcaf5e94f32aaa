"""Formatting of sizes, durations, ratios and counts, and parsing of sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fastload.errors import OptionError

_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?\s*", re.IGNORECASE | re.ASCII)


def format_size(size_bytes: float) -> str:
    """Format a size in powers of ten: `44.0 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size_bytes) < 999.95:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} TB"


def format_duration(seconds: float) -> str:
    """Format a duration in a suitable unit: `1.2 s`, `45 s`, `307 ms`, `30 µs`."""
    if seconds >= 0.9995:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:,.0f} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 or seconds == 0 else f"{1e6 * seconds:.0f} µs"


def format_ratio(ratio: float) -> str:
    """Format a ratio: `0.31 times`, `3.1 times`, `1,200 times`."""
    if ratio < 0.95:
        return f"{ratio:.2g} times"
    return f"{ratio:.1f} times" if ratio < 99.95 else f"{ratio:,.0f} times"


def format_figure(value: float) -> str:
    """Format a number with three digits and separated thousands: `0.123`, `12.3`, `1,230`, `12,300`."""
    if value < 100:
        return f"{value:.3g}"
    rounded = round(value, 3 - len(str(int(value))))
    return f"{int(rounded):,}"


def format_count(number: int, noun: str, nouns: str | None = None) -> str:
    """Format a number of things: `1 sample`, `1,200 batches`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Format rows as lines with aligned columns."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


def parse_size(size: str | int) -> int:
    """Return the bytes in a size such as `256MB`, `1.5 GiB` or `4096`; raise OptionError otherwise."""
    match = _SIZE.fullmatch(str(size)) if isinstance(size, str | int) else None
    if match is None:
        raise OptionError(f"a size must look like 256MB or 1.5GiB, got {size!r}")
    exponent = "KMGT".index(match[2].upper()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** exponent)

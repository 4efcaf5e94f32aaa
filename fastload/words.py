"""Figures as people read them."""

from __future__ import annotations


def size(size_bytes: float) -> str:
    """A size as people read it, in powers of ten: `44.0 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size_bytes) < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def milliseconds(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds >= 1:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 or seconds == 0 else f"{1e6 * seconds:.0f} µs"


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """So many of something: `1 sample`, `1,200 batches`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"

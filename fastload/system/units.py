"""Sizes, durations, ratios and counts as text for people."""

from __future__ import annotations


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


def format_count(number: int, noun: str, nouns: str | None = None) -> str:
    """Format a number of things: `1 sample`, `1,200 batches`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"

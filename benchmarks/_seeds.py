"""Comparison of two sides of which each learned several times, from other seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any


def verdict(reference: Sequence[float], own: Sequence[float]) -> dict[str, Any]:
    """Return the difference of the means, its standard error, and if the ranges overlap."""
    error = math.sqrt(sum(statistics.variance(side) / len(side) for side in (reference, own)))
    return {
        "difference": round(statistics.mean(own) - statistics.mean(reference), 5),
        "standard_error": round(error, 5),
        "ranges_overlap": min(own) <= max(reference) and min(reference) <= max(own),
    }

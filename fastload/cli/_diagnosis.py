"""A diagnosis as JSON."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from fastload.doctor.examine import Examination
from fastload.doctor.ranks import RankComparison

Parts = Sequence[Examination]
"""Loaders of a script, or splits of a dataset."""


def diagnosis_json(
    title: str,
    parts: Parts,
    notes: Sequence[str] = (),
    ranks: RankComparison | None = None,
    error: BaseException | None = None,
    conditions: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return all findings and measurements as JSON, with the conditions and a script's exception."""
    is_failure = error is not None and not isinstance(error, SystemExit)
    content: dict[str, Any] = {
        "examined": title,
        **conditions,
        "error": "".join(traceback.format_exception(error)) if is_failure else None,
        "verdict": parts[0].diagnosis.verdict if parts else None,
        "notes": list(notes),
        "parts": [
            {"name": part.name, **asdict(part.diagnosis), "measurements": asdict(part.measured)}
            for part in parts
        ],
    }
    if ranks is not None:
        content["ranks"] = {**asdict(ranks), "headline": ranks.headline, "evidence": ranks.evidence}
    return json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _finite(content: Any) -> Any:
    """Return the content with null for numbers that JSON does not have."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content

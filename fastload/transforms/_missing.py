"""torchvision's transforms of formats, key points and videos, which fastload does not have."""

from __future__ import annotations

from typing import Any

from fastload.errors import OptionError


class _Missing:
    """Raises OptionError, which says what to use instead: fastload has no such transform."""

    _needs = "boxes"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        raise OptionError(
            f"fastload.transforms.{name} must have {self._needs} to work on, which fastload's transforms do "
            f"not get: use torchvision.transforms.v2.{name} itself, in a dataset's `transforms`"
        )


def _missing(name: str, needs: str) -> type[_Missing]:
    return type(name, (_Missing,), {"__doc__": _Missing.__doc__, "__module__": __name__, "_needs": needs})


ConvertBoundingBoxFormat = _missing("ConvertBoundingBoxFormat", "boxes of several formats")
SetClampingMode = _missing("SetClampingMode", "boxes of several modes")
ClampKeyPoints = _missing("ClampKeyPoints", "key points of their own")
SanitizeKeyPoints = _missing("SanitizeKeyPoints", "key points of their own")
UniformTemporalSubsample = _missing("UniformTemporalSubsample", "videos")

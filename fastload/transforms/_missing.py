"""torchvision's transforms of boxes, key points and videos, which fastload does not have yet."""

from __future__ import annotations

from typing import Any

from fastload.errors import OptionError


class _Missing:
    """Raises OptionError, which says what to use instead: fastload has no such transform yet."""

    _needs = "boxes"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        raise OptionError(
            f"fastload.transforms.{name} must have {self._needs} to work on, which fastload's datasets do "
            f"not give to transforms yet: use torchvision.transforms.v2.{name} itself, in your own dataset"
        )


def _missing(name: str, needs: str) -> type[_Missing]:
    return type(name, (_Missing,), {"__doc__": _Missing.__doc__, "__module__": __name__, "_needs": needs})


ClampBoundingBoxes = _missing("ClampBoundingBoxes", "boxes")
ConvertBoundingBoxFormat = _missing("ConvertBoundingBoxFormat", "boxes")
RandomIoUCrop = _missing("RandomIoUCrop", "boxes")
SanitizeBoundingBoxes = _missing("SanitizeBoundingBoxes", "boxes")
SetClampingMode = _missing("SetClampingMode", "boxes")
ClampKeyPoints = _missing("ClampKeyPoints", "key points")
SanitizeKeyPoints = _missing("SanitizeKeyPoints", "key points")
UniformTemporalSubsample = _missing("UniformTemporalSubsample", "videos")

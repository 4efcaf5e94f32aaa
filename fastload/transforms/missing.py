"""torchvision's names of what fastload does not have yet: boxes, masks, key points and videos.

Each says so in one sentence when it is made, and what can be done instead.
"""

from __future__ import annotations

from typing import Any

from fastload.errors import OptionError


class _Missing:
    """What cannot be made.

    Raises:
        OptionError: Always.
    """

    _needs = "boxes"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        raise OptionError(
            f"fastload.transforms.{name} must have {self._needs} to work on, which fastload's datasets do "
            f"not give to transforms yet: use torchvision.transforms.v2.{name} itself, in a dataset of yours"
        )


class ClampBoundingBoxes(_Missing):
    """torchvision's transform of this name, which needs boxes: not here yet."""


class ConvertBoundingBoxFormat(_Missing):
    """torchvision's transform of this name, which needs boxes: not here yet."""


class RandomIoUCrop(_Missing):
    """torchvision's transform of this name, which needs boxes: not here yet."""


class SanitizeBoundingBoxes(_Missing):
    """torchvision's transform of this name, which needs boxes: not here yet."""


class SetClampingMode(_Missing):
    """torchvision's transform of this name, which needs boxes: not here yet."""


class ClampKeyPoints(_Missing):
    """torchvision's transform of this name, which needs key points: not here yet."""

    _needs = "key points"


class SanitizeKeyPoints(_Missing):
    """torchvision's transform of this name, which needs key points: not here yet."""

    _needs = "key points"


class UniformTemporalSubsample(_Missing):
    """torchvision's transform of this name, which needs videos: not here yet."""

    _needs = "videos"

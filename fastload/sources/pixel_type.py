"""The type of pixels of a source's images, by the first that can be read."""

from __future__ import annotations

from collections.abc import Iterable

from fastload.errors import AccessError, FastloadError
from fastload.images.pixel_types import RGB, PixelType
from fastload.images.source_pixels import pixel_type_of
from fastload.sources.protocol import Source


def first_pixel_type(sources: Iterable[Source], convert: str | None = None) -> PixelType:
    """Return the type of the first image that can be read, after a conversion; RGB if there is none."""
    for source in sources:
        for index in range(len(source)):
            try:
                image = source.read(index).image
                if image is not None:
                    return pixel_type_of(image, convert)
            except AccessError:
                raise
            except FastloadError:
                continue
    return RGB

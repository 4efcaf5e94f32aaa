"""Image files that a dataset of another library lists."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fastload.datasets._batch_source import FileImages, Headers
from fastload.datasets.batch import Pixels
from fastload.datasets.compiled._encoded import info_of
from fastload.errors import DecodeError
from fastload.images.header import has_parsed_header, read_header
from fastload.images.region import Box

# In place of an orientation: this file is decoded by the dataset's own loader.
_THEIRS = 255


class ListedImages(FileImages):
    """Files by their paths; see `BatchSource`.

    JPEG and PNG files of at most 8 bits per channel are decoded by OpenCV, which gives the same pixels as
    PIL. All others, and those that cannot be decoded, are left to `load`, the dataset's own loader, which
    raises its own errors.
    """

    def __init__(
        self,
        path: Callable[[int], str],
        read: Callable[[int], bytes],
        load: Callable[[str], Any],
        positions: list[int],
        headers: Headers,
        cached: Any = None,
    ) -> None:
        self._load = load
        self._infos: dict[int, dict[Any, Any]] = {}
        super().__init__(path, read, positions, headers, None, cached)

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        index = self._positions[position]
        if self._headers[index, 2] != _THEIRS:
            with contextlib.suppress(DecodeError):
                return super().region(position, box, size)
        pixels = self._decoded.get(position)
        if pixels is None:
            pixels = self._loaded(position)
        height, width = self.sizes[position].tolist()
        if pixels.shape[:2] != (height, width):
            self._headers[index] = 0
            raise DecodeError(
                f"{self._path(index)}: must have {height}x{width} pixels, as before, got "
                f"{pixels.shape[0]}x{pixels.shape[1]}: the file was replaced; the new one is used from now on"
            )
        return pixels[box.top : box.top + box.height, box.left : box.left + box.width]

    def info(self, position: int) -> dict[Any, Any]:
        """Return PIL's `info` of one image, as the dataset's own loader would return it."""
        if position not in self._infos:
            try:
                return info_of(self._files.get(position) or self._read(position))
            except OSError:
                self._loaded(position)
        return self._infos[position]

    def _size(self, position: int) -> tuple[int, int]:
        index = self._positions[position]
        height, width, mark = self._headers[index].tolist()
        if mark:
            return height, width
        header = None
        try:
            data = self._read(position)
            header = read_header(data) if has_parsed_header(data) else None
        except (DecodeError, OSError):
            pass  # the loader's own error says more
        if header is not None and header.is_read_alike:
            self._buffer(self._files, position, data, len(data))
            return self._note_header(index, header.height, header.width, header.orientation)
        pixels = self._loaded(position)
        self._buffer(self._decoded, position, pixels, pixels.nbytes)
        return self._note_header(index, pixels.shape[0], pixels.shape[1], _THEIRS)

    def _loaded(self, position: int) -> Pixels:
        image = self._load(self._path(self._positions[position])).convert("RGB")
        self._infos[position] = image.info
        return np.asarray(image)

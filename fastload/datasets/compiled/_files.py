"""Image files that a dataset of another library lists, and decodes itself where it must."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastload.datasets._batch_source import FileImages, Headers
from fastload.datasets.batch import Pixels
from fastload.datasets.compiled._info import info_of
from fastload.errors import DecodeError
from fastload.images.header import has_parsed_header, read_header
from fastload.images.region import Box

# In place of an orientation: a file that the dataset's own loader decodes.
_THEIRS = 255


class ListedImages(FileImages):
    """Files by their paths; see `BatchSource`.

    OpenCV decodes what it decodes as PIL does: JPEG and PNG of at most 8 bits a channel. All other files, and
    those that cannot be decoded, are left to `load`, the loader of the dataset, which raises its own errors.
    """

    def __init__(
        self,
        paths: Sequence[str],
        load: Callable[[str], Any],
        positions: list[int],
        headers: Headers,
        cached: Any = None,
    ) -> None:
        self._paths = paths
        self._load = load
        self._infos: dict[int, dict[Any, Any]] = {}
        super().__init__(None, "", positions, headers, None, cached)  # type: ignore[arg-type]

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        """See `BatchSource`."""
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
                f"{self._paths[position]}: must have {height}x{width} pixels, as before, got "
                f"{pixels.shape[0]}x{pixels.shape[1]}: the file was replaced; it is read as it is from now on"
            )
        return box.of(pixels)

    def info(self, position: int) -> dict[Any, Any]:
        """Return what PIL's `info` of one image is, as the dataset's own loader would return it."""
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
            pass  # the loader's own error tells more
        if header is not None and header.is_read_alike:
            self._buffer(self._files, position, data, len(data))
            return self._note_header(index, header.height, header.width, header.orientation)
        pixels = self._loaded(position)
        self._buffer(self._decoded, position, pixels, pixels.nbytes)
        return self._note_header(index, pixels.shape[0], pixels.shape[1], _THEIRS)

    def _loaded(self, position: int) -> Pixels:
        image = self._load(self._paths[position]).convert("RGB")
        self._infos[position] = image.info
        return np.asarray(image)

    def _read(self, position: int) -> bytes:
        if self._cached is not None:
            return self._cached.read(self._positions[position])
        with open(self._paths[position], "rb", buffering=0) as file:
            return file.read()

    def _with_path(self, position: int, error: DecodeError) -> DecodeError:
        return DecodeError(f"{self._paths[position]}: {error}")

"""Folders of images made for tests, and the comparison of two folders."""

import os
import stat
from pathlib import Path

import cv2
import numpy as np

SMALL_SHARDS = {"encode": "keep", "shard_size": "10KB", "workers": 1}
"""Options of packing that make several shards of a few small images."""


def pixels(seed: int, height: int = 24, width: int = 32) -> np.ndarray:
    """RGB noise over a gradient: no two seeds look alike, and no file of it is tiny."""
    rng = np.random.default_rng(seed)
    slope = np.linspace(0, 160, width, dtype=np.uint8)[None, :, None]
    return (rng.integers(0, 96, (height, width, 3), dtype=np.uint8) + slope).astype(np.uint8)


def encoded(image: np.ndarray, suffix: str = ".jpg") -> bytes:
    """The pixels (RGB or grey) as a file."""
    bgr = image if image.ndim == 2 else np.ascontiguousarray(image[:, :, ::-1])
    return cv2.imencode(suffix, bgr)[1].tobytes()


def class_folders(
    root: Path, count: int = 30, classes: int = 3, size: tuple[int, int] = (24, 32), seed: int = 0
) -> Path:
    """A folder of class folders with `count` JPEGs of about one size; returns it."""
    for number in range(count):
        folder = root / f"class{number % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        image = pixels(seed + number, size[0] + number % 5, size[1] + number % 7)
        (folder / f"{number:04d}.jpg").write_bytes(encoded(image))
    return root


def tree(root: Path) -> dict[bytes, object]:
    """Everything below a folder, by path: a file's bytes, a link's target, None for a folder."""
    found: dict[bytes, object] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content: object = None
            if stat.S_ISLNK(mode):
                content = ("link", os.readlink(path))
            elif not stat.S_ISDIR(mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, os.fsencode(root))] = content
    return found


def files_in(root: Path) -> dict[bytes, object]:
    """The files below a folder by path, links followed, folders left out."""
    found: dict[bytes, object] = {}
    for folder, _, files in os.walk(os.fsencode(root), followlinks=True):
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, os.fsencode(root))] = file.read()
    return found

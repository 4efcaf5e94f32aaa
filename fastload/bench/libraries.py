"""What each library is here: its version, the JPEG library that it decodes with, the vector instructions."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from fastload._version import __version__
from fastload.bench.result import Library
from fastload.images.opencv import cv2

_MODULES = {
    "PIL": "PIL",
    "OpenCV": "cv2",
    "torchvision": "torchvision",
    "simplejpeg": "simplejpeg",
    "PyTurboJPEG": "turbojpeg",
    "albumentations": "albumentations",
    "kornia": "kornia",
}
# libjpeg-turbo has this text for whoever asks it, and no function that every release has.
_TURBO = re.compile(rb"libjpeg-turbo version (\d+(?:\.\d+)+)")


def describe(library: str, reason: str = "") -> Library:
    """Describes a library.

    Args:
        library: As the tables call it.
        reason: Why it cannot be used; "" where it can.
    """
    if reason:
        return Library(library, None, reason=reason)
    if library == "fastload":
        return Library(library, __version__, "OpenCV's", "OpenCV's and torch's")
    module = importlib.import_module(_MODULES[library])
    jpeg, simd = _FACTS[library](module)
    return Library(library, _version(library, module), jpeg, simd)


def describe_others() -> tuple[Library, ...]:
    """NumPy and torch, which most of the others use."""
    return Library("NumPy", version("numpy")), Library("torch", torch.__version__, simd=_torch_simd())


def _version(library: str, module: Any) -> str:
    with contextlib.suppress(PackageNotFoundError):
        return str(getattr(module, "__version__", None) or version(library))
    return "unknown"


def _pil(module: Any) -> tuple[str, str]:
    features = importlib.import_module("PIL.features")
    turbo = features.version_feature("libjpeg_turbo")
    jpeg = f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version_codec('jpg')}"
    is_simd = "post" in module.__version__  # Pillow-SIMD numbers itself so
    return jpeg, "Pillow-SIMD's" if is_simd else "libjpeg-turbo's only" if turbo else "none"


def _opencv(module: Any) -> tuple[str, str]:
    found = re.search(r"^\s*JPEG:\s*(.+)$", cv2.getBuildInformation(), re.MULTILINE)
    said = found[1].strip() if found else "none"
    turbo = re.search(r"libjpeg-turbo \(ver ([\d.]+)", said)
    return f"libjpeg-turbo {turbo[1]}" if turbo else said, _opencv_simd()


def _opencv_simd() -> str:
    # "SSE *AVX2 *AVX512-SKX?": a star for what is chosen at run time, "?" for what this CPU lacks.
    features = [word.strip("*") for word in cv2.getCPUFeaturesLine().split()]
    usable = [word for word in features if not word.endswith("?")]
    return f"up to {usable[-1]}" if usable else "none"


def _torch_simd() -> str:
    return torch.backends.cpu.get_cpu_capability()


def _simplejpeg(module: Any) -> tuple[str, str]:
    return _turbo_in(Path(module.__file__).parent.glob("_jpeg*")), "libjpeg-turbo's"


def _pyturbojpeg(module: Any) -> tuple[str, str]:
    # The library is loaded by now, so the system knows from where.
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if "libturbojpeg" in line}
    return _turbo_in(paths), "libjpeg-turbo's"


def _turbo_in(paths: Any) -> str:
    """The libjpeg-turbo in one of these files."""
    for path in paths:
        with contextlib.suppress(OSError):
            found = _TURBO.search(path.read_bytes())
            if found:
                return f"libjpeg-turbo {found[1].decode()}"
    return "libjpeg-turbo"


_FACTS: Mapping[str, Callable[[Any], tuple[str, str]]] = {
    "PIL": _pil,
    "OpenCV": _opencv,
    "torchvision": lambda module: ("its own, or PIL's", _torch_simd()),
    "simplejpeg": _simplejpeg,
    "PyTurboJPEG": _pyturbojpeg,
    "albumentations": lambda module: ("", _opencv_simd()),
    "kornia": lambda module: ("", _torch_simd()),
}

"""Loaders that are compared: those of this environment, and the peers in theirs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _harness import ROOT

from fastload.errors import OptionError
from fastload.images.jpegtran import find_jpegtran
from fastload.images.region import find_turbojpeg

PEERS = ROOT / "benchmarks" / "peers"
"""Programs of the sides; `make peers` makes the environments of those that need one, in `.peers`."""

MAX_SIDE = 400  # pixels, of photos whose pixels are stored

PIL = "torch DataLoader + torchvision/PIL"
OPENCV = "torch DataLoader + OpenCV, linear"
TORCHVISION = "torch DataLoader + torchvision.io"
SYNTHETIC = "synthetic batches on the device"
DALI_REGION, DALI_WHOLE = "DALI, regions decoded", "DALI, whole images decoded"
FFCV_JPEG, FFCV_RAW = "FFCV, JPEG quality 90", f"FFCV, raw, at most {MAX_SIDE} pixels"
FILES = "fastload, FolderDataset"
TURBOJPEG = "with TurboJPEG"

# A library with its environment; their programs have the environment's name.
_OPENCV_PEERS = (
    ("WebDataset", "webdataset"),
    ("LitData", "litdata"),
    ("MosaicML Streaming", "streaming"),
    ("Grain", "grain"),
    ("SPDL", "spdl"),
)


@dataclass(frozen=True, slots=True)
class Side:
    """A loader to compare.

    Attributes:
        name: The name of its row in tables.
        environment: The folder of a peer's environment; "" for the running Python.
        program: The script of its process, which serves the protocol of peers/epochs.py.
        job: The instructions that differ from those of other sides.
        in_smoke: Include it in a run that only checks that everything works.
    """

    name: str
    environment: str
    program: Path
    job: Mapping[str, Any]
    in_smoke: bool = False

    def python(self, peers: Path) -> Path:
        """Return the Python of its environment, if that is one of those in the folder `peers`."""
        if not self.environment:
            return Path(sys.executable)
        # Absolute, but not resolved: an environment's Python recognises itself by this name.
        return peers.absolute() / self.environment / "bin" / "python"

    def lacks(self, peers: Path) -> str | None:
        """Return a message about a missing requirement; None if all are met."""
        if not self.python(peers).exists():
            return "not installed (make peers)"
        if self.job.get("store") == "tiled" and find_jpegtran() is None:
            return "jpegtran is not installed"
        if self.job.get("turbojpeg") and find_turbojpeg() is None:
            return "TurboJPEG 3 is not installed"
        return None


def torch_side(name: str, decoder: str, in_smoke: bool = False, **job: Any) -> Side:
    """Return a side with torch's DataLoader."""
    return Side(name, "", PEERS / "load_torch.py", {"decoder": decoder, **job}, in_smoke)


def fastload_side(name: str, store: str, in_smoke: bool = False, **job: Any) -> Side:
    """Return a side with fastload's DataLoader; photos are antialiased unless the job says otherwise.

    It does without the optional TurboJPEG, installed or not, unless the job asks for it.
    """
    given = {"store": store, "antialias": True, "turbojpeg": False, **job}
    return Side(name, "", PEERS / "load_fastload.py", given, in_smoke)


def peer_side(name: str, environment: str, in_smoke: bool = False, **job: Any) -> Side:
    """Return a side with another library."""
    return Side(name, environment, PEERS / f"load_{environment}.py", job, in_smoke)


def packed_name(store: str) -> str:
    """Return the name of a packed dataset's row."""
    return f"fastload, {store}" + (f", at most {MAX_SIDE} pixels" if store in ("yuv420", "raw") else "")


def photo_sides() -> list[Side]:
    """Return every loader of photos: torch's, the peers', fastload's."""
    stores: dict[str, int | None] = {"keep": None, "tiled": None, "jpeg": None}
    stores |= {"yuv420": MAX_SIDE, "raw": MAX_SIDE}
    return [
        torch_side(PIL, "PIL", True),
        torch_side(OPENCV, "OpenCV"),
        torch_side(TORCHVISION, "torchvision"),
        peer_side(DALI_REGION, "dali", is_region=True),
        peer_side(DALI_WHOLE, "dali", True, is_region=False),
        peer_side(FFCV_JPEG, "ffcv", True, store="jpeg"),
        peer_side(FFCV_RAW, "ffcv", store="raw", max_side=MAX_SIDE),
        *(peer_side(f"{name} + OpenCV, linear", peer, True) for name, peer in _OPENCV_PEERS),
        fastload_side(FILES, "folder", True),
        fastload_side(f"{FILES}, {TURBOJPEG}", "folder", turbojpeg=True),
        fastload_side("fastload, ImageFolder compiled", "compiled"),
        *(
            fastload_side(packed_name(store), store, store == "jpeg", max_side=most)
            for store, most in stores.items()
        ),
        fastload_side(f"{packed_name('jpeg')}, {TURBOJPEG}", "jpeg", turbojpeg=True),
        fastload_side("fastload, jpeg in LMDB", "jpeg", format="lmdb"),
    ]


def synthetic_side() -> Side:
    """Return the side whose batches are on the device already."""
    return Side(SYNTHETIC, "", PEERS / "load_synthetic.py", {}, True)


def choose_sides(sides: Sequence[Side], words: Sequence[str], is_smoke: bool = False) -> list[Side]:
    """Return the sides whose names have one of the words, in any case, or all; for a smoke run, a few.

    Raises:
        OptionError: There are none.
    """
    named = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words), re.IGNORECASE)
    chosen = [side for side in sides if (side.in_smoke or not is_smoke or words) and named.search(side.name)]
    if not chosen:
        names = "; ".join(side.name for side in sides)
        raise OptionError(f"--only must be words of a loader's name, got {' '.join(words)}: {names}")
    return chosen

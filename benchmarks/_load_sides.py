"""The sides of bench_load.py: their names, environments and jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from _harness import Comparison, Key

PHOTOS = "Photos"
CEILING = "One core, nothing but decoding and resizing"
THUMBS = "Thumbnails, uint8"
FLOATS = "Thumbnails, float32 normalised"
SLUGS = {"photos": (PHOTOS, CEILING), "thumbs-uint8": (THUMBS,), "thumbs-float32": (FLOATS,)}


MAX_SIDE = 400  # of photos whose pixels are stored

PIL = "torch DataLoader + torchvision/PIL"
OPENCV = "torch DataLoader + OpenCV, linear"
DALI_REGION, DALI_WHOLE = "DALI, regions decoded", "DALI, whole images decoded"
FFCV_JPEG, FFCV_RAW = "FFCV, JPEG quality 90", f"FFCV, raw, at most {MAX_SIDE} pixels"
FFCV, FFCV_TORCH = "FFCV", "FFCV, normalised by torch"


@dataclass(frozen=True, slots=True)
class Loading:
    """A loader with its table and row.

    `peer` names its environment (empty for this one), `program` is a file of benchmarks/peers, `job` the part
    of its instructions that differs within the table; `in_smoke` includes it in smoke runs.
    """

    table: str
    row: str
    peer: str
    program: str
    job: Mapping[str, Any]
    in_smoke: bool = False


def photo_sides() -> list[Loading]:
    """Return the sides that load photos, and the ceilings."""
    sides = [
        Loading(PHOTOS, PIL, "torch", "load_torch.py", {"decoder": "PIL"}, True),
        Loading(PHOTOS, OPENCV, "torch", "load_torch.py", {"decoder": "OpenCV"}, True),
        Loading(PHOTOS, DALI_REGION, "dali", "load_dali.py", {"is_region": True}, True),
        Loading(PHOTOS, DALI_WHOLE, "dali", "load_dali.py", {"is_region": False}, True),
        Loading(PHOTOS, FFCV_JPEG, "ffcv", "load_ffcv.py", {"store": "jpeg"}, True),
        Loading(PHOTOS, FFCV_RAW, "ffcv", "load_ffcv.py", {"store": "raw", "max_side": MAX_SIDE}, True),
    ]
    for store in ("folder", "keep", "tiled", "jpeg", "yuv420", "raw"):
        max_side = MAX_SIDE if store in ("yuv420", "raw") else None
        for antialias in (True, False):
            job = {"store": store, "max_side": max_side, "antialias": antialias}
            in_smoke = (store, antialias) in {("folder", False), ("jpeg", True), ("raw", True)}
            sides.append(Loading(PHOTOS, packed_row(store, antialias), "", "load_fastload.py", job, in_smoke))
            if store in ("keep", "tiled", "jpeg"):
                row, in_smoke = ceiling_row(store, antialias), (store, antialias) == ("jpeg", True)
                sides.append(Loading(CEILING, row, "", "load_ceiling.py", job, in_smoke))
    return sides


def packed_row(store: str, antialias: bool) -> str:
    """Return the name of a side of fastload on photos."""
    if store == "folder":
        name = "FolderDataset"
    else:
        name = f"{store}, at most {MAX_SIDE} pixels" if store in ("yuv420", "raw") else store
    return f"fastload, {name}" + ("" if antialias else ", linear")


def ceiling_row(store: str, antialias: bool) -> str:
    """Return the name of a ceiling."""
    return f"cv2.imdecode and resize, fastload's {store}" + ("" if antialias else ", linear")


def thumb_sides() -> list[Loading]:
    """Return the sides that load thumbnails."""
    sides = []
    for table, normalise, names in ((THUMBS, None, (FFCV,)), (FLOATS, "compiled", (FFCV, FFCV_TORCH))):
        job: dict[str, Any] = {"normalise": normalise}
        sides.append(Loading(table, PIL, "torch", "load_torch.py", {**job, "decoder": "PIL"}, True))
        for name in names:
            how = "by torch" if name == FFCV_TORCH else normalise
            ffcv = {"normalise": how, "store": "raw"}
            sides.append(Loading(table, name, "ffcv", "load_ffcv.py", ffcv, True))
        for workers in (0, 1, 2):
            own = {**job, "store": "raw", "workers": workers}
            in_smoke = workers == (2 if table == THUMBS else 0)
            sides.append(Loading(table, thumb_row(workers), "", "load_fastload.py", own, in_smoke))
    return sides


def thumb_row(workers: int) -> str:
    """Return the name of a side of fastload on thumbnails."""
    return f"fastload, {workers or 'no'} worker{'' if workers == 1 else 's'}"


def comparisons(workers: int) -> list[Comparison]:
    """Return the pairs of rows whose rates are divided."""

    def photos(store: str, antialias: bool, *beside: str) -> list[Comparison]:
        row = Key(PHOTOS, packed_row(store, antialias))
        return [Comparison(row, Key(PHOTOS, other)) for other in beside]

    pairs = [
        *photos("jpeg", True, FFCV_JPEG, DALI_REGION, DALI_WHOLE, PIL),
        *photos("jpeg", False, FFCV_JPEG, OPENCV),
        *photos("tiled", True, PIL, FFCV_JPEG),
        *photos("tiled", False, OPENCV),
        *photos("keep", True, PIL),
        *photos("keep", False, OPENCV),
        *photos("folder", True, packed_row("keep", True)),
        *photos("folder", False, packed_row("keep", False)),
        *photos("yuv420", True, FFCV_RAW),
        *photos("raw", True, FFCV_RAW),
    ]
    for table, others in ((THUMBS, (FFCV, PIL)), (FLOATS, (FFCV, FFCV_TORCH, PIL))):
        for count in (0, 1, 2):
            row = Key(table, thumb_row(count))
            pairs += [Comparison(row, Key(table, other)) for other in others]
    for store in ("jpeg", "tiled", "keep"):
        for antialias in (True, False):
            row = Key(PHOTOS, packed_row(store, antialias))
            pairs.append(Comparison(row, Key(CEILING, ceiling_row(store, antialias)), workers))
    return pairs

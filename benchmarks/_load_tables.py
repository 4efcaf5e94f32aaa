"""Tables of bench_load.py: rows that it adds to the loaders of photos, and pairs whose rates are divided."""

from __future__ import annotations

from typing import Any

from _harness import Comparison, Key
from _sides import (
    DALI_REGION,
    DALI_WHOLE,
    FFCV_JPEG,
    FFCV_RAW,
    FILES,
    MAX_SIDE,
    OPENCV,
    PEERS,
    PIL,
    TURBOJPEG,
    Side,
    fastload_side,
    packed_name,
    peer_side,
    photo_sides,
    torch_side,
)

PHOTOS = "Photos"
CEILING = "One core, nothing but decoding and resizing"
THUMBS = "Thumbnails, uint8"
FLOATS = "Thumbnails, float32 normalised"
SLUGS = {"photos": (PHOTOS, CEILING), "thumbs-uint8": (THUMBS,), "thumbs-float32": (FLOATS,)}

FFCV, FFCV_TORCH = "FFCV", "FFCV, normalised by torch"
_STORES = ("folder", "keep", "tiled", "jpeg", "yuv420", "raw")
_CEILING_STORES = ("keep", "tiled", "jpeg")


def tables() -> dict[str, list[Side]]:
    """Return the sides of each table."""
    linear = [
        fastload_side(linear_name(store), store, antialias=False, max_side=_max_side(store))
        for store in _STORES
    ]
    ceilings = [
        Side(
            ceiling_name(store, antialias),
            "",
            PEERS / "load_ceiling.py",
            {"store": store, "antialias": antialias},
            (store, antialias) == ("jpeg", True),
        )
        for store in _CEILING_STORES
        for antialias in (True, False)
    ]
    return {
        PHOTOS: [*photo_sides(), *linear],
        CEILING: ceilings,
        THUMBS: _thumb_sides(None, FFCV),
        FLOATS: _thumb_sides("compiled", FFCV, FFCV_TORCH),
    }


def _thumb_sides(normalise: str | None, *ffcv_names: str) -> list[Side]:
    job: dict[str, Any] = {"normalise": normalise}
    sides = [torch_side(PIL, "PIL", normalise is None, **job)]
    for name in ffcv_names:
        how = "by torch" if name == FFCV_TORCH else normalise
        sides.append(peer_side(name, "ffcv", True, normalise=how, store="raw"))
    for workers in (0, 1, 2):
        in_smoke = workers == (2 if normalise is None else 0)
        sides.append(fastload_side(thumb_name(workers), "raw", in_smoke, workers=workers, **job))
    return sides


def _max_side(store: str) -> int | None:
    return MAX_SIDE if store in ("yuv420", "raw") else None


def linear_name(store: str) -> str:
    """Return the row of a side that does not antialias."""
    return f"{FILES if store == 'folder' else packed_name(store)}, linear"


def ceiling_name(store: str, antialias: bool) -> str:
    """Return the row of a ceiling."""
    return f"cv2.imdecode and resize, fastload's {store}" + ("" if antialias else ", linear")


def thumb_name(workers: int) -> str:
    """Return the row of a side of fastload on thumbnails."""
    return f"fastload, {workers or 'no'} worker{'' if workers == 1 else 's'}"


def comparisons(workers: int) -> list[Comparison]:
    """Return the pairs of rows whose rates are divided."""

    def photos(row: str, *others: str) -> list[Comparison]:
        return [Comparison(Key(PHOTOS, row), Key(PHOTOS, other)) for other in others]

    pairs = [
        *photos(packed_name("jpeg"), FFCV_JPEG, DALI_REGION, DALI_WHOLE, PIL),
        *photos(linear_name("jpeg"), FFCV_JPEG, OPENCV),
        *photos(packed_name("tiled"), PIL, FFCV_JPEG),
        *photos(linear_name("tiled"), OPENCV),
        *photos(packed_name("keep"), PIL),
        *photos(linear_name("keep"), OPENCV),
        *photos(FILES, PIL, packed_name("keep")),
        *photos(f"{FILES}, {TURBOJPEG}", PIL, FILES),
        *photos(f"{packed_name('jpeg')}, {TURBOJPEG}", FFCV_JPEG, packed_name("jpeg")),
        *photos(linear_name("folder"), linear_name("keep")),
        *photos(packed_name("yuv420"), FFCV_RAW),
        *photos(packed_name("raw"), FFCV_RAW),
    ]
    for table, others in ((THUMBS, (FFCV, PIL)), (FLOATS, (FFCV, FFCV_TORCH, PIL))):
        for count in (0, 1, 2):
            row = Key(table, thumb_name(count))
            pairs += [Comparison(row, Key(table, other)) for other in others]
    for store in reversed(_CEILING_STORES):
        for antialias in (True, False):
            name = packed_name(store) if antialias else linear_name(store)
            ceiling = Key(CEILING, ceiling_name(store, antialias))
            pairs.append(Comparison(Key(PHOTOS, name), ceiling, workers))
    return pairs

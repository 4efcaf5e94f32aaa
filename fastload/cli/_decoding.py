"""Result of `fastload bench decode`, for reading and as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict

from fastload.bench.results import (
    LEAST_RATIO,
    LEAST_WINS,
    MEAN_LEVELS_OF_CLOSE,
    MOST_LEVELS_OF_EQUAL,
    REFERENCE,
    Comparison,
    DecodeBench,
    Difference,
    ImageSet,
    Likeness,
    standings,
    verdict,
)
from fastload.system.units import aligned, format_count, format_figure, format_size

_SIGNS: dict[Likeness, str] = {"equal": "=", "close": "≈", "other": "≠"}
_OVERVIEW = ("operation", "PIL, images/s", "OpenCV, images/s", "OpenCV ÷ PIL", "differs by", "faster")
_COLUMNS = ("library", "call", "images/s", "slowest–fastest", "× PIL", "differs by")


def decoding_lines(bench: DecodeBench) -> Iterator[str]:
    """Yield the complete result for reading; the answer, at which the reader looks first, comes last."""
    for name, comparisons in itertools.groupby(bench.comparisons, key=lambda each: each.group):
        yield name
        for comparison in comparisons:
            yield from ("", f"  {comparison.title}", *(f"    {line}" for line in _table(comparison)))
            yield from (f"    missing: {call}" for call in comparison.missing)
        yield ""
    rows = [
        (
            each.title,
            format_figure(each.pil.images_per_s),
            format_figure(each.opencv.images_per_s),
            f"{each.ratio:.2f} ×",
            difference_text(each.opencv.difference),
            each.winner,
        )
        for each in standings(bench)
    ]
    yield from (*aligned([_OVERVIEW, *rows]), "")
    yield (
        "differs by: the mean, then the largest difference from PIL's pixels, in levels of 255. "
        f"= equal: at most {MOST_LEVELS_OF_EQUAL} levels anywhere. "
        f"≈ close: at most {MEAN_LEVELS_OF_CLOSE:g} level on average. ≠ visibly different."
    )
    yield (
        f"images/s: the median of {bench.runs} runs, in which all calls take turns, on one core. Operations "
        "start from pixels in the library's own kind of image; files are in the page cache."
    )
    yield (
        f"A library is called faster if its median leads by {LEAST_RATIO - 1:.0%} and it is faster in "
        f"{LEAST_WINS:.0%} of the runs. Of OpenCV's calls, the one most similar to PIL counts."
    )
    yield from ("", images_line(bench.images), *bench.images.notes)
    machine = bench.conditions["machine"]
    cpus = format_count(machine["usable_cpus"], "usable CPU")
    yield f"{machine['processor']}, {cpus}, {machine['system']}, load {machine['load_before']} at the start"
    for each in bench.libraries:
        jpeg = f" (JPEG: {each.jpeg})" if each.jpeg else ""
        yield f"{each.name} {each.version}{jpeg}" if each.version else f"{each.name}: {each.reason}"
    if "smoke" in bench.conditions:
        yield from ("", f"This was a smoke run: its {bench.conditions['smoke']}.")
    yield from ("", *verdict(bench))


def _table(comparison: Comparison) -> list[str]:
    reference = comparison.pil if REFERENCE in comparison.libraries else None
    rows = [
        (
            row.library,
            row.call,
            format_figure(row.images_per_s),
            f"{format_figure(1 / max(row.seconds))}–{format_figure(1 / min(row.seconds))}",
            "" if reference is None else f"{row.images_per_s / reference.images_per_s:.2f}",
            "" if row.library == REFERENCE else difference_text(row.difference),
        )
        for row in comparison.rows
    ]
    return aligned([_COLUMNS, *rows])


def difference_text(difference: Difference) -> str:
    """Return a difference from PIL with a sign for its meaning: `= 0.06, 1`."""
    return f"{_SIGNS[difference.likeness]} {difference.mean:.2f}, {difference.most:.0f}"


def images_line(images: ImageSet) -> str:
    """Return a sentence on the images."""
    kind = "generated images" if images.available is None else f"of {images.available:,} images"
    formats = ", ".join(f"{count:,} {name}" for name, count in images.formats.items())
    return (
        f"{images.count:,} {kind} ({formats}), {format_size(images.mean_bytes)} and "
        f"{images.mean_width:.0f} × {images.mean_height:.0f} pixels on average."
    )


def decoding_content(bench: DecodeBench) -> dict[str, object]:
    """Return the complete result for JSON, with the figures of each run and the verdict."""
    return {
        **asdict(bench),
        "comparisons": [
            {
                **asdict(each),
                "rows": [
                    {**asdict(row), "images_per_s": row.images_per_s, "likeness": row.difference.likeness}
                    for row in each.rows
                ],
            }
            for each in bench.comparisons
        ],
        "verdict": verdict(bench),
        "winners": {each.key: each.winner for each in standings(bench)},
    }

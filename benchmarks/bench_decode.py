"""PIL or OpenCV?

Question: how fast do PIL, OpenCV, fastload and other libraries decode and transform images, operation by
operation and as whole pipelines, and how far are their pictures from PIL's?

Method: that of `fastload bench decode`, whose code this is: every library starts from the same pictures in
its own kind of image, on one core; all ways of an operation take turns, and a turn lasts 30 ms at least. Then
whole pipelines in a DataLoader, from files in the page cache to batches of normalised floats, three turns
each. Libraries that are not installed are listed; those that decode JPEG alone have no other rows.

Reading it: behind each row stands how far its picture is from PIL's, in levels of 255: on average, and at
most. `=` is equal within rounding, `≈` close to the eye, `≠` another picture, whose speed is no answer to
PIL's. Rows of one library with different flags are different trades of speed for quality.
"""

from __future__ import annotations

from _harness import Key, Missing, Reading, Report, Table, options_of, progress, publish

from fastload.bench.decoding import compare_decoding
from fastload.bench.result import Comparison, DecodeBench, Library
from fastload.bench.result import Row as Measured
from fastload.cli.report.decoding import difference_text, pictures_line

# Single operations take microseconds; the harness keeps no more of a second than that.
_COUNT = 1000


def main() -> None:
    options = options_of(
        __doc__,
        data={"metavar": "FOLDER", "help": "images (photo-like JPEGs, made for it)"},
        images={"type": int, "default": 24, "metavar": "N", "help": "how many (24)"},
        workers={"type": int, "default": 2, "metavar": "N", "help": "of the loaders (2)"},
    )
    progress("about two minutes for five runs" if not options.smoke else "a tiny run")
    bench = compare_decoding(
        options.data,
        images=2 if options.smoke else options.images,
        runs=options.runs,
        workers=options.workers,
        is_smoke=options.smoke,
    )
    publish(_report(bench), options)


def _report(bench: DecodeBench) -> Report:
    readings = {
        Key(_title(comparison), _row(row)): [Reading(_COUNT * seconds) for seconds in row.seconds]
        for comparison in bench.comparisons
        for row in comparison.rows
    }
    return Report(
        name="decode",
        question=__doc__.splitlines()[0],
        setting={
            "images": pictures_line(bench.pictures).rstrip("."),
            "runs": bench.runs,
            "runs of DataLoaders": bench.loader_runs,
            "workers of DataLoaders": bench.workers,
            "page cache": "warm",
        },
        tables=[Table(_title(comparison), "images", _COUNT) for comparison in bench.comparisons],
        readings=readings,
        missing=_missing(bench),
        versions={
            library.name: _version(library)
            for library in bench.libraries
            if library.version and library.name not in ("fastload", "NumPy", "torch")
        },
    )


def _version(library: Library) -> str:
    more = [f"JPEG: {library.jpeg}"] if library.jpeg else []
    more += [f"SIMD: {library.simd}"] if library.simd else []
    return f"{library.version} ({'; '.join(more)})"


def _title(comparison: Comparison) -> str:
    return f"{comparison.group}: {comparison.title}"


def _row(row: Measured) -> str:
    """The way, and its difference from PIL."""
    is_reference = row.library == "PIL"
    return row.name if is_reference else f"{row.name} ({difference_text(row.difference)})"


def _missing(bench: DecodeBench) -> list[Missing]:
    absent = [library for library in bench.libraries if library.reason]
    missing = [Missing(_title(bench.comparisons[0]), library.name, library.reason) for library in absent]
    for comparison in bench.comparisons:
        title = _title(comparison)
        missing += [Missing(title, f"{m.library}, {m.call}", m.reason) for m in comparison.missing]
        if "fastload" not in {each.library for each in (*comparison.rows, *comparison.missing)}:
            missing.append(Missing(title, "fastload", "has no way of its own"))
    return missing


if __name__ == "__main__":
    main()

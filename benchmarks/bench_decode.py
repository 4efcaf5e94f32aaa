"""PIL or OpenCV?

Question: how fast do PIL, OpenCV, fastload and other libraries decode and transform images, operation by
operation and as whole pipelines, and how much do their pixels differ from PIL's?

Method: that of `fastload bench decode`, whose code is used: every library starts from the same images in
its own type of image, on one core; all calls for an operation take turns of at least 30 ms. torchvision and
two decoders of JPEG, simplejpeg and PyTurboJPEG, are added. Libraries that are not installed are listed.

Reading it: each row has its difference from PIL's pixels in levels of 255: the mean, then the largest one.
`=` is equal within rounding, `≈` hardly visible, `≠` visibly different, so that its speed cannot be compared
with PIL's. Rows of one library with different flags trade speed for quality.
"""

from __future__ import annotations

from _harness import Key, Missing, Reading, Report, Table, options_of, progress, publish
from _peers import load_peer

from fastload.bench.decoding import compare_decoding
from fastload.bench.results import Comparison, DecodeBench, Timing
from fastload.cli.bench import difference_text, images_line

# Single operations take microseconds, and the harness rounds to microseconds.
_COUNT = 1000


def main() -> None:
    options = options_of(
        __doc__,
        data={"metavar": "FOLDER", "help": "images (photo-like JPEGs, made for it)"},
        images={"type": int, "default": 24, "metavar": "N", "help": "how many (24)"},
    )
    progress("about two minutes for five runs" if not options.smoke else "a tiny run")
    bench = compare_decoding(
        options.data,
        images=2 if options.smoke else options.images,
        runs=options.runs,
        others=[
            load_peer("torchvision", "_peer_torchvision"),
            load_peer("simplejpeg", "_peer_simplejpeg"),
            load_peer("PyTurboJPEG", "_peer_pyturbojpeg"),
        ],
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
            "images": images_line(bench.images).rstrip("."),
            "runs": bench.runs,
            "page cache": "warm",
        },
        tables=[Table(_title(comparison), "images", _COUNT) for comparison in bench.comparisons],
        readings=readings,
        missing=_missing(bench),
        versions={
            library.name: f"{library.version} (JPEG: {library.jpeg})"
            for library in bench.libraries
            if library.version and library.name not in ("fastload", "torch")
        },
    )


def _title(comparison: Comparison) -> str:
    return f"{comparison.group}: {comparison.title}"


def _row(row: Timing) -> str:
    """The call, and its difference from PIL."""
    name = f"{row.library}, {row.call}"
    return name if row.library == "PIL" else f"{name} ({difference_text(row.difference)})"


def _missing(bench: DecodeBench) -> list[Missing]:
    absent = [library for library in bench.libraries if library.reason]
    missing = [Missing(_title(bench.comparisons[0]), library.name, library.reason) for library in absent]
    for comparison in bench.comparisons:
        title = _title(comparison)
        calls = (call.partition(": ") for call in comparison.missing)
        missing += [Missing(title, call, reason) for call, _, reason in calls]
    return missing


if __name__ == "__main__":
    main()

"""`fastload bench decode`: a comparison of decoding libraries on this machine."""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Iterator
from dataclasses import asdict

from fastload.bench import results
from fastload.bench.results import REFERENCE, Comparison, DecodeBench, Difference, ImageSet, Likeness
from fastload.cli.output import ProgressDisplay, show, show_json
from fastload.cli.parser import whole_number
from fastload.system import signals
from fastload.system.units import aligned, format_count, format_figure, format_size

HELP = "compare libraries that decode and transform images on this machine"

EXIT_CODES = {
    "2": "nothing was done: an option or a path is invalid",
    "3": "an image is damaged, or a library fails",
    "130": "interrupted (Ctrl-C)",
}

_DECODE_HELP = "PIL or OpenCV? Decode and transform your images with every installed library, in a minute"

_SIGNS: dict[Likeness, str] = {"equal": "=", "close": "≈", "other": "≠"}
_OVERVIEW = ("operation", "PIL, images/s", "OpenCV, images/s", "OpenCV ÷ PIL", "differs by", "faster")
_COLUMNS = ("library", "call", "images/s", "slowest–fastest", "× PIL", "differs by")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    benches = parser.add_subparsers(metavar="BENCH", required=True)
    decode = benches.add_parser("decode", help=_DECODE_HELP, description=_DECODE_HELP)
    folder_help = "your own images, in class folders or not (default: generated photo-like JPEGs)"
    decode.add_argument("folder", metavar="FOLDER", nargs="?", help=folder_help)
    number = functools.partial(decode.add_argument, type=whole_number, metavar="N")
    number("--images", default=24, help="number of images, evenly spaced (default: 24)")
    number("--runs", default=5, help="turns of each call (default: 5)")
    decode.add_argument("--json", action="store_true", help="print the result as JSON")
    decode.add_argument("--smoke", action="store_true", help="only check that it runs: figures mean nothing")
    decode.add_argument("--quiet", action="store_true", help="show no progress")
    # Here as well as on 'bench', because users write it after the comparison's name.
    decode.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )


def run(options: argparse.Namespace) -> int:
    """Compare libraries, operation by operation."""
    from fastload.bench import require_libraries

    require_libraries()
    # Importing torch takes seconds on a slow machine: only when it is needed.
    from fastload.bench.decoding import compare_decoding

    with signals.unwinding(), ProgressDisplay("", "steps", options.quiet) as display:
        bench = compare_decoding(
            options.folder,
            images=options.images,
            runs=options.runs,
            is_smoke=options.smoke,
            progress=display.stage,
        )
    if options.json:
        show_json(decoding_content(bench))
    else:
        show(*decoding_lines(bench))
    return 0


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
        for each in results.standings(bench)
    ]
    yield from (*aligned([_OVERVIEW, *rows]), "")
    yield (
        "differs by: the mean, then the largest difference from PIL's pixels, in levels of 255. "
        f"= equal: at most {results.MOST_LEVELS_OF_EQUAL} levels anywhere. "
        f"≈ close: at most {results.MEAN_LEVELS_OF_CLOSE:g} level on average. ≠ visibly different."
    )
    yield (
        f"images/s: the median of {bench.runs} runs, in which all calls take turns, on one core. Operations "
        "start from pixels in the library's own kind of image; files are in the page cache."
    )
    yield (
        f"A library is called faster if its median leads by {results.LEAST_RATIO - 1:.0%} and it is faster "
        f"in {results.LEAST_WINS:.0%} of the runs. Of OpenCV's calls, the one most similar to PIL counts."
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
    yield from ("", *results.verdict(bench))


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
        "verdict": results.verdict(bench),
        "winners": {each.key: each.winner for each in results.standings(bench)},
    }

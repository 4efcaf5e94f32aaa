"""Results that are made up."""

from fastload.bench.result import Comparison, DecodeBench, Difference, Library, Pictures, Row

EQUAL, CLOSE, OTHER = Difference(0.1, 1), Difference(0.5, 40), Difference(3.0, 90)


def row(library, seconds, difference=EQUAL, call="call"):
    """A row whose runs took so many seconds, or one number for three equal runs."""
    runs = seconds if isinstance(seconds, tuple) else (seconds,) * 3
    return Row(library, call, runs, difference)


def comparison(*rows, key="decode", group="Decode", title="decode it", missing=()):
    return Comparison(key, group, title, rows, tuple(missing))


def bench_of(*comparisons, libraries=(), notes=()):
    """A result with these comparisons."""
    return DecodeBench(
        comparisons=comparisons,
        libraries=(Library("PIL", "13.0", "libjpeg-turbo 3", "none"), Library("OpenCV", "5.0"), *libraries),
        pictures=Pictures(4, None, {"jpeg": 4}, 1000.0, 100.0, 120.0, 64, notes),
        processor="A processor",
        usable_cpus=2,
        system="Linux",
        python="3.11",
        runs=3,
        loader_runs=3,
        workers=2,
    )

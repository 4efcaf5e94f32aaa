"""Made-up results."""

from fastload.bench.results import Comparison, DecodeBench, Difference, ImageSet, Library, Timing

EQUAL, CLOSE, OTHER = Difference(0.1, 1), Difference(0.5, 40), Difference(3.0, 90)


def row(library, seconds, difference=EQUAL, call="call"):
    """A timing with the seconds of each run, or with three equal runs."""
    runs = seconds if isinstance(seconds, tuple) else (seconds,) * 3
    return Timing(library, call, runs, difference)


def comparison(*rows, key="decode", group="Decode", title="decode it", missing=()):
    return Comparison(key, group, title, rows, tuple(missing))


def bench_of(*comparisons, libraries=(), notes=()):
    """A result with these comparisons."""
    return DecodeBench(
        comparisons=comparisons,
        libraries=(Library("PIL", "13.0", "libjpeg-turbo 3"), Library("OpenCV", "5.0"), *libraries),
        images=ImageSet(4, None, {"jpeg": 4}, 1000.0, 100.0, 120.0, notes),
        conditions={
            "date": "2026-01-01",
            "commit": "abcdef0",
            "machine": {
                "processor": "A processor",
                "usable_cpus": 2,
                "memory_bytes": 1 << 34,
                "system": "Linux x86_64",
                "load_before": "0.10",
            },
            "versions": {"Python": "3.11"},
        },
        runs=3,
    )

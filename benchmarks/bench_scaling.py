"""How does loading scale?

Question: how do images per second, the time to open a dataset, the time to the first batch and the memory
change with the number of workers, the size of the images, a cold page cache, and 1,000 to 10 million records?

Method: that of compare_loaders.py, whose code is used: the loaders are processes that take turns. Photos
are 1,000 generated JPEGs with the sizes and file sizes of ImageNet's, each a file of its own; one condition
is changed at a time. Records are thumbnails with a shorter side of 16 pixels and 0.9 KB, so that 10 million
of them, packed, fit in memory; the files are hard links to 400 of them, because millions of separate files
would take hours to make. A packed dataset stores each record. Everything becomes 224×224 by a random resized
crop and a flip. A turn loads whole epochs, or the beginning of a long one: of 10 million records, another
random part each time.

Reading it: the cells have medians, and the slowest and fastest turns in parentheses. There is no gain from
more workers than processors. A cold turn begins with new processes and with the stored files dropped from the
page cache. "Opened in" is listing the files, or opening the packed dataset, with imports; the first batch
includes the start of the workers and the shuffling. Memory is that of all processes (PSS) in one more turn;
pages of a mapped dataset that were read count, and the system may take them back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from _harness import PEERS_OPTION, identified, options_of, progress, publish_json
from _loading import compare_loading
from _loading_results import LoadSetting, SettingResult, SideResult
from _sides import FFCV_JPEG, FILES, PIL, Side, packed_name, photo_sides

from fastload.system.units import format_figure, format_size

_PHOTO_SIDES = (PIL, "WebDataset + OpenCV, linear", FFCV_JPEG, FILES, packed_name("jpeg"))
_RECORD_SIDES = (PIL, FILES, packed_name("keep"))
_BASE = LoadSetting(1000, 2, None, "warm")
_AXES: dict[str, tuple[LoadSetting, ...]] = {
    "Workers": tuple(replace(_BASE, workers=workers) for workers in (1, 2, 4)),
    "Shorter side": tuple(replace(_BASE, shorter_side=side) for side in (64, 224, 500)),
    "Page cache": tuple(replace(_BASE, cache=state) for state in ("warm", "cold")),
}
_THUMBNAIL = 16  # pixels
_RECORDS = "Records"

Cell = Callable[[SideResult], str]


def main() -> None:
    options = options_of(
        __doc__,
        records={
            "type": int,
            "nargs": "+",
            "metavar": "N",
            "default": [1_000, 100_000, 10_000_000],
            "help": "sizes of the datasets of thumbnails (1,000, 100,000 and 10 million: 15 GB of disk)",
        },
        peers=PEERS_OPTION,
        only={"metavar": "TABLE", "choices": [*_AXES, _RECORDS], "help": "one of %(choices)s; not saved"},
    )
    axes, numbers, batch_size, min_s = _AXES, options.records, 64, 0.3
    if options.smoke:
        axes, numbers, batch_size, min_s = {}, [8, 16], 2, 0.01
    thumbnails = replace(_BASE, shorter_side=_THUMBNAIL)
    axes = axes | {_RECORDS: tuple(replace(thumbnails, images=number) for number in numbers)}
    axes = {axis: settings for axis, settings in axes.items() if options.only in (None, axis)}
    results: dict[LoadSetting, SettingResult] = {}
    versions: dict[str, str] = {}
    for axis, settings in axes.items():
        bench = compare_loading(
            None,
            _sides(_RECORD_SIDES if axis == _RECORDS else _PHOTO_SIDES),
            [setting for setting in settings if setting not in results],
            batch_size=batch_size,
            runs=options.runs,
            min_s=min_s,
            is_linked=axis == _RECORDS,
            is_smoke=options.smoke,
            peers=options.peers,
            workdir=options.workdir,
            progress=lambda stage, done, total, axis=axis: progress(f"{axis}: {stage}, {done} of {total}"),
        )
        results |= {result.setting: result for result in bench.settings}
        versions |= bench.conditions["versions"]
    setting = {
        "runs": options.runs,
        "batch size": batch_size,
        "least seconds of a turn": min_s,
        "unless the table says otherwise": "2 workers, 1,000 photos as made",
        "page cache": "warm",
    }
    content = {
        **identified("scaling", str(__doc__).partition("\n")[0], setting, versions),
        "tables": [],
        "rows": [],
        "missing": [],
        "side_by_side": False,
        "settings": [asdict(result) for result in results.values()],
        "grids": [
            grid
            for axis, settings in axes.items()
            for grid in _grids(axis, [results[setting] for setting in settings])
        ],
    }
    publish_json(content, options)


def _sides(names: Sequence[str]) -> list[Side]:
    return [side for side in photo_sides() if side.name in names]


def _grids(axis: str, results: Sequence[SettingResult]) -> list[dict[str, Any]]:
    """Return the tables of an axis, and the loaders that failed there."""
    cells: dict[str, Cell] = {"images/s": _rate}
    if axis == _RECORDS:
        cells |= {
            "opened in": lambda side: f"{format_figure(side.open_s)} s",
            "first batch": lambda side: f"{format_figure(side.first_batch_s)} s",
            "memory": lambda side: format_size(side.memory_bytes),
            "written in": lambda side: "–" if side.write_s is None else f"{format_figure(side.write_s)} s",
        }
    names = dict.fromkeys(each.name for result in results for each in (*result.sides, *result.missing))
    heads = [_value(axis, result.setting) for result in results]
    grids = [
        {
            "heads": [f"{axis}: {quantity}", *heads],
            "rows": [
                [name, *(cell(side) if (side := result.side(name)) else "failed" for result in results)]
                for name in names
            ],
        }
        for quantity, cell in cells.items()
    ]
    failed = [
        [f"{each.name}, {_value(axis, result.setting)}", each.reason]
        for result in results
        for each in result.missing
    ]
    return [*grids, {"heads": [f"{axis}: not measured", "reason"], "rows": failed}] if failed else grids


def _rate(side: SideResult) -> str:
    least, most = format_figure(min(side.rates)), format_figure(max(side.rates))
    return f"{format_figure(side.images_per_s)} ({least}–{most})"


def _value(axis: str, setting: LoadSetting) -> str:
    values = {
        "Workers": f"{setting.workers}",
        "Shorter side": f"{setting.shorter_side} pixels",
        "Page cache": setting.cache,
        _RECORDS: f"{setting.images:,}",
    }
    return values[axis]


if __name__ == "__main__":
    main()

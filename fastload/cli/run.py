"""`fastload run train.py`: a script unchanged, with fastload's DataLoader in place of torch's."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from fastload.cli.output import note
from fastload.cli.parser import add_script_arguments
from fastload.system.cpus import local_rank
from fastload.system.units import format_count, format_duration

if TYPE_CHECKING:
    from fastload.loader.replacing import ReplacedLoader
    from fastload.system.script import Ending, Script

# Of measurements of the same batch, repeated, some differ by this much.
_LEAST_GAIN = 1.1

# The module of fastai's DataLoader, which is no subclass of torch's.
_FASTAI = "fastai.data.load"

HELP = "run a script with fastload's DataLoader in place of torch's: 'run train.py --lr 0.1'"

EXIT_CODES = {
    "2": "the script was not run: an option or its path is invalid",
    "else": "that of the script",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    cache_help = "keep the image files there: see the documentation, 'Caching'"
    tune_help = "choose the number of workers where the script leaves it unset"
    parser.add_argument("--cache", choices=("ram", "tmpfs", "disk"), help=cache_help)
    parser.add_argument("--tune", action="store_true", help=tune_help)
    parser.add_argument("--quiet", action="store_true", help="print no summary")
    add_script_arguments(parser, "the script, or a command such as yolo", "the script's own arguments")


def run(options: argparse.Namespace) -> int:
    """Run the script, print what was replaced, and return the script's own exit code."""
    from fastload.system.script import run_script

    return run_script(_around_script(options))


def _around_script(options: argparse.Namespace) -> Generator[Script, Ending, int]:
    """Yield the script, to be run with its loaders replaced; return its exit code after the summary."""
    # Importing torch may take seconds.
    from fastload.cli.doctor import print_error, script_exit_code
    from fastload.loader.replacing import loaders_replaced
    from fastload.system.script import find
    from fastload.ultralytics.patching import patched_on_import

    def warn(reason: str) -> None:
        if local_rank() == 0:
            note(f"fastload: the script runs without a cache: {reason}")

    process = os.getpid()
    with loaders_replaced(options.cache, warn, options.tune) as replaced, patched_on_import() as ranks:
        script = find(options.path, options.is_module, options.arguments)
        ending = yield script
    if ending.error is not None:
        print_error(ending.error, script.code.co_filename)
    is_forked = os.getpid() != process  # by the script
    if not options.quiet and local_rank() == 0 and not is_forked:
        with contextlib.suppress(OSError, ValueError):  # the script may have closed it
            sys.stdout.flush()
        with contextlib.suppress(OSError, ValueError):
            note(*_summary(replaced, ending.children, ranks, may_measure=ending.error is None))
    return script_exit_code(ending)


def _summary(
    replaced: Sequence[ReplacedLoader], children: Sequence[str], ranks: Sequence[str], may_measure: bool
) -> Iterator[str]:
    if ranks:
        yield ""
        yield "fastload: the ranks that Ultralytics started load their images through fastload.ultralytics"
    elif not replaced:
        yield "fastload: the script created no torch DataLoader, so nothing was replaced"
        if _FASTAI in sys.modules:
            yield "  fastai's DataLoader is not torch's: the page 'Recipes' shows fastai with fastload's"
        if children:
            yield f"  nothing is replaced in the processes that it started: {', '.join(children)}"
    if not replaced:
        return
    yield ""
    yield "fastload replaced:"
    gaining = []
    for each in replaced:
        count = "" if each.samples is None else f", {each.samples:,} samples"
        yield f"  {each.place}: DataLoader of {each.given}{count}{_speed(each)}"
        seconds = each.batch_cpu_s() if may_measure else None
        if seconds is not None:
            yield from _gain(*seconds)
        if each.uses_workers or seconds is None or seconds[1] <= _LEAST_GAIN * seconds[0]:
            gaining.append(each)
        changes = each.explained().splitlines() or ["its dataset is left as it is: Pillow is not installed"]
        yield from (f"    {line}" for line in changes)
    if ways := list(_ways_to_keep_it(gaining)):
        yield "To keep it without 'fastload run':"
        yield from ways


def _ways_to_keep_it(replaced: Sequence[ReplacedLoader]) -> Iterator[str]:
    if any(each.has_gain and each.is_direct for each in replaced):
        yield "  from fastload import DataLoader"
    lines = dict.fromkeys(each.to_keep for each in replaced if each.to_keep)
    yield from (f"  {line}" for line in lines)
    # Accelerate makes a loader of torch's class from it, which fastload's does not survive.
    of_libraries = [each for each in replaced if each.is_remade or not each.is_direct]
    if not lines and any(each.is_compiled for each in of_libraries):
        yield "  fastload.compile(dataset), for a library that makes the loader itself"


def _gain(before_s: float, after_s: float) -> Iterator[str]:
    ratio = before_s / max(after_s, 1e-9)
    if ratio >= _LEAST_GAIN:
        before, after = format_duration(before_s), format_duration(after_s)
        yield f"    a batch takes {after} of CPU time instead of {before}: {ratio:.1f} times faster"
    elif ratio < 1 / _LEAST_GAIN:
        before, after = format_duration(before_s), format_duration(after_s)
        yield f"    a batch takes {after} of CPU time instead of {before}: compile=False leaves it as it was"


def _speed(each: ReplacedLoader) -> str:
    times = each.times
    if times is None or not times.samples_per_s:
        return ""
    workers = format_count(times.num_workers, "worker") if times.num_workers else "no workers"
    waiting = f"{times.waiting_share:.0%} of the time waiting for data"
    rate = times.samples_per_s
    return f", {rate:{',.0f' if rate >= 10 else '.2g'}} samples/s with {workers}, {waiting}"

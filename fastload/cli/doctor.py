"""`fastload doctor PATH`: find what limits a training run, or the loading of a dataset."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fastload.cli.diagnosis import page_of, sections_of, text_of
from fastload.cli.output import lines_of, note, show, show_json
from fastload.cli.parser import Parser, add_script_arguments, whole_number
from fastload.errors import OptionError
from fastload.system.cpus import local_rank
from fastload.system.signals import unwinding
from fastload.system.units import aligned

if TYPE_CHECKING:
    from fastload.doctor.examine import Examination
    from fastload.doctor.findings import StepTrial
    from fastload.doctor.judging.ranks import RankComparison
    from fastload.system.script import Ending, Script

HELP = "find what limits a training run, and what would help: 'doctor train.py', 'doctor photos/'"

EXIT_CODES = {
    "2": "nothing was done: an option or a path is invalid",
    "3": "data is damaged, or a server fails",
    "130": "interrupted (Ctrl-C)",
    "else": "for a script: its own exit code",
}

EXIT_INTERRUPTED = 130

# A thousand steps of 60 ms.
_WATCHED_S = 60.0

# Of further loaders only the headline is printed; --json has everything.
_MOST_COMPLETE = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    _add_options(parser)
    add_script_arguments(
        parser,
        "a training script; or images, as 'fastload pack' takes them; or a packed dataset or its URL",
        "the script's own arguments; for a script, the doctor's come before PATH",
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    json_help = "print the result as JSON; what a script prints goes to standard error"
    seconds_help = f"end the script S seconds after its first step (default: {_WATCHED_S:.0f})"
    trials_help = "measure each trial of the training step for S seconds at most; 0: try none (default: 20)"
    html_help = "write the report to FILE as an HTML page, too"
    parser.add_argument("--json", action="store_true", help=json_help)
    parser.add_argument("--steps", type=whole_number, metavar="N", help="end the script after N batches")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help=seconds_help)
    parser.add_argument("--whole", action="store_true", help="let the script run to its end")
    parser.add_argument("--step", action="store_true", help="try changes of the step, whatever the limit is")
    parser.add_argument("--trial-seconds", type=float, default=20.0, metavar="S", help=trials_help)
    parser.add_argument("--html", type=Path, metavar="FILE", help=html_help)
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Examine, print the findings, and return the script's own exit code."""
    from fastload.bench.conditions import identified
    from fastload.shards.remote import is_url
    from fastload.shards.remote_errors import shown
    from fastload.system.script import run_script

    path = options.path if is_url(options.path) else os.path.expanduser(options.path)
    is_file = path.endswith(".py") and not os.path.isdir(path) and not is_url(path)
    is_command = not os.path.exists(path) and shutil.which(path) is not None
    is_script = options.is_module or is_file or is_command
    if not is_script:
        _parse_rest(path, options)
    options.conditions = identified() if options.json or options.html else {}
    with unwinding():
        if is_script:
            return run_script(_around_script(path, options))
        from fastload.doctor.folder import examine_data  # with torch, which may take seconds

        parts = examine_data(path, lambda: _announce_trials(options))
        _print_result(f"How fast does {shown(path)} load?", parts, options, ())
        return 0


def _parse_rest(path: str, options: argparse.Namespace) -> None:
    """Parse the options after the path of data; raise OptionError for anything else."""
    parser = Parser(prog="fastload doctor", add_help=False)
    _add_options(parser)
    parser.add_argument("--debug", action="store_true")
    _, rest = parser.parse_known_args(options.arguments, options)
    if rest:
        raise OptionError(f"only a script takes arguments, got {' '.join(rest)} after {path}")
    if options.steps or options.seconds:
        raise OptionError(f"--steps and --seconds are for scripts, and {path} is not one")


def _around_script(path: str, options: argparse.Namespace) -> Generator[Script, Ending, int]:
    """Yield the script, to be run while it is watched; return its exit code after the report."""
    # Importing torch may take seconds.
    from fastload.doctor.examine import examine_script
    from fastload.doctor.rerunning.runs import ScriptRuns
    from fastload.system.script import find, output_to_stderr

    script = find(path, options.is_module, options.arguments)
    seconds = options.seconds or (None if options.whole or options.steps else _WATCHED_S)
    if not options.quiet and local_rank() == 0:
        _announce(path, options, seconds)
    words, trial_s = shlex.split(script.command), options.trial_seconds
    runs = ScriptRuns(words, trial_s, _announced_trial(options), options.step) if trial_s > 0 else None
    with output_to_stderr(options.json):
        found = yield from examine_script(
            script, options.steps, seconds, lambda: _announce_trials(options), runs
        )
        if found.ending.error is not None:
            print_error(found.ending.error, script.code.co_filename)
    if found.rank == 0:
        title = f"What limits {Path(path).name}?"
        _print_result(title, found.examinations, options, found.notes, found.ranks, found.ending.error)
    return script_exit_code(found.ending)


def _announce(path: str, options: argparse.Namespace, seconds: float | None) -> None:
    until = "to its end" if options.whole else f"for {options.steps} batches"
    until = until if seconds is None else f"for {seconds:g} s after its first step (--whole: to its end)"
    note(f"fastload doctor watches {Path(path).name} {until}; Ctrl-C ends it sooner, with a report")


def _announced_trial(options: argparse.Namespace) -> Callable[[str, StepTrial | None], None]:
    """Return a function that tells of each trial of the step, at its beginning and at its end."""
    number = 0

    def announce(name: str, trial: StepTrial | None) -> None:
        nonlocal number
        if options.quiet:
            return
        if trial is None:
            number += 1
            note(f"trial {number}: running the script {name}")
        elif trial.failure:
            note(f"trial {number}: failed, because {trial.failure}")

    return announce


def _announce_trials(options: argparse.Namespace) -> None:
    if not options.quiet and not options.json:
        note("trying changes on your data; Ctrl-C skips what is left of them")


def _print_result(
    title: str,
    parts: Sequence[Examination],
    options: argparse.Namespace,
    notes: tuple[str, ...],
    ranks: RankComparison | None = None,
    error: BaseException | None = None,
) -> None:
    from fastload.doctor.judging.ranks import rank_rows

    if options.json:
        is_failure = error is not None and not isinstance(error, SystemExit)
        content = {
            "examined": title,
            **options.conditions,
            "error": "".join(traceback.format_exception(error)) if is_failure else None,
            "verdict": parts[0].diagnosis.verdict if parts else None,
            "notes": notes,
            "parts": [
                {"name": part.name, **asdict(part.diagnosis), "measurements": asdict(part.measured)}
                for part in parts
            ],
        }
        if ranks is not None:
            content["ranks"] = {**asdict(ranks), "headline": ranks.headline, "evidence": ranks.evidence}
        show_json(content)
        return
    found = [(_part_name(parts, index), part) for index, part in enumerate(parts)]
    show("", title)
    if ranks is not None:
        show("", ranks.headline, "", *aligned(rank_rows(ranks)), "", *ranks.evidence)
    for index, (name, part) in enumerate(found):
        show(*["", f"{name}:"] if name else [])
        complete = text_of(sections_of(part.diagnosis, part.measured))
        show(*complete if index < _MOST_COMPLETE else ["", part.diagnosis.headline])
    for text in notes:
        show("", *lines_of(text))
    if options.html is not None:
        page = page_of(
            title,
            [(name, sections_of(part.diagnosis, part.measured)) for name, part in found],
            options.conditions,
        )
        options.html.write_text(page, encoding="utf-8")


def _part_name(parts: Sequence[Examination], index: int) -> str:
    """Return the name of one of several loaders."""
    if len(parts) == 1:
        return ""
    return f"{parts[index].name}{'' if index else ', the main loader'}"


def print_error(error: BaseException, file: str) -> None:
    """Print an exception, or call the script's `sys.excepthook`, as Python would have done.

    The frames that led to the script are left out.
    """
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            note(*lines_of(str(error.code)))
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    error = error.with_traceback(trace or error.__traceback__)
    if sys.excepthook is not sys.__excepthook__:
        try:
            sys.excepthook(type(error), error, error.__traceback__)
            return
        except Exception as failure:
            note("Error in sys.excepthook:", *_trace_lines(failure), "", "Original exception was:")
    note(*_trace_lines(error))


def _trace_lines(error: BaseException) -> list[str]:
    return lines_of("".join(traceback.format_exception(error)))


def script_exit_code(ending: Ending) -> int:
    """Return the exit code that Python would have given to a script that ended in this way."""
    error = ending.error
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1

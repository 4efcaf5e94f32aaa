"""`fastload doctor PATH`: what holds a training, or the data before it, back, and what to do."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.cli.console import console
from fastload.cli.progress import ProgressDisplay
from fastload.errors import OptionError

if TYPE_CHECKING:
    from fastload.doctor.script import Ending
    from fastload.loader.diagnosis.findings import Diagnosis

    Part = tuple[str, Diagnosis, Any]

HELP = "find out what holds a training back, and what to do: 'doctor train.py', 'doctor photos/'"

EXIT_INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--html", metavar="FILE", help="write a page with plots")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as JSON; what a script prints goes to standard error",
    )
    parser.add_argument("--steps", type=_positive, metavar="N", help="end the script after so many batches")
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="end the script so many seconds after its first batch"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "path",
        metavar="PATH",
        help="a training script; or images, as 'fastload pack' takes them; or a packed dataset",
    )
    own = parser.add_argument(
        "arguments",
        metavar="…",
        nargs=argparse.REMAINDER,
        help="the script's own arguments; the doctor's come before PATH",
    )
    own.required = False  # argparse says so only from Python 3.13 on


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Examines, prints what was found, and ends as the script ended."""
    if options.html:
        _check_writable(options.html)
        # Now: the script may change the working directory.
        options.html = os.path.abspath(options.html)
    path = Path(os.path.expanduser(options.path))
    if path.suffix == ".py" and not path.is_dir():
        return _run_script(path, options)
    if options.arguments:
        raise OptionError(
            f"only a script takes arguments, got {' '.join(options.arguments)} after {path}: "
            "options of the doctor come before the path"
        )
    if options.steps or options.seconds:
        raise OptionError(f"--steps and --seconds are for scripts, and {path} is none")
    return _run_data(path, options)


def _run_script(path: Path, options: argparse.Namespace) -> int:
    # Importing torch takes seconds on a slow machine: not before it is needed.
    from fastload.doctor.examine import examine_script
    from fastload.doctor.script import local_rank, output_to_stderr

    with output_to_stderr(options.json):
        found = examine_script(path, options.arguments, options.steps, options.seconds)
        if found.ending.error is not None and not found.was_cut:
            _print_error(found.ending.error, path)
    parts: list[Part] = [(one.name, one.diagnosis, one.measured) for one in found.examinations]
    # Of several ranks on a machine, one speaks.
    if local_rank() == 0:
        _tell(f"What holds {path.name} back?", parts, options, found.notes)
    return 0 if found.was_cut else _exit_code(found.ending)


def _run_data(path: Path, options: argparse.Namespace) -> int:
    from fastload.doctor.folder import examine_data
    from fastload.loader.diagnosis.data import of_data

    with ProgressDisplay("examining", "steps", options.quiet or options.json) as display:
        measured = examine_data(path, lambda label, done, total: display.update(done, total, f"  {label}"))
    parts: list[Part] = [(one.name, of_data(one), one) for one in measured]
    _tell(f"What can {path} feed?", parts, options, ())
    return 0


def _tell(title: str, parts: list[Part], options: argparse.Namespace, notes: tuple[str, ...]) -> None:
    from fastload.cli.report.diagnosis import diagnosis_document, diagnosis_json
    from fastload.cli.report.html import to_html

    if options.html:
        document = diagnosis_document(title, parts, notes)
        Path(options.html).write_text(to_html(document), encoding="utf-8")
    if options.json:
        print(_without_infinities(diagnosis_json(title, parts)))
    else:
        _print(title, parts, notes)
    if options.html:
        print(f"wrote {options.html}", file=sys.stderr)


def _without_infinities(text: str) -> str:
    """JSON that any program reads: what has no bound, or no value, is null in it."""
    content = json.loads(text, parse_constant=lambda name: None)
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


def _print(title: str, parts: list[Part], notes: tuple[str, ...]) -> None:
    if sys.stdout.isatty():
        from rich.text import Text

        console().print(Text(f"\n{title}", style="bold underline"))
    else:
        print(f"\n{title}")
    if not parts:
        print("\nNo loader gave a batch, so there is nothing to say.")
    for place, (name, diagnosis, _) in enumerate(parts):
        if len(parts) > 1:
            print(f"\n{name}{'' if place else ', on which most time was spent'}:")
        print(f"\n{diagnosis}")
    for note in notes:
        print(f"\n{note}")


def _print_error(error: BaseException, path: Path) -> None:
    """Prints an exception as Python would have, without the frames that led to the script."""
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != str(path):
        place = place.tb_next
    traceback.print_exception(type(error), error, place or error.__traceback__)


def _exit_code(ending: Ending) -> int:
    error = ending.error
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _check_writable(file: str) -> None:
    """Says so before the measuring rather than after it."""
    folder = Path(file).parent
    if Path(file).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OptionError(f"--html must name a file in a folder that can be written to, got {file}")

"""`fastload doctor PATH`: find out what holds a training, or the data before it, back."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.cli._progress import ProgressDisplay
from fastload.errors import OptionError

if TYPE_CHECKING:
    from fastload.doctor.findings import Diagnosis
    from fastload.doctor.script import Ending
    from fastload.doctor.try_fix import Attempt

    Part = tuple[str, Diagnosis, Any]

HELP = "find out what holds a training back, and what to do: 'doctor train.py', 'doctor photos/'"

EXIT_INTERRUPTED = 130

# Of further loaders only the verdict is printed; --json and --html have everything.
_MOST_WHOLE = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--html", metavar="FILE", help="write a page with plots")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as JSON; what a script prints goes to standard error",
    )
    parser.add_argument("--steps", type=_positive, metavar="N", help="end the script after so many batches")
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="end the script so many seconds after its first step"
    )
    parser.add_argument(
        "--try",
        action="store_true",
        dest="tries",
        help="run the script again with the first fix that needs no change of its code, for comparison",
    )
    parser.add_argument(
        "-m", action="store_true", dest="is_module", help="PATH is a module, as in 'python -m PATH'"
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
    """Examine, print what was found, and return the script's own exit code."""
    if options.html:
        _check_writable(options.html)
        # Now: the script may change the working directory.
        options.html = os.path.abspath(options.html)
    path = Path(os.path.expanduser(options.path))
    if options.is_module or (path.suffix == ".py" and not path.is_dir()):
        return _run_script(str(path) if not options.is_module else options.path, options)
    if options.arguments:
        raise OptionError(
            f"only a script takes arguments, got {' '.join(options.arguments)} after {path}: options of the "
            "doctor come before the path"
        )
    if options.steps or options.seconds or options.tries:
        raise OptionError(f"--steps, --seconds and --try are for scripts, and {path} is none")
    return _run_data(path, options)


def _run_script(path: str, options: argparse.Namespace) -> int:
    # Importing torch takes seconds on a slow machine: not before it is needed.
    from fastload.doctor.examine import examine_script
    from fastload.doctor.script import find_module, find_script, local_rank, output_to_stderr
    from fastload.doctor.try_fix import try_first_fix

    # The script may change it; the second run begins where the first one did.
    folder = os.getcwd()
    if options.is_module:
        script = find_module(path, options.arguments)
    else:
        script = find_script(Path(path), options.arguments)
    tried = None

    def announce() -> None:
        if not options.quiet and not options.json:
            print("trying changes on your data, for some ten seconds", file=sys.stderr)

    with output_to_stderr(options.json):
        found = examine_script(script, options.steps, options.seconds, announce)
        if found.ending.error is not None and not found.was_cut:
            _print_error(found.ending.error, script.code.co_filename)
        if options.tries and not local_rank():
            os.chdir(folder)
            tried = try_first_fix(found, path, options.is_module, options.arguments)
    parts: list[Part] = [(one.name, one.diagnosis, one.measured) for one in found.examinations]
    # Only one of several ranks on a machine reports.
    if local_rank() == 0:
        _print_result(f"What holds {Path(path).name} back?", parts, options, found.notes, tried)
    return 0 if found.was_cut else _exit_code(found.ending)


def _run_data(path: Path, options: argparse.Namespace) -> int:
    from fastload.doctor.folder import diagnose_data, examine_data

    with ProgressDisplay("examining", "steps", options.quiet or options.json) as display:
        measured = examine_data(path, lambda label, done, total: display.update(done, total, f"  {label}"))
    parts: list[Part] = [(one.name, diagnose_data(one), one) for one in measured]
    _print_result(f"What can {path} feed?", parts, options, ())
    return 0


def _print_result(
    title: str,
    parts: list[Part],
    options: argparse.Namespace,
    notes: tuple[str, ...],
    tried: Attempt | str | None = None,
) -> None:
    from fastload.cli.report._diagnosis import diagnosis_document, diagnosis_json
    from fastload.cli.report._html import to_html

    footer = notes if tried is None else (*notes, str(tried))
    if options.html:
        document = diagnosis_document(title, parts, footer)
        Path(options.html).write_text(to_html(document), encoding="utf-8")
    if options.json:
        print(diagnosis_json(title, parts, notes, tried), end="")
    else:
        _print(title, parts, footer)
    if options.html:
        print(f"wrote {options.html}", file=sys.stderr)


def _print(title: str, parts: list[Part], notes: tuple[str, ...]) -> None:
    print(f"\n{title}")
    if not parts:
        print("\nNo loader gave a batch, so there is nothing to judge.")
    for place, (name, diagnosis, _) in enumerate(parts):
        if len(parts) > 1:
            print(f"\n{name}{'' if place else ', the main loader'}:")
        print(f"\n{diagnosis if place < _MOST_WHOLE else diagnosis.headline}")
    for note in notes:
        print(f"\n{note}")


def _print_error(error: BaseException, file: str) -> None:
    """Print an exception as Python would have, without the frames that led to the script."""
    from fastload.doctor.script import HardExit

    if isinstance(error, (SystemExit, HardExit)):
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != file:
        place = place.tb_next
    traceback.print_exception(type(error), error, place or error.__traceback__)


def _exit_code(ending: Ending) -> int:
    from fastload.doctor.script import HardExit

    error = ending.error
    if error is None:
        return 0
    if isinstance(error, (SystemExit, HardExit)):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _check_writable(file: str) -> None:
    """Refuse a file that cannot be written before measuring rather than after."""
    folder = Path(file).parent
    if Path(file).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OptionError(f"--html must name a file in a folder that can be written to, got {file}")

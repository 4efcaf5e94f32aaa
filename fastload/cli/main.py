"""`fastload COMMAND …`: parse, run the command, turn errors into one sentence and an exit code."""

from __future__ import annotations

import argparse
import io
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence

from fastload import errors
from fastload._version import __version__
from fastload.cli import (
    bench,
    cache,
    demo,
    doctor,
    info,
    merge,
    pack,
    preview,
    run,
    unpack,
    verify,
)
from fastload.cli.output import lines_of, note
from fastload.cli.parser import Parser
from fastload.system import signals

EXIT_USAGE = 2
EXIT_FAILED = 3
EXIT_INTERRUPTED = 130

_EXIT_CODES = {
    "0": "success",
    "1": "finished, but files were skipped, left out or damaged; 'fastload COMMAND --help' says which",
    "2": "nothing was done: an option or a path is invalid",
    "3": "stopped halfway: data is damaged, a disk is full, a server fails, or a process died",
    "130": "interrupted (Ctrl-C)",
}

_STOPPED_HALFWAY = (
    errors.PackError,
    errors.DamageError,
    errors.DecodeError,
    errors.AccessError,
    errors.RemoteError,
)
_COMMANDS = (pack, merge, info, preview, verify, unpack, doctor, run, cache, bench, demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `fastload`; None for those of this process.

    Returns:
        The exit code, as listed by `fastload --help`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals that lack a character
    options = command_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (KeyboardInterrupt, Exception) as error:
        interrupt = _interrupt_of(error)
        if isinstance(error, Exception) and interrupt is None:
            return _failed(options, error)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the next one ends this process without a traceback
        signals.kill_daemons()  # Python would wait for stopped ones
        step = str(interrupt) or "the same command starts over"
        return _report(options, f"interrupted: {step}", EXIT_INTERRUPTED)


def _interrupt_of(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return Ctrl-C if an error is that, or was raised while it was handled.

    torch raises RuntimeError for workers that Ctrl-C has ended.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def _failed(options: argparse.Namespace, error: Exception) -> int:
    if isinstance(error, BrokenPipeError):
        sys.stderr.close()  # the reader of our output has gone: print nothing more
        return EXIT_FAILED
    if isinstance(error, errors.FastloadError):
        code = EXIT_FAILED if isinstance(error, _STOPPED_HALFWAY) else EXIT_USAGE
        return _report(options, str(error), code)
    message = f"unexpected {type(error).__name__}: {error}; --debug shows where"
    if isinstance(error, ImportError):
        hint = f"install fastload with its dependencies ({errors.HOW_TO_INSTALL})"
        message = f"a library cannot be imported: {error}: {hint}"
    return _report(options, message, EXIT_FAILED)


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of `fastload` with all its commands."""
    parser = Parser(
        prog="fastload",
        description="Pack images into shards that load fast, check and unpack them, diagnose training.",
        epilog=_exit_codes(_EXIT_CODES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastload {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _COMMANDS:
        command = commands.add_parser(
            module.__name__.rpartition(".")[2],
            help=module.HELP,
            description=module.HELP,
            epilog=_exit_codes({"0": "success", **module.EXIT_CODES}),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        command.set_defaults(run=module.run)
    return parser


def _exit_codes(meanings: Mapping[str, str]) -> str:
    return "\n".join(["exit codes:", *(f"  {code:<4} {meaning}" for code, meaning in meanings.items())])


def _report(options: argparse.Namespace, message: str, code: int) -> int:
    if options.debug:
        note(*lines_of(traceback.format_exc()))
    note(f"fastload: {message}")
    return code

"""`fastload COMMAND …`: parse, run the command, turn errors into one sentence and an exit code."""

from __future__ import annotations

import argparse
import io
import signal
import sys
import traceback
from collections.abc import Sequence

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

_EXIT_CODES = """\
exit codes:
  0    success
  1    finished, but files were skipped, kept or left out, or damage was found
  2    nothing was done: an option, the source or the destination is invalid
  3    stopped halfway: the disk is full, data is damaged, a server fails, or a process died
  130  interrupted (Ctrl-C); run the same command again to resume packing
"""

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
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the next one ends this process without a traceback
        signals.kill_daemons()  # Python would wait for stopped ones
        message = "interrupted: the same command resumes packing, and restarts anything else"
        return _report(options, message, EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone: print nothing more
        return EXIT_FAILED
    except errors.FastloadError as error:
        code = EXIT_FAILED if isinstance(error, _STOPPED_HALFWAY) else EXIT_USAGE
        return _report(options, str(error), code)
    except ImportError as error:
        hint = f"install fastload with its dependencies ({errors.HOW_TO_INSTALL})"
        return _report(options, f"a library cannot be imported: {error}: {hint}", EXIT_FAILED)
    except Exception as error:
        message = f"unexpected {type(error).__name__}: {error}; --debug shows where"
        return _report(options, message, EXIT_FAILED)


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of `fastload` with all its commands."""
    parser = Parser(
        prog="fastload",
        description="Pack images into shards that load fast, check and unpack them, diagnose training.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastload {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _COMMANDS:
        command = commands.add_parser(
            module.__name__.rpartition(".")[2],
            help=module.HELP,
            description=module.HELP,
            epilog=_EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        command.set_defaults(run=module.run)
    return parser


def _report(options: argparse.Namespace, message: str, code: int) -> int:
    if options.debug:
        note(*lines_of(traceback.format_exc()))
    note(f"fastload: {message}")
    return code

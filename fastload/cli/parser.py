"""Parser of the command line, with suggestions for mistyped words, and checks of option values."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NoReturn

from fastload.cli.output import note
from fastload.images.encoding_names import ENCODING_NAMES

ENCODE_NAMES = ("auto", *ENCODING_NAMES)
"""The values of `--encode`."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that suggests the command, option or value most similar to an unknown one."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        # argparse has suggestions from Python 3.14 on, but none for options.
        if action.choices is not None and value not in action.choices:
            allowed = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action, f"must be one of {', '.join(allowed)}, got {value!r}{suggestion(str(value), allowed)}"
            )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; an unknown option is an error of the command that got it."""
        self._words = sys.argv[1:] if args is None else list(args)
        parsed, rest = super().parse_known_args(args, namespace)
        self._refuse_unknown(rest)
        # argparse ends a list of words at the first option.
        for action in self._actions:
            if action.nargs == "*" and not action.option_strings:
                getattr(parsed, action.dest).extend(rest)
                rest = []
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """End the program with one sentence; if an argument is missing, an unknown option is likelier."""
        if message.startswith("the following arguments are required"):
            words, self._words = self._words, []
            self._refuse_unknown(words)
            if any(isinstance(action.choices, dict) for action in self._actions):  # its commands
                self.print_help(sys.stderr)
                self.exit(2)
        # A word of the command line may be a file's name, which a shell put in the place of `*`.
        note(f"{self.prog}: {message} ('{self.prog} --help' shows the usage)")
        self.exit(2)

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        known = [option for action in self._actions for option in action.option_strings]
        for word in words:
            name = word.partition("=")[0]
            if name.strip("-") and name.startswith("-") and not any(map(str.startswith, known, repeat(name))):
                self.error(f"unknown option {name}{suggestion(name, known)}")


def add_script_arguments(parser: argparse.ArgumentParser, path: str, arguments: str) -> None:
    """Add the arguments PATH, of a script or a module, and what comes after it, with their help."""
    module_help = "PATH is a module, as in 'python -m PATH'"
    parser.add_argument("-m", action="store_true", dest="is_module", help=module_help)
    parser.add_argument("path", metavar="PATH", help=path)
    rest = parser.add_argument("arguments", metavar="…", nargs=argparse.REMAINDER, help=arguments)
    rest.required = False  # argparse does so itself only from Python 3.13 on


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `: did you mean …?` with the most similar known word; "" if there is none."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f": did you mean {close[0]!r}?" if close else ""


def whole_number(text: str) -> int:
    """Return an option's whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more, got {text!r}")
    return int(text)

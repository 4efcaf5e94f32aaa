"""The parser of the command line, which says what may have been meant."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that suggests the command, option or value that is most like an unknown one."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse's own suggestions begin with Python 3.14, and not for options.
        if action.choices is not None and value not in action.choices:
            allowed = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action, f"must be one of {', '.join(allowed)}, got {value!r}{suggestion(value, allowed)}"
            )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses as ever; an unknown option is an error of the command that it was given to."""
        self._words = sys.argv[1:] if args is None else list(args)
        found, rest = super().parse_known_args(args, namespace)
        self._refuse_unknown(rest)
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Ends the program; where something is missing, an unknown option is more likely the mistake."""
        if message.startswith("the following arguments are required"):
            words, self._words = self._words, []
            self._refuse_unknown(words)
        super().error(message)

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        known = [option for action in self._actions for option in action.option_strings]
        for word in words:
            name = word.partition("=")[0]
            if name.strip("-") and name.startswith("-") and not any(map(str.startswith, known, repeat(name))):
                self.error(f"unknown option {name}{suggestion(name, known)}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The question whether a known word was meant; empty where none is like it."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f": did you mean {close[0]!r}?" if close else ""

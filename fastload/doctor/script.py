"""Running the user's own script, as Python itself would, and watching its loaders meanwhile."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastload.errors import OptionError


@dataclass(frozen=True, slots=True)
class Ending:
    """How a script ended.

    Attributes:
        error: The exception that ended it; None where it came to its end.
    """

    error: BaseException | None

    @property
    def text(self) -> str:
        """The exception in a line; "" for none, and for an exit that says that all is well."""
        if self.error is None or isinstance(self.error, SystemExit):
            code = getattr(self.error, "code", None)
            return "" if code in (None, 0) else f"exit code {code}."
        lines = [line.strip() for line in str(self.error).splitlines() if line.strip()]
        # Of a worker's exception, torch gives the whole traceback: what it says comes last.
        told = lines[-1] if lines and lines[0].startswith("Caught ") else (lines or [""])[0]
        name = type(self.error).__name__
        # torch's begin with the name already.
        return f"{name}: {told[:300]}" if told and not told.startswith(name) else told[:300] or name


def run_script(path: Path, arguments: Sequence[str]) -> Ending:
    """Runs a script in this process, as `python PATH ARGUMENTS` would.

    Its folder comes first in `sys.path`, it is `__main__`, and `sys.argv` is its own. It stays `__main__`
    afterwards: what it defined must still be found by whoever unpickles it.

    Raises:
        OptionError: The script cannot be read or compiled.
    """
    try:
        with io.open_code(str(path)) as file:
            code = compile(file.read(), str(path), "exec")
    except OSError as error:
        raise OptionError(f"{path}: the script must be readable: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise OptionError(f"{path}: the script must be Python: {error}") from error
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=builtins)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    sys.path[0] = str(path.resolve().parent)
    try:
        exec(code, main.__dict__)
    except BaseException as error:
        return Ending(error)
    return Ending(None)


@contextlib.contextmanager
def output_to_stderr(is_wanted: bool) -> Iterator[None]:
    """Sends what this process and its children print to standard error, if that is wanted."""
    if not is_wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def local_rank() -> int:
    """The rank of this process on its machine, as torchrun says it; 0 for a process alone."""
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdigit() else 0

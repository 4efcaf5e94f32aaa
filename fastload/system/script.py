"""Execution of the user's script or module in this process, as by Python itself."""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import importlib.util
import io
import operator
import os
import re
import shlex
import shutil
import site
import stat
import subprocess
import sys
import sysconfig
import threading
import traceback
import types
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from multiprocessing.process import BaseProcess
from typing import Any

from fastload.errors import OptionError
from fastload.system.patching import patched
from fastload.system.signals import Terminated

LIBRARY_FOLDERS = tuple(
    os.path.join(folder, "")
    for folder in {
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    }
)
"""Each ends with a separator. A file in one of them belongs to a library, wherever the user's script is."""

_PYTHON = re.compile(r"python[\d.]*")


@dataclass(frozen=True, slots=True)
class Ending:
    """The exception that ended a script, if any, and the programs and processes that it started.

    A call of `os._exit` counts as a SystemExit, with `is_hard`.
    """

    error: BaseException | None
    children: tuple[str, ...] = ()
    is_hard: bool = False

    @property
    def text(self) -> str:
        """The exception in one line; "" for none, and for an exit with status 0."""
        if self.error is None or isinstance(self.error, SystemExit):
            code = getattr(self.error, "code", None)
            return "" if code in (None, 0) else f"os._exit({code})" if self.is_hard else f"exit code {code}"
        name, lines = type(self.error).__name__, str(self.error).strip().splitlines() or [""]
        # torch passes on the whole traceback of a worker's exception, whose last line is name and message.
        text = lines[-1] if lines[0].startswith("Caught ") else f"{name}: {lines[0]}".rstrip(": ")
        return text.strip()[:300]


@dataclass(frozen=True, slots=True)
class Script:
    """A compiled script or module, its `sys.argv` and `sys.path[0]`, and the names in its `__main__`."""

    code: types.CodeType
    argv: list[str]
    folder: str
    names: dict[str, object]

    @property
    def command(self) -> str:
        """The words for a shell that come after `python`."""
        spec = self.names.get("__spec__")
        if isinstance(spec, ModuleSpec):
            return shlex.join(["-m", spec.name.removesuffix(".__main__"), *self.argv[1:]])
        return shlex.join(self.argv)


def find(path: str, is_module: bool, arguments: Sequence[str]) -> Script:
    """Find the code that `python PATH ARGUMENTS` or `python -m PATH ARGUMENTS` would run.

    PATH may be `python` itself, or the name of a command that is a Python script, such as `yolo`. Raises
    OptionError if there is no such code.
    """
    is_python = _PYTHON.fullmatch(path) and not os.path.exists(path)
    if is_python and arguments and len(arguments) > (arguments[0] == "-m"):
        is_module = arguments[0] == "-m"
        path, arguments = arguments[is_module], arguments[is_module + 1 :]
    if is_module:
        return _find_module(path, arguments)
    if os.path.basename(path) == path and not os.path.isfile(path):
        # A command that pip installed, such as yolo; beside this Python if its environment is not activated.
        path = shutil.which(path) or shutil.which(path, path=os.path.dirname(sys.executable)) or path
    file = os.path.abspath(path)
    if os.path.exists(file) and stat.S_ISCHR(os.stat(file).st_mode):  # /dev/zero never ends
        raise OptionError(f"{path}: the script must be a file, got a device: check its path")
    try:
        with io.open_code(file) as source:
            # Without this module's `from __future__ import annotations`.
            code = compile(source.read(), file, "exec", dont_inherit=True)
    except OSError as error:
        raise OptionError(
            f"{path}: the script must be readable, got {error.strerror}: check its path"
        ) from error
    except (SyntaxError, ValueError) as error:
        raise OptionError(f"{path}: the script must be Python: {error}") from error
    names: dict[str, object] = {"__file__": file, "__cached__": None}
    names["__loader__"] = importlib.machinery.SourceFileLoader("__main__", file)
    return Script(code, [path, *arguments], os.path.dirname(os.path.realpath(path)), names)


def _find_module(name: str, arguments: Sequence[str]) -> Script:
    # With -m, Python puts the working directory there.
    sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        code = spec.loader.get_code(spec.name) if spec is not None and spec.loader is not None else None  # type: ignore[attr-defined]
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise OptionError(f"-m {name}: the module must be importable: {error}") from error
    if spec is None or code is None:
        raise OptionError(f"-m {name}: there must be a module of this name that Python can run")
    names: dict[str, object] = {"__file__": spec.origin, "__cached__": spec.cached, "__loader__": spec.loader}
    names |= {"__spec__": spec, "__package__": spec.parent}
    return Script(code, [str(spec.origin), *arguments], os.getcwd(), names)


def run_script(caller: Generator[Script, Ending, int]) -> int:
    """Run the script that a generator yields, send back its ending, and return the generator's exit code.

    The script stays `__main__`, so that its classes can be pickled. If it calls `os._exit` in this thread,
    the generator is finished within that call, which then ends the process: no `except` or `finally` of the
    script is reached, and no thread is waited for. Child processes and other threads exit at once.
    """
    with contextlib.closing(caller), contextlib.ExitStack() as patches:
        script = next(caller)
        main = types.ModuleType("__main__")
        main.__dict__.update(
            {"__builtins__": builtins, "__spec__": None, "__package__": None, **script.names}
        )
        sys.modules["__main__"] = main
        sys.argv = script.argv
        sys.path[0] = script.folder
        children = patches.enter_context(_noting_children())
        exit_now, process, thread = os._exit, os.getpid(), threading.get_ident()

        def hard_exit(status: int) -> None:
            code = operator.index(status)
            if os.getpid() != process or threading.get_ident() != thread:
                exit_now(code)
            patches.close()
            try:
                code = _finished(caller, Ending(SystemExit(code), tuple(children), is_hard=True))
            except BaseException:  # the script must neither see it nor go on
                traceback.print_exc()
                code = 1
            finally:
                for stream in (sys.stdout, sys.stderr):
                    with contextlib.suppress(Exception):  # the script may have closed it
                        stream.flush()
                exit_now(code)

        patches.enter_context(patched((os, "_exit", hard_exit)))
        error: BaseException | None = None
        try:
            exec(script.code, main.__dict__)
        except Terminated:
            raise
        except BaseException as raised:
            error = raised
        patches.close()
        return _finished(caller, Ending(error, tuple(children)))


def _finished(caller: Generator[Script, Ending, int], ending: Ending) -> int:
    try:
        caller.send(ending)
    except StopIteration as finished:
        return int(finished.value)
    raise RuntimeError("run_script must get a generator that yields one script")


@contextlib.contextmanager
def _noting_children() -> Iterator[list[str]]:
    """Record the programs and processes that the script starts, except daemons, which are workers."""
    children: list[str] = []
    popen, start, process = subprocess.Popen.__init__, BaseProcess.start, os.getpid()

    def noted_popen(self: subprocess.Popen[bytes], args: Any, *rest: Any, **options: Any) -> None:
        if os.getpid() == process:
            parts = [args] if isinstance(args, (str, bytes, os.PathLike)) else args
            children.append(" ".join(os.fsdecode(part) for part in parts))
        popen(self, args, *rest, **options)

    def noted_start(self: BaseProcess) -> None:
        if os.getpid() == process and not self.daemon:
            function = getattr(self, "_target", None)
            # torch.multiprocessing.spawn passes the user's function to one of its own.
            if getattr(function, "__module__", "").startswith("torch."):
                function = next(iter(getattr(self, "_args", ())), function)
            children.append(f"{getattr(function, '__name__', type(self).__name__)}() in {self.name}")
        start(self)

    with patched((subprocess.Popen, "__init__", noted_popen), (BaseProcess, "start", noted_start)):
        yield children


@contextlib.contextmanager
def output_to_stderr(is_wanted: bool) -> Iterator[None]:
    """Send the output of this process and its children to standard error if `is_wanted`."""
    if not is_wanted:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)

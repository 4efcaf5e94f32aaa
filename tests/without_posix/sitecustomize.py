"""Python as fastload finds it on Windows, if this folder is on PYTHONPATH: it lacks all that is POSIX only.

Only imports by fastload's modules are changed, because torch, h5py and Python's library do without where they
must. Processes are spawned, and open files can be neither removed nor replaced.
"""

import builtins
import contextlib
import errno
import multiprocessing
import os
import shutil
import sys
import types
from typing import Any

# Documented as "Availability: Unix", or as missing on Windows.
MISSING_MODULES = frozenset({"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"})
MISSING: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "os": "MFD_CLOEXEC O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK POSIX_FADV_DONTNEED POSIX_FADV_RANDOM "
        "POSIX_FADV_WILLNEED WNOHANG fork forkpty fstatvfs geteuid getgid getloadavg getpgid getuid killpg "
        "memfd_create mkfifo nice posix_fadvise posix_fallocate posix_spawn pread preadv pwrite "
        "register_at_fork sched_getaffinity sched_setaffinity sendfile setsid statvfs sysconf uname wait",
        "signal": "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 pthread_kill "
        "pthread_sigmask setitimer",
        "mmap": "MADV_DONTDUMP MADV_REMOVE MAP_ANONYMOUS MAP_NORESERVE MAP_PRIVATE MAP_SHARED PROT_READ",
        "multiprocessing.reduction": "DupFd",
        "select": "poll epoll",
    }.items()
}
CHANGED: dict[str, dict[str, object]] = {
    "sys": {"platform": "win32"},
    "os": {"name": "nt"},
    "multiprocessing": {"get_all_start_methods": lambda: ["spawn"]},
}


class WithoutPosix(types.ModuleType):
    """A module of Python's library that lacks some names, and is else the same."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        missing, changed = MISSING.get(module.__name__, ()), CHANGED.get(module.__name__, {})
        held = {} if module is sys else vars(module)  # others change what sys holds
        self.__dict__.update({name: value for name, value in held.items() if name not in missing} | changed)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        if name in MISSING.get(self.__name__, ()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self.__dict__["_module"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)
        if self._module is not sys:
            self.__dict__[name] = value


_import = builtins.__import__
_replaced: dict[str, WithoutPosix] = {}


def _import_without_posix(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> Any:
    importer = (globals or {}).get("__name__", "")
    if not importer.startswith("fastload"):
        return _import(name, globals, locals, fromlist, level)
    if name in MISSING_MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    if name == "msvcrt":  # by this name, Python's library would find it, and more of Windows expect
        return _import("range_locks")
    module = _import(name, globals, locals, fromlist, level)
    if module.__name__ not in MISSING and module.__name__ not in CHANGED:
        return module
    return _replaced.setdefault(module.__name__, WithoutPosix(module))


def _refuse_if_open(action: str, *paths: object) -> None:
    """Raise PermissionError for a path that this process has open or mapped, or that holds such a file."""
    real = [os.path.realpath(os.fsdecode(path)) for path in paths if not isinstance(path, int)]
    with open("/proc/self/maps") as maps:
        opened = {line.split(None, 5)[5].strip() for line in maps if " /" in line}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            opened.add(os.readlink(f"/proc/self/fd/{number}"))
    for path in (path for path in real if not os.path.isdir(path) or action != "rmdir"):
        if any(each == path or each.startswith(path + os.sep) for each in opened):
            raise PermissionError(errno.EACCES, "The process cannot access the file, which is open", path)


def _windows_like(name: str) -> Any:
    function = getattr(os, name)

    def call(path: Any, *further: Any, **options: Any) -> Any:
        if not options.get("dir_fd"):
            _refuse_if_open(name, path, *further[:1])
            if name == "rename" and os.path.lexists(further[0]):
                raise FileExistsError(
                    errno.EEXIST, "Cannot create a file when that file already exists", path
                )
        return function(path, *further, **options)

    return call


for _name in ("unlink", "remove", "rename", "replace", "rmdir"):
    setattr(os, _name, _windows_like(_name))
shutil._use_fd_functions = False  # type: ignore[attr-defined]

builtins.__import__ = _import_without_posix
multiprocessing.set_start_method("spawn")

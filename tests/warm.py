"""Python programs without the two seconds of importing torch: forks of a process that has imported it.

    python -m tests.warm DESCRIPTOR STARTER

DESCRIPTOR: a Unix socket, from which requests come: what to run, and the descriptors of a socket for the
process's number and status and of its standard streams. STARTER: the process at whose end this one ends.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import inspect
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

# Those that programs import on first use; neither torchvision nor PIL, whose presence some decide by.
_MODULES = [
    "cv2",
    "h5py",
    "lmdb",
    "torch",
    "torch._dynamo",  # with the first optimizer
    "fastload.cli.main",
    "fastload.loader.dataloader",
]

# Variables that Python and libraries read when they start.
_READ_AT_START = ("PYTHON", "MALLOC_", "OMP_")
_ENVIRONMENT = dict(os.environ)
_TERMINATION_S = 5.0


def can_start(command: list[str], environment: Mapping[str, str]) -> bool:
    """Return True if a fork does for `python`, a path, -c or -m, and its arguments."""
    read = [
        {name: value for name, value in each.items() if name.startswith(_READ_AT_START)}
        for each in (environment, _ENVIRONMENT)
    ]
    is_plain = command[0] in ("-c", "-m") or not command[0].startswith("-")
    return sys.platform == "linux" and is_plain and read[0] == read[1]


class ForkedPython(subprocess.Popen[str]):
    """Process that runs Python with arguments; not a child of this process, which a socket tells its end."""

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments
        pipes = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        request = {
            "command": asked["args"],
            "cwd": os.fspath(asked["cwd"] or os.getcwd()),
            "environment": dict(os.environ if asked["env"] is None else asked["env"]),
            "is_leader": asked["start_new_session"],
        }
        content = json.dumps(request).encode()
        connection = _server()
        self._status, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(connection, [len(content).to_bytes(8, "little")], [theirs.fileno(), *streams])
            connection.sendall(content)
        self.pid = int.from_bytes(self._status.recv(4), "little")
        assert self.pid, "the process that forks has ended"
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in names))

    # What all methods of Popen wait by; its own would take a process that is no child for one that has ended.
    def _wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._status.settimeout(None if timeout is None else max(0.0, timeout))
            try:
                status = self._status.recv(4)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            assert status, "the process that forks has ended"
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, "little"))
            self._status.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0.0)
        return self.returncode


@functools.cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno()), str(os.getpid())]
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=root, env=_ENVIRONMENT)
    atexit.register(_end, os.getpid(), process, ours)
    return ours


def _end(owner: int, process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    if os.getpid() == owner:  # not a fork of the tests'
        connection.close()
        process.wait()


def _serve(connection: socket.socket, starter: int) -> list[str]:
    """Fork for each request; return the command in the child; exit at the end."""
    ending: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    try:
        # The socket alone does not tell the end: forks of the starter have it too, and can outlive it.
        watched_starter = os.pidfd_open(starter)
    except ProcessLookupError:
        sys.exit()
    poll.register(watched_starter, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == watched_starter:
                _end_programs(ending)
                sys.exit()
            if ready in ending:
                poll.unregister(ready)
                child, status = ending.pop(ready)
                with contextlib.suppress(BrokenPipeError):  # nobody waits for it
                    os.write(status, os.waitpid(child, 0)[1].to_bytes(4, "little"))
                os.close(status)
                os.close(ready)
                continue
            size, descriptors, _, _ = socket.recv_fds(connection, 8, 4)
            if not size:
                _end_programs(ending)
                sys.exit()
            request = json.loads(connection.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL))
            child = os.fork()
            if child == 0:
                connection.close()
                _become(request, *descriptors)
                return request["command"]
            for stream in descriptors[1:]:
                os.close(stream)
            watched = os.pidfd_open(child)
            ending[watched] = child, descriptors[0]
            poll.register(watched, select.POLLIN)


def _end_programs(running: Iterable[int]) -> None:
    """End what still runs: by SIGTERM, after which programs end their own processes, or by SIGKILL."""
    for program in running:
        signal.pidfd_send_signal(program, signal.SIGTERM)
    for program in running:
        if not select.select([program], [], [], _TERMINATION_S)[0]:
            signal.pidfd_send_signal(program, signal.SIGKILL)


def _become(request: dict[str, Any], status: int, *streams: int) -> None:
    """Take a request's streams, folder and environment."""
    if request["is_leader"]:
        os.setsid()
    os.write(status, os.getpid().to_bytes(4, "little"))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(descriptor)
    # Destructors of libraries would take 0.2 s at the end.
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    # Made anew, because the old ones remember what kind of file the server has.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115 - as long as the process
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")


def _run(command: list[str]) -> None:
    """Run a path, -c or -m with arguments, as Python does."""
    kind, *rest = command
    if kind == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        code = compile(rest[0], "<string>", "exec", dont_inherit=True)
    else:
        sys.argv, sys.path[0] = command, os.path.dirname(os.path.realpath(kind))
        main.__file__ = os.path.abspath(kind)
        with open(kind, "rb") as file:
            code = compile(file.read(), main.__file__, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _forget_imported() -> None:
    """Leave what was imported here to the kernel: Python would take 0.4 s to destroy it when it ends."""
    for name in _imported:
        sys.modules.pop(name, None)


if __name__ == "__main__":
    before = set(sys.modules)
    atexit.register(_forget_imported)  # the first one, and so the last to run
    for name in _MODULES:
        importlib.import_module(name)
    _imported = sys.modules.keys() - before
    # At the end, torch would remove its operators one by one, which takes 0.04 s.
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False
    for name in _imported:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules[name]))
    gc.collect()
    gc.freeze()
    _run(_serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))

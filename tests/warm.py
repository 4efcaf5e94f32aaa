"""Runs of `fastload` without the two seconds of importing torch: forks of a process that has imported it.

    python -m tests.warm DESCRIPTOR

DESCRIPTOR: a Unix socket, from which requests come: arguments, folder and environment, with standard streams.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile

# Those that commands import on first use; neither torchvision nor PIL, whose presence some decide by.
_MODULES = [
    "cv2",
    "h5py",
    "lmdb",
    "rich.progress",
    "torch",
    "fastload.cli.main",
    "fastload.loader.dataloader",
]


@functools.cache
def _server() -> tuple["subprocess.Popen[bytes]", socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=root)
    atexit.register(_end, os.getpid(), process, ours)
    return process, ours


def _end(owner: int, process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    if os.getpid() == owner:  # not a fork of the tests'
        connection.close()
        process.wait()


def run_fastload(
    arguments: list[str], cwd: str | os.PathLike[str] | None, timeout_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run `fastload` to its end, as a process of its own."""
    process, connection = _server()
    connection.settimeout(timeout_s)
    asked = {"arguments": arguments, "cwd": os.fspath(cwd or os.getcwd()), "environment": dict(os.environ)}
    with open(os.devnull) as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        content = json.dumps(asked).encode()
        descriptors = [stream.fileno() for stream in (stdin, out, err)]
        socket.send_fds(connection, [len(content).to_bytes(8, "little")], descriptors)
        connection.sendall(content)
        code = connection.recv(8)
        assert code, f"the process that runs commands ended: {process.wait()}"
        out.seek(0)
        err.seek(0)
        texts = [stream.read().decode(errors="surrogateescape") for stream in (out, err)]
    return subprocess.CompletedProcess(
        ["fastload", *arguments], int.from_bytes(code, "little", signed=True), *texts
    )


def _serve(connection: socket.socket) -> None:
    """Fork for each request; return in the child, which then runs the command, and at the end."""
    while True:
        size, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
        if not size:
            sys.exit()
        asked = json.loads(connection.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL))
        child = os.fork()
        if child == 0:
            connection.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.chdir(asked["cwd"])
            os.environ.clear()
            os.environ.update(asked["environment"])
            sys.argv = ["fastload", *asked["arguments"]]
            sys.path[0] = asked["cwd"]
            return
        for descriptor in descriptors:
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(code.to_bytes(8, "little", signed=True))


if __name__ == "__main__":
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("fastload", run_name="__main__", alter_sys=True)

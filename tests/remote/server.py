"""Servers for tests: one over HTTP that counts and fails where a test says so, and moto's of S3."""

import re
import socket
import struct
import threading
import time
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FAULTS = ("error", "reset", "truncate", "stall", "flip")


class FaultyServer(ThreadingHTTPServer):
    """Serves `folder`; each GET takes the next of `faults`: None, one of FAULTS, "lost" or a status."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults: deque[str | int | None] = deque()
        self.requests: list[list[str | int]] = []  # path, bytes sent
        self.queries: set[str] = set()
        self.clients: set[int] = set()  # ports of the connections
        self.has_ranges = True
        self.is_lost = False  # from the fault "lost" on, each connection is reset
        self.stall_s = 5.0
        self.bytes_per_s = 0  # 0: as fast as possible
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sent(self, name: str = "") -> int:
        """Return the bytes sent of files whose path ends with a name."""
        return sum(size for path, size in self.requests if path.endswith(name))

    def handle_error(self, request, client_address):
        """A client that hangs up is no error of the server."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self._answer(is_head=True)

    def do_GET(self):
        self._answer(is_head=False)

    def _answer(self, is_head):
        path = self.server.folder / path_of(self.path).lstrip("/")
        self.server.queries.add(self.path.partition("?")[2])
        fault = None if is_head or not self.server.faults else self.server.faults.popleft()
        self.server.is_lost |= fault == "lost"
        if fault == "reset" or self.server.is_lost:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
            return
        if fault == "error" or isinstance(fault, int) or not path.is_file():
            status = 404 if fault is None else 503 if fault == "error" else fault
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.server.clients.add(self.client_address[1])
        data = path.read_bytes()
        body, status = data, 200
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found and self.server.has_ranges:
            begin, end = int(found[1]), int(found[2]) + 1
            if begin >= len(data):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body, status = data[begin:end], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}-{len(data)}"')
        self.end_headers()
        if is_head:
            return
        if fault == "flip" and body:
            body = body[: len(body) // 2] + bytes([body[len(body) // 2] ^ 1]) + body[len(body) // 2 + 1 :]
        if fault in ("truncate", "stall"):
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if fault == "stall":
                time.sleep(self.server.stall_s)
            self.close_connection = True
            return
        piece_bytes = 1 << 16
        noted = [path_of(self.path), 0]
        if len(body) > 1:  # not the byte by which a client finds out whether there are ranges
            self.server.requests.append(noted)
        for begin in range(0, len(body), piece_bytes):
            if self.server.bytes_per_s:
                time.sleep(piece_bytes / self.server.bytes_per_s)
            piece = body[begin : begin + piece_bytes]
            noted[1] += len(piece)  # before, so that a client that has the last byte finds its request noted
            self.wfile.write(piece)


def path_of(target: str) -> str:
    return target.partition("?")[0]


@contextmanager
def serving(folder: Path):
    """Serve a folder within a block."""
    server = FaultyServer(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving_s3():
    """Run moto's server of S3, with a bucket named "bucket"; yield the storage options to reach it."""
    import s3fs
    from moto import server as moto_server

    server = moto_server.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        options = {"key": "testing", "secret": "testing", "endpoint_url": f"http://127.0.0.1:{port}"}
        # All of its servers in a process have the same buckets.
        s3fs.S3FileSystem(**options).makedirs("bucket", exist_ok=True)
        yield options
    finally:
        server.stop()

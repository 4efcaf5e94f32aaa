"""S3 server (moto's) in a process of its own, which counts what it sends, and may send it slowly."""

from __future__ import annotations

import ctypes
import logging
import math
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from _token_bucket import TokenBucket

# The environment variables by which the AWS clients of all sides find the server.
_KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}
_BUCKET = "benchmark"
_PIECE_BYTES = 256 * 1024


class ObjectServer:
    """The server and its one bucket, within a `with` block."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._traffic = _Traffic(context)
        self._port = context.SimpleQueue()
        self._process = context.Process(target=_serve, args=(self._traffic, self._port), daemon=True)

    def __enter__(self) -> ObjectServer:
        import s3fs

        self._process.start()
        endpoint = f"http://127.0.0.1:{self._port.get()}"
        self.environment = _KEYS | {"AWS_ENDPOINT_URL": endpoint}
        self.storage_options = {"key": "testing", "secret": "testing", "endpoint_url": endpoint}
        self._system = s3fs.S3FileSystem(**self.storage_options)
        self._system.mkdir(_BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    @property
    def sent_bytes(self) -> int:
        """The bytes of all objects, or parts of them, that were sent."""
        return int(self._traffic.sent.value)

    def limit(self, bytes_per_s: float = math.inf) -> None:
        """Send at most so many bytes a second from now on, to all clients together."""
        self._traffic.bytes_per_s.value = bytes_per_s

    def upload(self, folder: Path) -> str:
        """Store a folder's files; return the folder's URL."""
        url = f"s3://{_BUCKET}/{folder.name}"
        for parent, _, names in os.walk(folder):
            for name in names:
                path = Path(parent, name)
                self._system.put_file(str(path), f"{url}/{path.relative_to(folder).as_posix()}")
        return url


class _Traffic:
    """Bytes that were sent, and the speed at which others may be; shared with the server's process."""

    def __init__(self, context: SpawnContext) -> None:
        self.sent = context.Value(ctypes.c_int64, 0)
        self.bytes_per_s = context.Value(ctypes.c_double, math.inf)
        self._bucket = TokenBucket(context)

    def paced(self, body: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a body in pieces, each once its bytes have had their turn."""
        for chunk in body:
            for begin in range(0, len(chunk), _PIECE_BYTES):
                piece = chunk[begin : begin + _PIECE_BYTES]
                if self.bytes_per_s.value < math.inf:
                    self._bucket.transfer(len(piece), self.bytes_per_s.value)
                with self.sent:
                    self.sent.value += len(piece)
                yield piece


def _serve(traffic: _Traffic, port: Any) -> None:
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server
    from werkzeug.wsgi import ClosingIterator

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    moto = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = moto(environ, start_response)
        return ClosingIterator(traffic.paced(body), getattr(body, "close", ()))

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    port.put(server.server_port)
    server.serve_forever()

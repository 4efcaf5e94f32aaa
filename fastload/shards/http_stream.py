"""Files of HTTP servers read in one request each, part by part: for servers that ignore ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from fsspec.implementations.http import HTTPFileSystem

_RANGE_STATUS = 206  # partial content (RFC 9110)


class HttpStream:
    """The body of an answer; its coroutines run in the loop of fsspec.

    Attributes:
        is_range: True if the server sends the range that was requested; False for a complete file.
        done: The number of bytes that were read.
    """

    def __init__(self, response: ClientResponse) -> None:
        self.is_range = response.status == _RANGE_STATUS
        self.done = 0
        self._response = response

    @classmethod
    async def requested(cls, system: HTTPFileSystem, url: str, headers: Mapping[str, str]) -> HttpStream:
        """Request a file by fsspec's session, with further headers; raise aiohttp's error for its status."""
        from aiohttp import ClientTimeout

        # The default ends a request after five minutes, however much has come.
        options = {"timeout": ClientTimeout(total=None), **system.kwargs}
        options["headers"] = {**options.get("headers", {}), **headers}
        session = await system.set_session()
        response = await session.get(system.encode_url(url), **options)
        response.raise_for_status()
        return cls(response)

    async def read(self, size_bytes: int) -> bytes:
        """Return the next `size_bytes` bytes, fewer at the end; raise EOFError after it."""
        parts = []
        while size_bytes > 0 and (part := await self._response.content.read(size_bytes)):
            parts.append(part)
            size_bytes -= len(part)
        if not parts:
            raise EOFError(f"the body ended after {self.done:,} bytes")
        data = b"".join(parts)
        self.done += len(data)
        return data

    async def close(self) -> None:
        """End the request."""
        self._response.close()

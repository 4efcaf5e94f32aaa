"""File systems of fsspec, by URL and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastload.errors import LibraryMissingError, OptionError
from fastload.shards._remote_errors import text_of


def open_system(url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raises:
        LibraryMissingError: fsspec, or the package for the protocol, is not installed.
        OptionError: fsspec does not know the protocol, or refuses an option.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise LibraryMissingError(
            f"{url}: reading and writing URLs needs fsspec ({error}): pip install fsspec, "
            "and the package for the protocol, such as s3fs, gcsfs or aiohttp"
        ) from error
    if url.startswith("http") and "?" in url:
        advice = "pass tokens as storage_options={'headers': {...}}"
        raise OptionError(f"{url.partition('?')[0]}: must be a URL without a query: {advice}")
    try:
        system, path = url_to_fs(url, **storage_options)
    except ImportError as error:
        missing = getattr(error.__cause__, "name", None) or "its package"
        raise LibraryMissingError(f"{url}: {error}: pip install {missing}") from error
    except Exception as error:  # file systems raise any exception for an option that they do not have
        reason = text_of(error)
        raise OptionError(f"{url}: cannot be opened by fsspec with these options: {reason}") from error
    return system, str(path).rstrip("/")

"""fsspec's file systems, and their failed requests: final errors become those of the library."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastload.errors import AccessError, LibraryMissingError, OptionError, RemoteError, RemoteMissingError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


# Request timeout (RFC 9110), too early (RFC 8470), too many requests (RFC 6585); most from 500 on are too.
_TRANSIENT_STATUSES = frozenset({408, 425, 429})
_REFUSALS = frozenset({401, 402, 403, 407})
_UNSUPPORTED = frozenset({501, 505})
_MISSING = frozenset({404, 410})
_FINAL_ERRNOS = frozenset({errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC})
_FINAL_TYPES = (TypeError, ValueError, LookupError, AttributeError, ImportError, NotImplementedError)
# Names of errors in the libraries for S3, Google and Azure: NoCredentialsError, RefreshError, ….
_CREDENTIAL_ERROR = re.compile("Credential|Authentication|RefreshError")


def final_error(url: str, error: Exception) -> Exception | None:
    """Return the error to raise if no further attempt can succeed; None if one may."""
    found = (getattr(error, name, None) for name in ("status", "status_code", "code"))
    status = next((each for each in found if isinstance(each, int)), 0)
    if isinstance(error, FileNotFoundError) or status in _MISSING:
        return RemoteMissingError(f"{url}: there is no such file ({text_of(error)}): check the URL")
    is_refused = isinstance(error, PermissionError) or status in _REFUSALS
    if is_refused or _CREDENTIAL_ERROR.search(type(error).__name__):
        return AccessError(
            f"{url}: the server refuses access ({text_of(error)}): check the credentials that fsspec finds "
            "(environment, configuration files), or pass others as storage_options"
        )
    is_final = (400 <= status < 500 and status not in _TRANSIENT_STATUSES) or status in _UNSUPPORTED
    is_final |= isinstance(error, OSError) and error.errno in _FINAL_ERRNOS
    if is_final or isinstance(error, _FINAL_TYPES):
        return RemoteError(f"{url}: the request failed with {text_of(error)}: check URL and storage_options")
    return None


def reason_of(error: Exception) -> Exception:
    """Return the reason for an error: fsspec raises FileNotFoundError for every failed `info` over HTTP."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        is_of_http = type(cause).__module__.startswith("aiohttp.")
        if is_of_http or isinstance(cause, (OSError, asyncio.TimeoutError)):
            return cause
    return error


def text_of(error: BaseException) -> str:
    """Return an error's type and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def open_system(url: str, storage_options: Mapping[str, object]) -> tuple[AbstractFileSystem, str]:
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

"""fsspec's file systems, and their failed requests: final errors become those of the library."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

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

_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\")]*")
# Parameters of queries that sign one file: Amazon S3 (signature versions 4 and 2), Google Cloud Storage
# (versions 4 and 2). Azure's `sr` names what is shared: a blob, its version or snapshot, or a file.
_ONE_FILE_PARAMETERS = frozenset({"x-amz-signature", "awsaccesskeyid", "x-goog-signature", "googleaccessid"})
_ONE_FILE_RESOURCES = frozenset({"b", "bv", "bs", "f"})


def split_query(url: str) -> tuple[str, str]:
    """Return a folder's URL, and the query that each request for one of its files needs, with its mark.

    Only URLs of HTTP servers have a query; in an object store, a name may have a question mark.

    Raises:
        OptionError: The query signs one file, or the URL names a part of a page.
    """
    if not url.startswith("http"):
        return url.rstrip("/"), ""
    folder, mark, query = url.partition("?")
    if "#" in url:
        raise OptionError(
            f"{folder.partition('#')[0]}: must be a URL without '#', which no client sends to the server: "
            "leave out what follows, or write '%23' if the folder's name has it"
        )
    if _signs_one_file(query):
        raise OptionError(
            f"{folder}: the query signs one file, and a dataset has several: open s3:// or gs:// with "
            "credentials, or a URL with a token for all files of a folder (Azure: a SAS of a container or "
            "directory; CloudFront: a custom policy with a wildcard)"
        )
    return folder.rstrip("/"), mark + query


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path or a URL as it is printed: without a query, which may be secret."""
    return _QUERY.sub(r"\1", os.fspath(path))


def _signs_one_file(query: str) -> bool:
    values = {name.lower(): value for name, value in parse_qsl(query)}
    is_canned = "key-pair-id" in values and "policy" not in values  # CloudFront
    return bool(_ONE_FILE_PARAMETERS & set(values)) or values.get("sr") in _ONE_FILE_RESOURCES or is_canned


def final_error(url: str, error: Exception, has_query: bool = False) -> Exception | None:
    """Return the error to raise if no further attempt can succeed; None if one may."""
    found = (getattr(error, name, None) for name in ("status", "status_code", "code"))
    status = next((each for each in found if isinstance(each, int)), 0)
    if isinstance(error, FileNotFoundError) or status in _MISSING:
        return RemoteMissingError(f"{url}: there is no such file ({text_of(error)}): check the URL")
    is_refused = isinstance(error, PermissionError) or status in _REFUSALS
    if is_refused or _CREDENTIAL_ERROR.search(type(error).__name__):
        advice = (
            "the query of the dataset's URL has expired, or does not cover this file: get a new one"
            if has_query
            else "check the credentials that fsspec finds (environment, configuration files), or pass others "
            "as storage_options"
        )
        return AccessError(f"{url}: the server refuses access ({text_of(error)}): {advice}")
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
    """Return an error's type and message, without queries of URLs, which may be secret."""
    message = _QUERY.sub(r"\1?…", str(error))
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


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
    try:
        system, path = url_to_fs(url, **storage_options)
    except ImportError as error:
        missing = getattr(error.__cause__, "name", None) or "its package"
        raise LibraryMissingError(f"{url}: {error}: pip install {missing}") from error
    except Exception as error:  # file systems raise any exception for an option that they do not have
        reason = text_of(error)
        raise OptionError(f"{url}: cannot be opened by fsspec with these options: {reason}") from error
    return system, str(path).rstrip("/")

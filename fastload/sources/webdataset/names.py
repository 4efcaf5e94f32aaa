"""Names of members: the key of the sample, and the extension, between which two rules decide.

WebDataset splits a name at the first dot: `a.left.jpg` is `left.jpg` of the sample `a`. Tars that other
programs make of files have dots anywhere: `cats/cat.0.jpg` is an image of its own, not `0.jpg` of the sample
`cats/cat`. There, a name is split at its last dot, or before the known extensions that it ends in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fastload.sources.listing import IMAGE_SUFFIXES

IMAGES = tuple(suffix[1:] for suffix in (*IMAGE_SUFFIXES, ".gif", ".avif", ".jp2"))
# The extensions that webdataset's own decoder reads as integers and as text.
INTEGERS = ("cls2", "class", "count", "index", "inx", "id")
TEXTS = ("txt", "text", "transcript", "json", "jsn")

# Further extensions of webdataset's decoders, and the usual names of a second image or text of a sample.
_KNOWN = {
    *IMAGES, *INTEGERS, *TEXTS, "cls", "npy", "npz", "pyd", "pkl", "pickle", "pth", "ten", "tb", "mp", "msg",
    "cbor", "gz", "wav", "flac", "mp3", "mp4", "seg", "segmentation", "mask", "masks", "label", "labels",
    "depth", "caption", "captions", "meta", "metadata",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_KEY = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)

Split = Callable[[str], tuple[str, str]]


def at_first_dot(name: str) -> tuple[str, str]:
    """Return the key and the extension of a member by WebDataset's rule; ("", "") if it has none.

    >>> at_first_dot("photos/a.left.jpg")
    ('photos/a', 'left.jpg')
    """
    match = _KEY.fullmatch(name)
    return (match[1], match[2]) if match is not None else ("", "")


def before_suffixes(name: str) -> tuple[str, str]:
    """Return the key and the extension of a member: its last dot, or the known extensions that it ends in.

    >>> before_suffixes("cats/cat.0.jpg"), before_suffixes("cats/cat.0.seg.png")
    (('cats/cat.0', 'jpg'), ('cats/cat.0', 'seg.png'))
    """
    folder, slash, base = name.rpartition("/")
    parts = base.split(".")
    if not parts[0] or len(parts) < 2:
        return "", ""
    begin = len(parts) - 1
    while begin > 1 and {parts[begin - 1].lower(), parts[begin].lower()} <= _KNOWN:
        begin -= 1
    return folder + slash + ".".join(parts[:begin]), ".".join(parts[begin:])


RULES: Mapping[str, Split] = {"first dot": at_first_dot, "suffixes": before_suffixes}
"""The rules by the names that packed datasets state."""


def are_words(extension: str) -> bool:
    """Return True if the parts of an extension could be names of fields.

    >>> are_words("left.jpg"), are_words("0.jpg")
    (True, False)
    """
    return all(map(_WORD.fullmatch, extension.split(".")))

"""Restoring of the annotation files that are attached to a packed dataset, as they were in its source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastload.shards.attachment import Attachment, read_attachment
from fastload.shards.records import RecordReader
from fastload.sources.stored_records import SOURCE_ENCODINGS, drafted, safe_path


def restorable(readers: Mapping[str, RecordReader]) -> tuple[RecordReader, Attachment] | None:
    """Return the reader of the dataset with the attached files, and their entry.

    Return None if they do not describe what is unpacked: images under other names or of other sizes, a part
    of the records or of the splits.
    """
    manifests = [reader.manifest for reader in readers.values()]
    encodings = [None if each.image is None else each.image.encoding for each in manifests]
    are_same = all(encoding in (None, *SOURCE_ENCODINGS) for encoding in encodings) and not any(
        each.made.get("limit") or each.skipped for each in manifests
    )
    are_same |= all(each.made.get("source_kind") == "huggingface" for each in manifests)  # of no image's size
    for reader in readers.values():
        attachment = reader.manifest.attachment
        if attachment is not None and are_same and {*attachment.splits} in ({*readers}, {""}):
            return reader, attachment
    return None


def restore(root: Path, reader: RecordReader, attachment: Attachment) -> list[Path]:
    """Write the attached files, and return their paths."""
    written = []
    for name, data in read_attachment(reader.folder, attachment):
        path = safe_path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with drafted(path) as draft:
            draft.write_bytes(data)
        written.append(path)
    return written

"""`fastload info PATH`: contents of packed datasets."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fastload.cli.output import show, show_json
from fastload.system.units import aligned, format_count, format_size

if TYPE_CHECKING:
    from fastload.shards.manifest import Manifest
    from fastload.shards.schema import Field

HELP = "show the contents of a packed dataset"

EXIT_CODES = {
    "2": "nothing was done: an option or a path is invalid",
    "3": "data is damaged, or a server fails",
    "130": "interrupted (Ctrl-C)",
}

_SHOWN_CLASSES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="a packed dataset, its URL, or a folder with several")
    parser.add_argument("--json", action="store_true", help="print the manifest as JSON")


def run(options: argparse.Namespace) -> int:
    """Print a table for each packed dataset."""
    from fastload.shards.manifest import packed_datasets, read_manifest
    from fastload.shards.remote import is_url
    from fastload.shards.remote_errors import shown

    paths = [options.path] if is_url(options.path) else packed_datasets(options.path)
    manifests = {path: read_manifest(path) for path in paths}
    if options.json:
        show_json(
            [
                {"path": shown(path), "size_bytes": manifest.size_bytes, **json.loads(manifest.to_bytes())}
                for path, manifest in manifests.items()
            ]
        )
    else:
        for path, manifest in manifests.items():
            _print_table(path, manifest)
    return 0


def _print_table(path: Path | str, manifest: Manifest) -> None:
    from fastload.shards.remote_errors import shown

    made, classes, attached = manifest.made, manifest.classes, manifest.attachment
    names = ", ".join(classes[:_SHOWN_CLASSES]) or "none"
    more = f", … ({len(classes):,} in all)" if len(classes) > _SHOWN_CLASSES else ""
    sizes = (manifest.size_bytes, manifest.size_bytes / max(manifest.records, 1))
    is_labelled = any(field.name == "labels" and field.per_object for field in manifest.fields)
    rows = [
        ("records", f"{manifest.records:,}"),
        ("size", f"{format_size(sizes[0])}, {format_size(sizes[1])} a record"),
        ("shards", f"{len(manifest.shards):,} × {manifest.container}"),
        *_image_rows(manifest),
        ("fields", ", ".join(_field_text(field) for field in manifest.fields)),
        ("classes", names + more),
        ("objects", _objects_text(path, manifest) if is_labelled else ""),
        ("attached", format_count(attached.files, "annotation file") if attached else ""),
        ("made by", f"fastload {made.get('fastload', '?')}, OpenCV {made.get('opencv', '?')}"),
        ("made from", f"{made.get('source', '?')} ({made.get('source_kind', '?')})"),
    ]
    failures = {
        "skipped": len(manifest.skipped),
        "left out": sum(entry.files for entry in manifest.left_out),
        "kept, though unreadable": len(manifest.kept),
    }
    rows += [(name, format_count(count, "file") if count else "") for name, count in failures.items()]
    show(shown(path), *aligned((name, value) for name, value in rows if value))


def _image_rows(manifest: Manifest) -> list[tuple[str, str]]:
    if manifest.image is None:
        return [("images", "none")]
    shape = manifest.image_shape
    return [
        ("encoding", " ".join([manifest.image.encoding or "", *_parameters(manifest.made)])),
        ("image size", f"{shape[0]} × {shape[1]}, {shape[2]} channels" if shape else "varies"),
    ]


def _objects_text(path: Path | str, manifest: Manifest) -> str:
    """Return the number of objects, and how many there are of each class, the most frequent first."""
    from fastload.shards.records import RecordReader

    # Records can only be verified with their images, which are not read here.
    reader = RecordReader(path, verify="never")
    counts: Counter[int] = Counter()
    filled = 0
    for index in range(len(reader)):
        labels = reader.read_verified(index)["labels"].tolist()
        counts.update(labels)
        filled += bool(labels)
    names = dict(enumerate(manifest.classes))
    frequent = counts.most_common(_SHOWN_CLASSES)
    shown = ", ".join(f"{names.get(label, label)} {count:,}" for label, count in frequent)
    more = f", … ({len(counts):,} classes in all)" if len(counts) > _SHOWN_CLASSES else ""
    return f"{counts.total():,} in {filled:,} of {len(reader):,} records: {shown}{more}".removesuffix(": ")


def _parameters(made: Mapping[str, object]) -> list[str]:
    """Return the encoding's parameters, such as `quality=90`; a manifest of another program may lack them."""
    encoding = made.get("encoding")
    return [f"{k}={v}" for k, v in encoding.items() if k != "name"] if isinstance(encoding, dict) else []


def _field_text(field: Field) -> str:
    shape = " × ".join(map(str, field.shape))
    if field.kind == "image" and shape:
        return f"{field.name} (image, {field.pixel_type})"
    if field.kind in ("image", "text", "bytes"):
        return f"{field.name} ({field.kind})"
    return f"{field.name} ({field.kind} {field.dtype}{' ' + shape if shape else ''})"

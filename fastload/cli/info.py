"""`fastload info PATH`: contents of packed datasets, and a contact sheet."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.cli.console import print_table
from fastload.cli.progress import format_count, format_size

if TYPE_CHECKING:
    from fastload.shards.manifest import Manifest

HELP = "show what a packed dataset holds"

_SHOWN_CLASSES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="a packed dataset, or a folder with several")
    parser.add_argument("--preview", metavar="FILE", help="write a contact sheet of images, a PNG")
    parser.add_argument("--json", action="store_true", help="print the manifest as JSON")


def run(options: argparse.Namespace) -> int:
    """Print a table for each packed dataset."""
    from fastload.shards.manifest import packed_datasets, read_manifest

    paths = packed_datasets(options.path)
    manifests = {path: read_manifest(path) for path in paths}
    if options.preview:
        from fastload.datasets.preview import write_contact_sheet

        write_contact_sheet(paths[0], Path(options.preview))
    if options.json:
        print(json.dumps([_as_json(path, m) for path, m in manifests.items()], indent=1))
    else:
        for path, manifest in manifests.items():
            _print_table(path, manifest)
    if options.preview:
        print(f"wrote {options.preview}", file=sys.stderr)
    return 0


def _as_json(path: Path, manifest: Manifest) -> dict[str, Any]:
    content = json.loads(manifest.to_bytes())
    return {"path": str(path), "size_bytes": manifest.size_bytes, **content}


def _print_table(path: Path, manifest: Manifest) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(str(path)), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(manifest):
        table.add_row(name, value)
    print_table(table)


def _rows(manifest: Manifest) -> list[tuple[str, str]]:
    made = manifest.made
    records = max(manifest.records, 1)
    rows = [
        ("records", f"{manifest.records:,}"),
        (
            "size",
            f"{format_size(manifest.size_bytes)}, {format_size(manifest.size_bytes / records)} a record",
        ),
        ("shards", f"{len(manifest.shards):,} × {manifest.container}"),
        ("encoding", " ".join([manifest.image.encoding or "", *_parameters(made)])),
        ("image size", _shape_text(manifest)),
        ("fields", ", ".join(_field_text(field) for field in manifest.fields)),
        ("classes", _classes_text(manifest.classes)),
        ("made by", f"fastload {made.get('fastload', '?')}, OpenCV {made.get('opencv', '?')}"),
        ("made from", f"{made.get('source', '?')} ({made.get('source_kind', '?')})"),
    ]
    if manifest.skipped:
        rows.append(("skipped", format_count(len(manifest.skipped), "file")))
    if manifest.left_out:
        rows.append(("left out", format_count(sum(entry.files for entry in manifest.left_out), "file")))
    if manifest.kept:
        rows.append(("kept, though unreadable", format_count(len(manifest.kept), "file")))
    return rows


def _parameters(made: Mapping[str, Any]) -> list[str]:
    """Return the encoding's parameters, such as `quality=90`; a manifest of another program may lack them."""
    encoding = made.get("encoding")
    return [f"{k}={v}" for k, v in encoding.items() if k != "name"] if isinstance(encoding, dict) else []


def _shape_text(manifest: Manifest) -> str:
    if manifest.image_shape is None:
        return "varies"
    height, width, channels = manifest.image_shape
    return f"{height} × {width}, {channels} channels"


def _field_text(field: Any) -> str:
    shape = " × ".join(map(str, field.shape))
    if field.kind in ("image", "text", "bytes"):
        return f"{field.name} ({field.kind})"
    return f"{field.name} ({field.kind} {field.dtype}{' ' + shape if shape else ''})"


def _classes_text(classes: tuple[str, ...]) -> str:
    shown = ", ".join(classes[:_SHOWN_CLASSES])
    more = f", … ({len(classes):,} in all)" if len(classes) > _SHOWN_CLASSES else ""
    return shown + more or "none"

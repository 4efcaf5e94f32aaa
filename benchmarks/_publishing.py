"""Options of a comparison's output, and the files that they name."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from _document import Document
from _document_markdown import to_markdown
from _html import to_html

from fastload.cli.output import lines_of, note, show
from fastload.errors import OptionError


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the images, and the options of a comparison's output."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        help="your own images, in class folders or not (default: generated photo-like JPEGs)",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with bars and plots")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables as Markdown")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--smoke", action="store_true", help="only check that it runs: figures mean nothing")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def check_outputs(options: argparse.Namespace) -> None:
    """Raise OptionError if a file cannot be written, before anything is measured."""
    for option in ("html", "markdown"):
        file = getattr(options, option)
        folder = Path(file or "").parent
        if file and (Path(file).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK)):
            raise OptionError(f"--{option} must name a file in a folder that can be written to, got {file}")


def publish(document: Document, result: str, options: argparse.Namespace) -> None:
    """Write the files that the options name; print the document, or the JSON of the result."""
    for render, file in ((to_html, options.html), (to_markdown, options.markdown)):
        if file:
            Path(file).write_text(render(document), encoding="utf-8")
            note(f"wrote {file}")
    show(*lines_of(result if options.json else to_markdown(document)))

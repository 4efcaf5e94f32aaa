"""Shared arguments of `fastload bench …`, and its output: a page, tables, JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fastload.cli._output import lines_of, note, show
from fastload.cli._parser import check_writable
from fastload.cli.report.document import Document


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that all comparisons share."""
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
    # Here as well as on 'bench', because users write it after the comparison's name.
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )


def check_outputs(options: argparse.Namespace) -> None:
    """Raise OptionError if a file cannot be written, before anything is measured."""
    for option in ("html", "markdown"):
        if getattr(options, option):
            check_writable(f"--{option}", getattr(options, option))


def publish(document: Document, result: str, options: argparse.Namespace) -> None:
    """Write the files that the options name; print the document, or the JSON of the result."""
    from fastload.cli.report._html import to_html
    from fastload.cli.report._markdown import to_markdown

    for render, file in ((to_html, options.html), (to_markdown, options.markdown)):
        if file:
            Path(file).write_text(render(document), encoding="utf-8")
            note(f"wrote {file}")
    show(*lines_of(result if options.json else to_markdown(document)))
    if sys.stdout.isatty() and not options.json:
        show("", f"{document.title} {document.answer[0]}")  # the beginning has scrolled away

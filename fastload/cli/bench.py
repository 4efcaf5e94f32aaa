"""`fastload bench decode [FOLDER]`: PIL or OpenCV, on this machine and these images."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.cli.console import console
from fastload.cli.progress import ProgressDisplay, duration
from fastload.errors import OptionError
from fastload.system import signals

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from fastload.bench.result import DecodeBench
    from fastload.cli.report.document import Cell, Document, Table

HELP = "compare libraries on this machine: 'bench decode' asks whether PIL or OpenCV"

_DECODE_HELP = "PIL or OpenCV? Decodes and transforms your images with every library that is installed"
_STYLES = {"reference": "yellow", "contender": "blue", "own": "green", "other": ""}
_STDOUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    benches = parser.add_subparsers(metavar="BENCH", required=True)
    decode = benches.add_parser("decode", help=_DECODE_HELP, description=_DECODE_HELP)
    decode.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        help="your own images, in class folders or not (default: photo-like JPEGs that are made for it)",
    )
    decode.add_argument(
        "--images", type=int, default=24, metavar="N", help="how many images, evenly spaced (default: 24)"
    )
    decode.add_argument("--runs", type=int, default=5, metavar="N", help="turns of each side (default: 5)")
    decode.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes of each DataLoader, 0 to leave those out (default: one a usable CPU, at most 8)",
    )
    for name in ("json", "markdown", "html"):
        decode.add_argument(
            f"--{name}", metavar="FILE", help="write the result to a file, or to standard output for -"
        )
    decode.add_argument("--smoke", action="store_true", help="only see whether it runs: figures mean nothing")
    decode.add_argument("--quiet", action="store_true", help="show no progress")
    # Here too: behind 'decode' is where people put it.
    decode.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )


def run(options: argparse.Namespace) -> int:
    """Measures, prints the tables and writes the files."""
    files = {name: getattr(options, name) for name in ("json", "markdown", "html") if getattr(options, name)}
    for name, file in files.items():
        _check_writable(name, file)
    if list(files.values()).count(_STDOUT) > 1:
        raise OptionError("one of --json, --markdown and --html can go to standard output, got several")
    # Importing torch takes seconds on a slow machine: not before it is needed.
    from fastload.bench.decoding import NEED, compare_decoding, expected_s, require_libraries

    require_libraries(NEED)
    if not options.quiet and not options.smoke:
        seconds = expected_s(options.runs, options.workers)
        print(
            f"measuring, one side after the other: about {duration(seconds)}, more for large images",
            file=sys.stderr,
            flush=True,
        )
    with signals.unwinding(), ProgressDisplay("measuring", "turns", options.quiet) as display:
        bench = compare_decoding(
            options.folder,
            images=options.images,
            runs=options.runs,
            workers=options.workers,
            is_smoke=options.smoke,
            progress=lambda done, total: display.update(done, total),
        )
    from fastload.cli.report.decoding import decoding_document

    document = decoding_document(bench)
    for name, file in files.items():
        _write(_rendered(name, bench, document), file)
    if _STDOUT not in files.values():
        _print(document)
    return 0


def _check_writable(name: str, file: str) -> None:
    """Says so before the measuring rather than after it."""
    if file == _STDOUT:
        return
    folder = Path(file).parent
    if Path(file).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OptionError(f"--{name} must name a file in a folder that can be written to, got {file}")


def _rendered(name: str, bench: DecodeBench, document: Document) -> str:
    from fastload.cli.report.decoding import decoding_json
    from fastload.cli.report.html import to_html
    from fastload.cli.report.markdown import to_markdown

    if name == "json":
        return decoding_json(bench)
    return to_html(document) if name == "html" else to_markdown(document)


def _write(text: str, file: str) -> None:
    if file == _STDOUT:
        print(text, end="")
        return
    Path(file).write_text(text, encoding="utf-8")
    print(f"wrote {file}", file=sys.stderr)


def _print(document: Document) -> None:
    """Prints tables on a terminal, Markdown elsewhere; the answer last, where eyes are."""
    if not sys.stdout.isatty():
        from fastload.cli.report.markdown import to_markdown

        print(to_markdown(document), end="")
        return
    from rich.text import Text

    target = console()
    overview, *others = document.sections
    for section in (*others, overview):
        target.print(Text(f"\n{section.title}", style="bold underline"))
        for paragraph in section.text:
            target.print(Text(paragraph))
        for table in section.tables:
            target.print(_rich_table(table, target.width))
            for note in table.notes:
                target.print(Text(note, style="dim"))
    target.print(Text(f"\n{document.title}", style="bold"))
    for place, sentence in enumerate(document.answer):
        target.print(Text(sentence, style="bold" if place == 0 else ""))
    for line in document.footer:
        target.print(Text(line, style="dim"))


def _rich_table(table: Table, width: int) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    is_narrow = width < 100
    shown = [
        place
        for place, column in enumerate(table.columns)
        if column.kind in ("text", "number") and not (is_narrow and column.is_minor)
    ]
    rich = RichTable(
        title=Text(table.title) if table.title else None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    for place in shown:
        column = table.columns[place]
        is_number = column.kind == "number"
        rich.add_column(Text(column.name), justify="right" if is_number else "left", no_wrap=is_number)
    for row in table.rows:
        rich.add_row(*_texts((row.cells[place] for place in shown), _STYLES[row.tone or "other"]))
    return rich


def _texts(cells: Iterator[Cell], style: str) -> Iterator[Any]:
    from rich.text import Text

    return (Text(cell if isinstance(cell, str) else "", style=style) for cell in cells)

"""`fastload bench decode [FOLDER]`: PIL or OpenCV, on this machine and these images."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fastload.cli._console import console
from fastload.cli._parser import check_writable
from fastload.cli._progress import ProgressDisplay, reporter
from fastload.errors import OptionError
from fastload.system import signals

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from fastload.bench.results import DecodeBench
    from fastload.cli.report.document import Document, Table

HELP = "compare libraries on this machine: 'bench decode' asks whether PIL or OpenCV is faster"

_DECODE_HELP = (
    "PIL or OpenCV? Decode and transform your images with every installed library, in one to three minutes"
)
_STYLES: dict[str | None, str] = {"reference": "yellow", "contender": "blue", "own": "green"}
_FORMATS = ("json", "markdown", "html")
_STDOUT = "-"
_NARROW = 100  # columns of a terminal on which minor columns are left out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    benches = parser.add_subparsers(metavar="BENCH", required=True)
    decode = benches.add_parser("decode", help=_DECODE_HELP, description=_DECODE_HELP)
    decode.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        help="your own images, in class folders or not (default: generated photo-like JPEGs)",
    )
    decode.add_argument(
        "--images", type=int, default=24, metavar="N", help="number of images, evenly spaced (default: 24)"
    )
    decode.add_argument("--runs", type=int, default=5, metavar="N", help="turns of each call (default: 5)")
    decode.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes of each DataLoader, 0 for no DataLoader (default: one per usable CPU, at most 8)",
    )
    for name in _FORMATS:
        decode.add_argument(
            f"--{name}", metavar="FILE", help="write the result to a file, or to standard output for -"
        )
    decode.add_argument("--smoke", action="store_true", help="only check that it runs: figures mean nothing")
    decode.add_argument("--quiet", action="store_true", help="show no progress")
    # Here as well as on 'bench', because users put it behind 'decode'.
    decode.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )


def run(options: argparse.Namespace) -> int:
    """Measure, print the tables and write the files."""
    files = {name: file for name in _FORMATS if (file := getattr(options, name))}
    for name, file in files.items():
        if file != _STDOUT:
            check_writable(f"--{name}", file)
    if list(files.values()).count(_STDOUT) > 1:
        raise OptionError("one of --json, --markdown and --html can go to standard output, got several")
    # Importing torch takes seconds on a slow machine: only when it is needed.
    from fastload.bench.decoding import compare_decoding

    with signals.unwinding(), ProgressDisplay("measuring", "turns", options.quiet) as display:
        bench = compare_decoding(
            options.folder,
            images=options.images,
            runs=options.runs,
            workers=options.workers,
            is_smoke=options.smoke,
            progress=reporter(display),
        )
    from fastload.cli.report.decoding import decoding_document

    document = decoding_document(bench)
    for name, file in files.items():
        text = _render(name, bench, document)
        if file == _STDOUT:
            print(text, end="")
        else:
            Path(file).write_text(text, encoding="utf-8")
            print(f"wrote {file}", file=sys.stderr)
    if _STDOUT not in files.values():
        _print(bench, document)
    return 0


def _render(name: str, bench: DecodeBench, document: Document) -> str:
    from fastload.cli.report._html import to_html
    from fastload.cli.report._markdown import to_markdown
    from fastload.cli.report.decoding import decoding_json

    if name == "json":
        return decoding_json(bench)
    return to_html(document) if name == "html" else to_markdown(document)


def _print(bench: DecodeBench, document: Document) -> None:
    """Print tables with the answer last on a terminal, Markdown elsewhere."""
    if not sys.stdout.isatty():
        print(_render("markdown", bench, document), end="")
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

    rich = RichTable(
        title=Text(table.title) if table.title else None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    shown = []
    for place, column in enumerate(table.columns):
        if column.kind in ("text", "number") and not (width < _NARROW and column.is_minor):
            shown.append(place)
            is_number = column.kind == "number"
            rich.add_column(Text(column.name), justify="right" if is_number else "left", no_wrap=is_number)
    for row in table.rows:
        cells = (Text(cell) if isinstance(cell := row.cells[place], str) else "" for place in shown)
        rich.add_row(*cells, style=_STYLES.get(row.tone))
    return rich

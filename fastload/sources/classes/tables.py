"""Tables that lie beside images and name them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator

from fastload.sources.classes.top import Doubt
from fastload.sources.listing import Folder, Listing, read_part, stem_of
from fastload.sources.malformed import in_quotes, pack_command

_MOST_ROWS = 50
_AS_CSV = "pack a table of it instead (.csv, with the column file_name)"

# Parts of names, from those of the table of all labels to those of tables without any.
_RANKS = ("train|label|entry|annot", "", "meta|valid|test|b?box", "submission|sample")


def tables(listing: Listing, folders: Iterable[Folder]) -> Iterator[Doubt]:
    """Yield a doubt for the tables whose cells name at least half of their rows' images."""
    for folder in folders:
        if found := sorted(_naming_images(listing, folder), key=_rank):
            shown = listing.shown(folder.join(found[0]))
            sign = (
                "whose labels would be lost"
                if shown.lower().endswith(".parquet")
                else "which names the images"
            )
            others = f" (also {in_quotes(found[1:])})" if len(found) > 1 else ""
            is_read = shown.lower().endswith((".csv", ".tsv"))
            step = f"{pack_command(shown)} packs it" if is_read else _AS_CSV
            yield Doubt(f"the table {shown}, {sign}{others}", step)


def _rank(name: str) -> tuple[int, str]:
    """Return the place of a table's name among others: that of the last rank whose words are in it."""
    ranks = [at for at, words in enumerate(_RANKS) if words and re.search(words, name, re.IGNORECASE)]
    return max(ranks, default=1), name


def _naming_images(listing: Listing, folder: Folder) -> Iterator[str]:
    for name in folder.others_with(".csv", ".tsv", ".jsonl"):
        if _names_images(listing, folder, _rows(name, listing.head(folder.join(name)))):
            yield name
    for name in folder.others_with(".parquet"):
        # The names of columns are in the clear at the end of the file.
        end = read_part(listing.absolute(folder.join(name)), 1)
        if name.lower() == "metadata.parquet" or b"file_name" in end:
            yield name


def _rows(name: str, head: bytes) -> list[list[str]]:
    """Return the first rows of a table, without its header; none if it is malformed."""
    text = head.decode("utf-8", "replace")
    lines = text.splitlines()[: _MOST_ROWS + 1]
    delimiter = max((",", ";", "\t"), key=text[:1000].count)
    try:
        if name.lower().endswith(".jsonl"):
            return [
                [value for value in json.loads(line).values() if isinstance(value, str)] for line in lines
            ]
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter))[1:]
    except (csv.Error, ValueError, AttributeError, RecursionError):
        return []


def _names_images(listing: Listing, folder: Folder, rows: list[list[str]]) -> bool:
    """Return True if at least half of the cells of a column are the names of images, with suffixes or not."""
    columns = [{cell.strip() for cell in column} - {""} for column in zip(*rows, strict=False)]
    names = [name for each in listing.below(folder.path) for name in each.images] if any(columns) else []
    stems = {*map(stem_of, names)}
    for at, cells in enumerate(columns):
        # Numbers name images in a first column, if there are as many; elsewhere, they count something.
        if all(map(str.isdigit, cells)) and (at or 2 * len(cells) <= min(len(names), _MOST_ROWS)):
            continue
        if cells and 2 * len({*map(stem_of, cells)} & stems) >= len(cells):
            return True
    return False

"""Arrow and Parquet files that share a schema, read by row; pyarrow is optional."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import TYPE_CHECKING

from fastload.errors import LibraryMissingError
from fastload.sources.files import FileList
from fastload.sources.malformed import explaining, malformed

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile


# Older releases unpickle data from a file's metadata (CVE-2023-47248).
_OLDEST = (14, 0, 1)


def import_arrow(path: str) -> ModuleType:
    """Return the module pyarrow; raise LibraryMissingError if it is missing or too old to be safe."""
    try:
        arrow = import_module("pyarrow")
    except ImportError as error:
        raise LibraryMissingError(
            f"{path}: Arrow and Parquet files need pyarrow, which is not installed: pip install pyarrow"
        ) from error
    if tuple(int(part) for part in arrow.__version__.split(".")[:3] if part.isdigit()) < _OLDEST:
        raise LibraryMissingError(
            f"{path}: must be read by pyarrow {'.'.join(map(str, _OLDEST))} or newer, which runs no code of "
            f"files, got {arrow.__version__}: pip install --upgrade pyarrow"
        )
    return arrow


class ArrowFiles:
    """Rows of .arrow and .parquet files, which are opened again in each process that reads them."""

    def __init__(self, files: FileList) -> None:
        self.files = files
        self._arrow = import_arrow(files.path(0))
        self._open: dict[int, pyarrow.Table | ParquetFile] = {}
        self._group: tuple[int, int] | None = None  # the file and row group that `_rows` belong to
        self._rows: pyarrow.Table = None
        self.schema: pyarrow.Schema = None
        counts = [self._check(number) for number in range(len(files))]
        self.ends = list(accumulate(counts))

    def __getstate__(self) -> dict[str, object]:
        state = {**self.__dict__, "_open": {}, "_group": None, "_rows": None, "_arrow": None}
        return state | {"schema": self.schema.serialize().to_pybytes()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._arrow = import_arrow(self.files.path(0))
        self.schema = self._arrow.ipc.read_schema(self._arrow.py_buffer(state["schema"]))

    def place(self, index: int) -> tuple[int, int]:
        """Return the number of the file that holds a row, and the row's index in it."""
        number = bisect.bisect_right(self.ends, index)
        return number, index - (self.ends[number - 1] if number else 0)

    def row(self, index: int) -> dict[str, object]:
        """Return a row as Python values by column; raise SourceError, naming file and row, on damage."""
        number, row = self.place(index)
        with self._explaining(number, row):
            if not self._is_parquet(number):
                table = self._table(number)
            else:
                file, group = self._file(number), 0
                while row >= file.metadata.row_group(group).num_rows:
                    row -= file.metadata.row_group(group).num_rows
                    group += 1
                if self._group != (number, group):
                    self._rows, self._group = file.read_row_group(group, use_threads=False), (number, group)
                table = self._rows
            return {name: table.column(at)[row].as_py() for at, name in enumerate(self.schema.names)}

    def columns(self, name: str) -> Iterator[pyarrow.ChunkedArray]:
        """Yield the column of this name from each file."""
        for number in range(len(self.files)):
            with self._explaining(number):
                if self._is_parquet(number):
                    yield self._file(number).read([name], use_threads=False).column(0)
                else:
                    yield self._table(number).column(name)

    def _check(self, number: int) -> int:
        """Return the number of a file's rows; raise SourceError if it is damaged or has another schema."""
        path = self.files.path(number)
        with self._explaining(number):
            if self._is_parquet(number):
                schema, rows = self._file(number).schema_arrow, self._file(number).metadata.num_rows
            else:
                table = self._table(number)
                table.validate(full=True)  # offsets out of bounds would crash the process
                schema, rows = table.schema, table.num_rows
            if number == 0:
                self.schema = schema
        if not schema.equals(self.schema):
            must = f"have the columns of {self.files.path(0)}, {self.schema.names}"
            raise malformed(path, must, f"{schema.names} or other types", "pack such files apart")
        return int(rows)

    def _is_parquet(self, number: int) -> bool:
        return self.files.names[number].lower().endswith(".parquet")

    def _file(self, number: int) -> ParquetFile:
        if number not in self._open:
            from pyarrow import parquet

            self._open[number] = parquet.ParquetFile(self.files.path(number), memory_map=True)
        return self._open[number]

    def _table(self, number: int) -> pyarrow.Table:
        """Return an .arrow file in stream format (as from `datasets`) or file format, memory-mapped."""
        if number not in self._open:
            mapped = self._arrow.memory_map(self.files.path(number))
            is_file = mapped.read(6) == b"ARROW1"
            mapped.seek(0)
            read = self._arrow.ipc.open_file if is_file else self._arrow.ipc.open_stream
            self._open[number] = read(mapped).read_all()
        return self._open[number]

    def _explaining(self, number: int, row: int | None = None) -> AbstractContextManager[None]:
        where = self.files.path(number) + ("" if row is None else f", row {row}")
        errors = (self._arrow.ArrowException, OSError)
        return explaining(errors, where, "be complete Arrow or Parquet data", "download or write it again")

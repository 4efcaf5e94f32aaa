"""Sources whose records are files that were listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.sources.files import FileList, Values, digest_of, safe_key, value_at
from fastload.sources.names import NameTable
from fastload.sources.protocol import Source, SourceRecord


@dataclass(eq=False, kw_only=True)
class ListedSource(Source):
    """A source of files that were listed with their sizes and times.

    `values` holds, by field, the values known from the listing; the other fields are read with each record.
    """

    files: FileList
    values: Mapping[str, Values] = field(default_factory=dict)

    def record_files(self) -> Iterator[FileList]:
        """See `Source`."""
        yield self.files
        yield from (column for column in self.values.values() if isinstance(column, FileList))

    def fingerprint(self) -> str:
        """Return a digest of names, sizes, times and values; it does not change when the folder moves."""
        head = self.kind, self.classes, self.fields, self.details, len(self)
        return digest_of(head, [self.files, *self.values.values()])


@dataclass(eq=False, kw_only=True)
class ImageFileSource(ListedSource):
    """A source with one image file for each record."""

    def __len__(self) -> int:
        return len(self.files)

    def key(self, index: int) -> str:
        """Return the file's relative path, with `/` between its parts."""
        return safe_key(self.files.names[index])

    def sizes_bytes(self) -> npt.NDArray[np.int64]:
        """Return the size of each image's file; 0 for one that does not exist."""
        return self.files.sizes_bytes.clip(min=0)


@dataclass(eq=False, kw_only=True)
class FileSource(ImageFileSource):
    """A `Source` whose records are files.

    `table` is the path of the table that lists the records, for messages; empty if there is none.
    """

    table: str = ""

    def part(self, indices: Sequence[int]) -> FileSource:
        """Return the records at these indices in the order given; negative ones count from the end."""
        values = {name: _part(column, indices) for name, column in self.values.items()}
        return replace(self, files=self.files.part(indices), values=values)

    def read(self, index: int) -> SourceRecord:
        """Read one record; raise SourceError, naming the file and the table's row, if it cannot be read."""
        try:
            image = self.files.read(index)
            values = {name: value_at(column, index) for name, column in self.values.items()}
        except SourceError as error:
            if not self.table:
                raise
            raise SourceError(f"{self.table}, row {index + 1}: {error}") from error
        return SourceRecord(self.key(index), image, values)

    def size_bytes(self) -> int:
        """Return the total size of all files; a file listed twice counts twice."""
        return sum(int(files.sizes_bytes.clip(min=0).sum()) for files in self.record_files())


@runtime_checkable
class ReadsFiles(Protocol):
    """A dataset that can read its samples from files without changing them."""

    def files_read(self) -> FileSource | None:
        """Return the files and labels that are the samples; None if they are changed, as by a transform."""


def _part(column: Values, indices: Sequence[int]) -> Values:
    if isinstance(column, FileList):
        return column.part(indices)
    if isinstance(column, NameTable):
        return NameTable(column[index] for index in indices)
    return column[np.array(indices, np.int64)]

"""Sources of records: folders of images, tables, files of other programs, and datasets.

Each layout has a folder with its recogniser, reader and writer, against the contracts in protocol.py, and an
entry in layouts.py. A source folder is walked once (listing.py), the layouts claim it (opening.py), and every
file of it is accounted for (account.py).
"""

from __future__ import annotations

from fastload.sources.dataset.source import DatasetSource
from fastload.sources.opening import open_source
from fastload.sources.table.columns import ColumnKind

__all__ = ["ColumnKind", "DatasetSource", "open_source"]

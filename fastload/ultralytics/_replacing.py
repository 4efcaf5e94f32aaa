"""Replacement of parts of Ultralytics while it is patched."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ultralytics.data.base import BaseDataset
from ultralytics.data.build import InfiniteDataLoader
from ultralytics.utils import dist

from fastload.loader.dataloader import DataLoader
from fastload.system.patching import Replacement
from fastload.ultralytics._deferred_samples import (
    Batches,
    BatchesInWorker,
    is_plain_collation,
    sample_replacements,
    unsupported_reason,
)
from fastload.ultralytics._disk import disk_replacements
from fastload.ultralytics._packed import packed_replacements
from fastload.ultralytics._stored import cache_replacements

_plain_init = InfiniteDataLoader.__init__
_plain_ddp_file = dist.generate_ddp_file

# Prefix of the program of a rank, which Ultralytics writes.
_RANK = """if __name__ == "__main__":
    import sys
    sys.path = {path!r}
    import fastload.ultralytics
    fastload.ultralytics.patch()
"""


def replacements(rank_programs: list[str], patch: Callable[[], object]) -> list[Replacement]:
    """Return the replacements of attributes: (owner, name, value).

    Args:
        rank_programs: List to which the files with the programs of ranks are appended.
        patch: Patches Ultralytics, in workers that were not forked.
    """

    @functools.wraps(_plain_ddp_file)
    def generate_ddp_file(trainer: Any) -> str:
        name: str = _plain_ddp_file(trainer)
        file = Path(name)
        file.write_text(_RANK.format(path=sys.path) + file.read_text(encoding="utf-8"), encoding="utf-8")
        rank_programs.append(name)
        return name

    @functools.wraps(_plain_init)
    def init(self: Any, *args: Any, **options: Any) -> None:
        if is_plain_collation(options.get("collate_fn")):
            dataset = options.get("dataset")
            # Determined here, so that the reason is logged once and not by each worker.
            reason = unsupported_reason(dataset) if isinstance(dataset, BaseDataset) else ""
            options["collate_fn"] = Batches(reason)
            options["worker_init_fn"] = BatchesInWorker(options.get("worker_init_fn"), patch)
            options["compile"] = False
        _plain_init(self, *args, **options)

    return [
        (InfiniteDataLoader, "__bases__", (DataLoader,)),
        (InfiniteDataLoader, "__init__", init),
        (dist, "generate_ddp_file", generate_ddp_file),
        *sample_replacements(),
        *cache_replacements(),
        *disk_replacements(),
        *packed_replacements(),
    ]

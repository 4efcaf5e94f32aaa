"""Replacement of parts of Ultralytics while it is patched."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ultralytics.data.base import BaseDataset
from ultralytics.data.build import InfiniteDataLoader
from ultralytics.utils import dist

from fastload.loader.dataloader import DataLoader
from fastload.ultralytics._disk import disk_replacements
from fastload.ultralytics._packed import packed_replacements
from fastload.ultralytics._samples import (
    Batches,
    BatchesInWorker,
    can_wait,
    is_plain_collation,
    sample_replacements,
)
from fastload.ultralytics._stored import cache_replacements

_plain_init = InfiniteDataLoader.__init__
_plain_ddp_file = dist.generate_ddp_file


def replacements() -> list[tuple[Any, str, Any]]:
    """Return what replaces attributes: (owner, name, value)."""
    return [
        (InfiniteDataLoader, "__bases__", (DataLoader,)),
        (InfiniteDataLoader, "__init__", _init),
        (dist, "generate_ddp_file", _generate_ddp_file),
        *sample_replacements(),
        *cache_replacements(),
        *disk_replacements(),
        *packed_replacements(),
    ]


@functools.wraps(_plain_init)
def _init(self: Any, *args: Any, **options: Any) -> None:
    if is_plain_collation(options.get("collate_fn")):
        options["collate_fn"] = Batches()
        options["worker_init_fn"] = BatchesInWorker(options.get("worker_init_fn"))
        options["compile"] = False
        if isinstance(dataset := options.get("dataset"), BaseDataset):
            can_wait(dataset)  # here, so that workers need not say why not
    _plain_init(self, *args, **options)


@functools.wraps(_plain_ddp_file)
def _generate_ddp_file(trainer: Any) -> str:
    """Write the program of a rank, which patches Ultralytics in its turn."""
    name: str = _plain_ddp_file(trainer)
    file = Path(name)
    program = file.read_text(encoding="utf-8")
    after = "\n    from ultralytics.utils import DEFAULT_CFG_DICT\n"
    ours = "\n    import fastload.ultralytics\n    fastload.ultralytics.patch()"
    file.write_text(program.replace(after, ours + after, 1), encoding="utf-8")
    return name

"""What was noted of one loader, by the way that it loads: fastload's changes its number of workers itself."""

from __future__ import annotations

import contextlib
from typing import Any

from fastload.doctor.records import LoaderRecord

_SETTINGS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
_LENGTH_NOTED = "_IterableDataset_len_called"


class Ways:
    """The records of one loader.

    Args:
        name: A short one of its own.
        loader: The loader.

    Attributes:
        name: See above.
        is_tuned: Whether the number of workers may change.
        records: By the number of workers.
        record: That of the present number.
        handed: How many batches all loaders had handed out when this one last did; None where it did not
            since an epoch began.
    """

    def __init__(self, name: str, loader: Any) -> None:
        self.name = name
        self.handed: int | None = None
        settings = {name: getattr(loader, name, None) for name in _SETTINGS}
        settings["num_workers"] = int(settings["num_workers"] or 0)
        self.is_tuned = settings["is_fastload"] = is_fastload(loader)
        settings["device"] = str(getattr(loader, "device", None) or "")
        settings["epoch_batches"] = _epoch_batches(loader)
        self.record = LoaderRecord(name, settings, loader.dataset)
        self.records = {settings["num_workers"]: self.record}

    def clock(self, iterator: Any) -> Any:
        """The clock of one of its iterators; None where that has none."""
        return getattr(iterator, "clock", None) if self.is_tuned else None

    def now(self, iterator: Any) -> LoaderRecord:
        """The record of how an iterator loads by now.

        Args:
            iterator: The loader's.
        """
        before = self.record
        clock = self.clock(iterator)
        if clock is None or clock.num_workers == before.loader["num_workers"]:
            return before
        if clock.num_workers not in self.records:
            settings = {"num_workers": clock.num_workers, "prefetch_factor": clock.prefetch_factor}
            self.records[clock.num_workers] = LoaderRecord(
                self.name, {**before.loader, **settings}, before.dataset
            )
        self.record = self.records[clock.num_workers]
        self.record.take_over(before)
        return self.record


def is_fastload(loader: Any) -> bool:
    """Whether a loader is fastload's, or of a class made of it."""
    return any(kind.__module__.partition(".")[0] == "fastload" for kind in type(loader).__mro__)


def _epoch_batches(loader: Any) -> int | None:
    """How many batches an epoch of a loader has; None where it does not say."""
    # Of an iterable dataset, torch notes that its length was asked for, and warns where it gives more.
    noted = getattr(loader, _LENGTH_NOTED, None)
    try:
        return len(loader)
    except Exception:
        return None
    finally:
        if getattr(loader, _LENGTH_NOTED, None) is not noted:
            with contextlib.suppress(Exception):
                setattr(loader, _LENGTH_NOTED, noted)

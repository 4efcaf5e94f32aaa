"""Results of a comparison of loaders in several settings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from _driver import LoadingTurn

PAGE_CACHE = "page cache"
"""The condition whose values are states, not numbers."""


@dataclass(frozen=True, slots=True)
class SideResult:
    """Measurements of one loader.

    Attributes:
        name: The name of its row in tables.
        turns: Each turn; drift of the machine affects those with the same number alike.
        open_s: Seconds to list or open its dataset and to make the loader.
        first_batch_s: Seconds from the beginning of the first epoch to its first batch; workers start then.
        write_s: Seconds to write its dataset; None if it reads the given files.
        stored_bytes: Size of what it reads.
        memory_bytes: The most memory of all its processes.
        memory_kind: `PSS`, or `RSS` where the system does not measure shared pages.
    """

    name: str
    turns: tuple[LoadingTurn, ...]
    open_s: float
    first_batch_s: float
    write_s: float | None
    stored_bytes: int
    memory_bytes: int
    memory_kind: str

    @property
    def rates(self) -> list[float]:
        """The images/s of each turn."""
        return [turn.samples / turn.seconds for turn in self.turns]

    @property
    def images_per_s(self) -> float:
        """The median rate."""
        return statistics.median(self.rates)

    @property
    def cpu_s_per_1000(self) -> float:
        """The median CPU time of 1000 images."""
        return statistics.median(1000 * turn.cpu_s / turn.samples for turn in self.turns)


@dataclass(frozen=True, slots=True)
class MissingSide:
    """A loader that could not be measured, with the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadSetting:
    """Conditions of a comparison; `shorter_side` is that of the images in pixels, None for unchanged ones."""

    images: int
    workers: int
    shorter_side: int | None
    cache: str

    def values(self) -> dict[str, Any]:
        """Return the conditions by name, in the order of the axes."""
        return {
            "images": self.images,
            "workers": self.workers,
            "shorter side in pixels": self.shorter_side,
            PAGE_CACHE: self.cache,
        }


@dataclass(frozen=True, slots=True)
class SettingResult:
    """Results of all loaders in one setting; `image_bytes` is the mean size of a file."""

    setting: LoadSetting
    image_bytes: float
    sides: tuple[SideResult, ...]
    missing: tuple[MissingSide, ...]

    def side(self, name: str) -> SideResult | None:
        """Return a loader's result by its name."""
        return next((side for side in self.sides if side.name == name), None)


@dataclass(frozen=True, slots=True)
class LoadBench:
    """Complete result; `device` is that of the training steps, None if batches were only loaded."""

    settings: tuple[SettingResult, ...]
    conditions: Mapping[str, Any]
    runs: int
    batch_size: int
    min_s: float
    device: str | None

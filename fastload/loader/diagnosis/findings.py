"""What a diagnosis says: the verdict, its evidence, the fixes in their order, and the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal[
    "storage", "decoding", "transforms", "preparing", "transport", "copy", "model", "main thread", "little"
]
"""What the training waits for most: reading; decoding; other work on samples; one of the last two, where they
were not told apart; moving batches between processes; copying them to the device; the model itself; logging
or other work of the main thread; or nothing that matters, because there is too little work."""


@dataclass(frozen=True, slots=True)
class Fix:
    """Something to do.

    Attributes:
        kind: A short name that stays the same from release to release: `workers`, `pack`, `cache`, …
        action: What to do, with the code or the command.
        gain: The training's throughput with it, as a multiple of the present one; None where that cannot be
            told from what was measured.
        why: What the prediction rests on.
        is_bound: Whether `gain` is the most that it can be, rather than what to expect.
    """

    kind: str
    action: str
    gain: float | None
    why: str
    is_bound: bool = False

    @property
    def gain_text(self) -> str:
        """The gain as people read it: `1.8 ×`."""
        if self.gain is None:
            return "not predicted"
        text = f"{self.gain:.0f} ×" if self.gain >= 10 else f"{self.gain:.1f} ×"
        if round(self.gain, 1) < 1.1:
            return "nothing" if self.gain < 1.02 else f"{self.gain:.2f} ×"
        return f"up to {text}" if self.is_bound else text


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the time from one batch to the next.

    Attributes:
        name: What it goes into.
        seconds: A sample's part, in seconds.
        is_waiting: Whether the model stands still meanwhile.
    """

    name: str
    seconds: float
    is_waiting: bool


@dataclass(frozen=True, slots=True)
class Forecast:
    """The throughput that a number of workers would give.

    Attributes:
        num_workers: How many.
        samples_per_s: What is expected.
    """

    num_workers: int
    samples_per_s: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What holds a training back, and what to do about it. `str()` of it is a report.

    Attributes:
        verdict: What the training waits for most.
        headline: The same as a sentence, with the figure behind it.
        evidence: What was measured, a sentence each.
        fixes: What to do, the first thing first.
        limits: What this machine allows, and what would go beyond, a sentence each.
        samples_per_s: The present throughput.
        shares: Where the time from one batch to the next goes.
        forecast: The throughput by workers.
    """

    verdict: Verdict
    headline: str
    evidence: tuple[str, ...]
    fixes: tuple[Fix, ...]
    limits: tuple[str, ...]
    samples_per_s: float
    shares: tuple[Share, ...] = ()
    forecast: tuple[Forecast, ...] = ()

    def __str__(self) -> str:
        lines = [self.headline, "", "Evidence:", *(f"  - {text}" for text in self.evidence)]
        lines += ["", "What to do, first things first:" if self.fixes else "Nothing to do."]
        for number, fix in enumerate(self.fixes, 1):
            lines += [f"  {number}. {fix.action}", f"     gain: {fix.gain_text} ({fix.why})"]
        if self.limits:
            lines += ["", "Limits of this machine:", *(f"  - {text}" for text in self.limits)]
        return "\n".join(lines)

    __repr__ = __str__

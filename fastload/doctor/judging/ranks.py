"""Comparison of the ranks of one training: the slowest one, its reason, and the network's part of a step."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fastload.doctor.findings import SCRIPTS, TrainingMeasurements, spent
from fastload.doctor.judging.judge import BALANCED
from fastload.system.units import format_duration, format_size

Reason = Literal["its loader", "its model", "its other work"]


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Parts of a rank's mean step, in seconds.

    `wait_s` is the wait for a batch, `model_s` the step without synchronisation and without `work_s`, logging
    and all else that the script itself does; `held_up_s` is waiting for slower ranks.
    """

    rank: int
    machine: str
    wait_s: float
    model_s: float
    work_s: float
    held_up_s: float

    @property
    def needed_s(self) -> float:
        """The time that the rank itself needs."""
        return self.wait_s + self.model_s + self.work_s


@dataclass(frozen=True, slots=True)
class RankComparison:
    """The ranks of a training run; `slowest` and `reason` are None if no rank holds up the others.

    `network_s` is the part of a mean step in which every rank waits for gradients, and `bytes_per_s` the
    size of the gradients divided by the time that exchanging them takes; 0 if unknown. `missing` are ranks
    whose times did not arrive.
    """

    ranks: tuple[RankTimes, ...]
    network_s: float
    gradient_bytes: int
    bytes_per_s: float
    slowest: int | None = None
    reason: Reason | None = None
    missing: tuple[int, ...] = ()

    @property
    def headline(self) -> str:
        """The slowest rank and its reason in a sentence, or that there is none."""
        if self.slowest is None:
            return f"No rank is slower than the others: all {len(self.ranks)} were compared."
        slow, *others = sorted(self.ranks, key=lambda each: each.rank != self.slowest)
        needed, usual, part = slow.needed_s, _usual(others, "needed_s"), _PARTS[self.reason or "its model"]
        text, times = format_duration, (getattr(slow, part), _usual(others, part))
        return (
            f"Rank {self.slowest} holds up the others: a step takes {text(needed)} there and {text(usual)} "
            f"elsewhere, because of {self.reason} ({text(times[0])} instead of {text(times[1])})."
        )

    @property
    def evidence(self) -> tuple[str, ...]:
        """The measurements in sentences."""
        found = []
        held_up_s = statistics.mean(each.held_up_s for each in self.ranks)
        if self.bytes_per_s:
            found.append(
                f"Every rank waits {format_duration(self.network_s)} of each step for gradients: their "
                f"{format_size(self.gradient_bytes)} are exchanged at {format_size(self.bytes_per_s)}/s "
                "(algorithm bandwidth: size of the gradients divided by the time)."
            )
        elif not self.network_s + held_up_s:
            found.append(
                "No gradient synchronisation was seen, which DistributedDataParallel would have timed: "
                "waiting for other ranks counts as the model's step."
            )
        if self.slowest is None and held_up_s > (1 - BALANCED) * self.period_s:
            held_up = format_duration(held_up_s)
            found.append(
                f"The last rank differs from step to step: on average, ranks wait {held_up} for each other."
            )
        if self.missing:
            ranks = ", ".join(map(str, self.missing))
            found.append(f"No times arrived from {'rank' if len(self.missing) == 1 else 'ranks'} {ranks}.")
        if self.slowest is not None:
            found.append(f"All that follows was measured on rank {self.slowest}.")
        return tuple(found)

    @property
    def period_s(self) -> float:
        """The mean step of the slowest rank, with the network."""
        return max(each.needed_s for each in self.ranks) + self.network_s

    def measured_on(self, rank: int, measured: TrainingMeasurements) -> TrainingMeasurements:
        """Divide the steps of a rank's training into its own work, the network and waiting for others."""
        held_up_s = next((each.held_up_s for each in self.ranks if each.rank == rank), 0.0)
        return replace(
            measured,
            network_s=measured.steps * self.network_s,
            held_up_s=measured.steps * held_up_s,
            machines=len({each.machine for each in self.ranks}),
        )


_PARTS: dict[Reason, str] = {"its loader": "wait_s", "its model": "model_s", "its other work": "work_s"}


def compare(
    found: Mapping[int, tuple[str, TrainingMeasurements]],
    gradient_bytes: int = 0,
    missing: Sequence[int] = (),
) -> RankComparison:
    """Compare ranks in lockstep, given their machines and measurements.

    The last rank to finish its backward pass waits for the network alone, so in each step the shortest wait
    is the network's, and what a rank waits longer is waiting for slower ranks.
    """
    measured = [each for _, each in found.values()]
    # torch publishes the times of a step in the next one.
    warm = 1 + max(each.warmup_steps for each in measured)
    synced = [each.synced_s[warm:] for each in measured]
    steps = min(map(len, synced)) or 1
    # Calls of torch.distributed by the script itself.
    calls_s = [spent(each.training, "sync") / max(1, each.steps) for each in measured]
    network_s = sum(map(min, zip(*synced, strict=False))) / steps + min(calls_s)
    ranks = []
    for (rank, (machine, each)), waits_s, call_s in zip(found.items(), synced, calls_s, strict=True):
        sync_s = sum(waits_s[:steps]) / steps + call_s
        work_s = spent(each.training, *SCRIPTS) / max(1, each.steps)
        model_s = max(0.0, each.step_s - work_s - sync_s)
        ranks.append(RankTimes(rank, machine, each.wait_s, model_s, work_s, max(0.0, sync_s - network_s)))
    exchanged_s = [min(step) for step in zip(*(each.exchanged_s[warm:] for each in measured), strict=False)]
    exchanges_s = [taken for taken in exchanged_s if taken > 0]
    compared = RankComparison(
        ranks=tuple(ranks),
        network_s=network_s,
        gradient_bytes=gradient_bytes,
        bytes_per_s=gradient_bytes * len(exchanges_s) / sum(exchanges_s) if exchanges_s else 0.0,
        missing=tuple(missing),
    )
    slow = max(ranks, key=lambda each: each.needed_s)
    others = [each for each in ranks if each is not slow]
    is_in_lockstep = network_s > 0 or any(each.held_up_s for each in others)
    excess_s = slow.needed_s - _usual(others, "needed_s")
    if not is_in_lockstep or excess_s <= (1 - BALANCED) * compared.period_s:
        return compared
    reason = max(_PARTS, key=lambda each: getattr(slow, _PARTS[each]) - _usual(others, _PARTS[each]))
    return replace(compared, slowest=slow.rank, reason=reason)


def _usual(ranks: Sequence[RankTimes], part: str) -> float:
    return float(statistics.median(getattr(each, part) for each in ranks))


def rank_rows(compared: RankComparison) -> list[tuple[str, ...]]:
    """Return the ranks as rows of a table, with its head first."""
    heads = ("rank", "machine", "waits for data", "model", "other work", "network", "waits for ranks")
    rows: list[tuple[str, ...]] = [heads]
    for each in compared.ranks:
        parts = (each.wait_s, each.model_s, each.work_s, compared.network_s, each.held_up_s)
        rows.append((str(each.rank), each.machine, *map(format_duration, parts)))
    return rows

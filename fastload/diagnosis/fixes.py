"""What can be done, and what each thing would gain: predicted from what a sample costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fastload.diagnosis.costs import Costs, spent, startup_s
from fastload.diagnosis.findings import Fix, Verdict
from fastload.diagnosis.measurements import Measurements
from fastload.diagnosis.stepping import stepping_fixes
from fastload.diagnosis.storing import storing_fixes
from fastload.diagnosis.verdicts import Work, is_out_of_shared_memory

LEAST_GAIN = 1.05
"""What is predicted to gain less is not worth the trouble, nor within what can be predicted."""

_EFFORT = {
    "workers": 1.0,
    "no workers": 1.0,
    "persistent workers": 1.0,
    "pin": 1.0,
    "loader": 1.0,
    "cache": 1.0,
    "fewer log writes": 1.0,
    "batch": 1.0,
    "amp": 1.1,
    "channels_last": 1.1,
    "decoder": 1.2,
    "pack": 1.3,
    "shrink": 1.4,
    "device": 1.3,
    "quota": 1.5,
    "transform": 1.6,
    "ddp": 1.6,
}
"""By how much more something has to gain to come before the change of an argument."""


def fixes_of(measured: Measurements, costs: Costs, work: Work, verdict: Verdict) -> tuple[Fix, ...]:
    """What to do, the first thing first: by predicted gain, an argument before a packing before a rewrite.

    Then comes what has only a bound, and what cannot be predicted at all.
    """
    found = list(_candidates(measured, costs, work, verdict))
    worthwhile = [fix for fix in found if fix.gain is None or fix.gain >= LEAST_GAIN]
    return tuple(sorted(worthwhile, key=_rank))


def _rank(fix: Fix) -> tuple[bool, bool, float]:
    gain = 0.0 if fix.gain is None else fix.gain
    return fix.gain is None, fix.is_bound, -gain / _EFFORT.get(fix.kind, 1.3)


def _candidates(measured: Measurements, costs: Costs, work: Work, verdict: Verdict) -> Iterator[Fix]:
    if is_out_of_shared_memory(measured):
        yield from _shared_memory_fixes()
        return
    if verdict == "little":
        yield from _small_fixes(measured)
        return
    if verdict in ("model", "main thread", "copy"):
        yield from stepping_fixes(measured, costs, verdict)
    if verdict == "model":
        return
    if verdict in ("transport", "copy"):
        yield from _transport_fixes(measured, costs)
    yield from _worker_fixes(measured, costs)
    yield from _quota_fixes(measured, costs)
    yield from storing_fixes(measured, costs, work)
    yield from _transform_fixes(measured, costs, work)


def gain_of(costs: Costs, workers: int, changed: Costs, changed_workers: int | None = None) -> float:
    """The throughput after a change, as a multiple of the present one."""
    after = workers if changed_workers is None else changed_workers
    return changed.throughput(after) / costs.throughput(workers)


def _worker_fixes(measured: Measurements, costs: Costs) -> Iterator[Fix]:
    workers = measured.times.num_workers
    best = costs.best_workers()
    if best == workers:
        return
    gain = gain_of(costs, workers, costs, best)
    per_s = 1 / (costs.cpu_s + costs.blocked_s) if costs.cpu_s + costs.blocked_s > 0 else 0.0
    yield Fix(
        "workers",
        f"DataLoader(…, num_workers={best}) in place of num_workers={workers}",
        gain,
        f"a worker makes {per_s:,.0f} samples/s, "
        f"{costs.cpu_s / max(1e-12, costs.cpu_s + costs.blocked_s):.0%} of "
        f"its time on a CPU, and {costs.cpus:g} CPUs are shared with the training; the model takes "
        f"{1 / costs.step_s if costs.step_s else 0:,.0f} samples/s at most",
    )


def _quota_fixes(measured: Measurements, costs: Costs) -> Iterator[Fix]:
    setting = measured.setting
    if setting.usable_cpus >= setting.cpus:
        return
    workers = measured.times.num_workers
    freed = replace(costs, cpus=float(setting.cpus))
    yield Fix(
        "quota",
        f"raise the CPU quota of the container from {setting.usable_cpus:g} to {setting.cpus} "
        f"(docker run --cpus={setting.cpus}, or Kubernetes' resources.limits.cpu)",
        gain_of(costs, workers, freed),
        f"{setting.cpus} CPUs are there, and the quota gives {setting.usable_cpus:g} CPUs' worth of time",
    )


def _transport_fixes(measured: Measurements, costs: Costs) -> Iterator[Fix]:
    workers = measured.times.num_workers
    if workers and not measured.setting.is_fastload:
        # Slots: no copy in the training process, none in the worker beside the one that makes the batch.
        moved = replace(costs, receive_s=0.1 * costs.receive_s, send_s=0.0)
        yield Fix(
            "loader",
            "from fastload import DataLoader, in place of torch.utils.data's",
            max(gain_of(costs, workers, moved), 1.0),
            "its batches are made where the training reads them; sending and receiving them fall away",
        )
    if workers:
        alone = gain_of(costs, workers, costs, 0)
        yield Fix(
            "no workers",
            "DataLoader(…, num_workers=0)",
            alone,
            "a batch that the training process makes itself is sent nowhere",
        )
    if measured.setting.device != "cpu" and not measured.setting.pin_memory:
        yield Fix(
            "pin",
            "DataLoader(…, pin_memory=True) with batch.to(device, non_blocking=True), or fastload's "
            'DataLoader(…, device="cuda")',
            _without_copy(measured),
            "copies out of page-locked memory run beside the model",
        )


def _without_copy(measured: Measurements) -> float:
    times = measured.times
    total_s = times.waiting_s + times.stepping_s
    copy_s = min(0.95 * total_s, spent(measured.training, "copy") + times.copying_s)
    # Page-locked memory halves a copy, and it runs beside what is left (CUDA C++ Best Practices Guide, 10.1).
    return total_s / max(total_s - copy_s, copy_s / 2) if total_s > 0 else 1.0


def _transform_fixes(measured: Measurements, costs: Costs, work: Work) -> Iterator[Fix]:
    if not work.is_told_apart or work.total_s <= 0 or work.transforms_s < 0.15 * work.total_s:
        return
    places = [seen for seen in measured.loading if seen.activity == "transform"]
    slowest = max(places, key=lambda seen: seen.seconds)
    share = slowest.seconds / max(1e-12, sum(seen.seconds for seen in measured.loading))
    workers = measured.times.num_workers
    freed = replace(costs, cpu_s=costs.cpu_s * (1 - share), blocked_s=costs.blocked_s * (1 - share))
    is_normalising = any(word in slowest.place.lower() for word in ("normalize", "totensor", "to_tensor"))
    if is_normalising and measured.setting.device != "cpu":
        yield Fix(
            "device",
            "make uint8 batches, and convert and normalise them on the device: "
            "batch.to(device, non_blocking=True).float().div_(255).sub_(mean).div_(std)",
            gain_of(costs, workers, freed),
            f"{slowest.place} takes {share:.0%} of the time in which samples are made",
        )
        return
    yield Fix(
        "transform",
        f"make {slowest.place} cheaper: do it once before the training, on whole batches, on the device, or "
        "with fastload.transforms",
        gain_of(costs, workers, freed),
        f"it takes {share:.0%} of the time in which samples are made",
        is_bound=True,
    )


def _shared_memory_fixes() -> Iterator[Fix]:
    yield Fix(
        "loader",
        "from fastload import DataLoader, in place of torch.utils.data's",
        None,
        "its batches do not go through /dev/shm, so that the training runs at all",
    )
    yield Fix(
        "shared memory",
        "more shared memory: docker run --shm-size=8g, or mount -o remount,size=8g /dev/shm",
        None,
        "torch's workers put their batches there",
    )


def _small_fixes(measured: Measurements) -> Iterator[Fix]:
    times = measured.times
    total_s = times.first_wait_s + times.waiting_s + times.stepping_s
    started_s = startup_s(measured)
    if times.num_workers == 0 or total_s <= 0:
        return
    # One process warms up once.
    warming_s = measured.warming_s * (1 - 1 / max(1, len(times.loading)))
    busy_s = sum(process.cpu_s + process.blocked_s for process in times.loading) - warming_s
    yield Fix(
        "no workers",
        "DataLoader(…, num_workers=0)",
        total_s / max(1e-9, busy_s + times.stepping_s),
        f"starting and ending workers took {started_s:.2f} s of {total_s:.2f} s, and making all batches "
        f"{busy_s:.2f} s",
    )
    if not measured.setting.persistent_workers and measured.epochs > 1:
        once_s = started_s * (1 - 1 / measured.epochs)
        yield Fix(
            "persistent workers",
            "DataLoader(…, persistent_workers=True)",
            total_s / max(1e-9, total_s - once_s),
            f"workers were started {measured.epochs} times",
        )

"""What can be done, and what each thing would gain: predicted from what a sample costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from fastload.loader.diagnosis.costs import Costs, on_cpu_share, spent, waited_for_cpu_s
from fastload.loader.diagnosis.extent import batch_samples, made_samples
from fastload.loader.diagnosis.findings import Fix, Verdict
from fastload.loader.diagnosis.measurements import Measurements, Store
from fastload.loader.diagnosis.starting import small_fixes, starting_fixes
from fastload.loader.diagnosis.stepping import stepping_fixes
from fastload.loader.diagnosis.storing import storing_fixes
from fastload.loader.diagnosis.verdicts import Work, attributed, exhausted

LEAST_GAIN = 1.05
"""What is predicted to gain less is not worth the trouble, nor within what can be predicted."""

MOST_WAITING = 0.4
"""Workers that wait for a free CPU for a larger share of their time are too many."""

SLOT_S_PER_BYTE = 0.11e-9
"""What making a batch of ready samples in a slot takes (benchmarks/bench_transport.py: two workers make
154 MB in 8.4 ms). torch's workers ask for new shared memory each time, and take eight times as long."""

PAGES_S_PER_BYTE = 0.15e-9
"""What the training process takes for new pages of shared memory, to touch them and to let go of them
(measured: 0.25 ms/MB of batches of 4 to 17 MB that are summed up, the sum included)."""

_NORMALISING = re.compile(r"normali[sz]e|to_?tensor|to_?dtype|convert_?image_?dtype|to_?float", re.IGNORECASE)

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
    ended = exhausted(measured)
    if ended is not None:
        yield from _descriptor_fixes() if ended == "open files" else _shared_memory_fixes()
        return
    yield from starting_fixes(measured)
    if verdict == "little":
        yield from small_fixes(measured)
        return
    if verdict in ("model", "main thread", "copy"):
        yield from stepping_fixes(measured, costs, verdict)
    if verdict in ("transport", "copy"):
        yield from _transport_fixes(measured, costs, work)
    yield from _worker_fixes(measured, costs, work)
    yield from _quota_fixes(measured, costs)
    if verdict != "model":
        yield from storing_fixes(measured, costs, work)
        yield from _transform_fixes(measured, costs, work)


def gain_of(costs: Costs, workers: int, changed: Costs, changed_workers: int | None = None) -> float:
    """The throughput after a change, as a multiple of the present one."""
    after = workers if changed_workers is None else changed_workers
    return changed.throughput(after) / costs.throughput(workers)


def _worker_fixes(measured: Measurements, costs: Costs, work: Work) -> Iterator[Fix]:
    workers = measured.times.num_workers
    best = costs.best_workers()
    if best == workers:
        return
    gain = gain_of(costs, workers, costs, best)
    if gain < LEAST_GAIN and _is_crowded(measured, best):
        # Not slower: 16 workers on two CPUs took as much CPU time a sample as two did (measured with PIL).
        yield Fix(
            "workers",
            f"DataLoader(…, num_workers={best}) in place of num_workers={workers}",
            None,
            f"{workers} workers wait for a free CPU {_waiting_share(measured):.0%} of their time: fewer give "
            "as much, and each is a process of some 200 MB",
        )
        return
    per_s = 1 / (costs.cpu_s + costs.blocked_s) if costs.cpu_s + costs.blocked_s > 0 else 0.0
    threads = measured.setting.threads if measured.setting.device == "cpu" else 1
    # Steps on the CPU were timed beside fewer workers: their threads would wait for each other.
    is_in_the_way = threads > 1 and best > workers and costs.is_saturated(best)
    also = " and torch.set_num_threads(1)" if is_in_the_way else ""
    crowding = f"; the step's own {threads} threads would wait for CPUs" if is_in_the_way else ""
    yield Fix(
        "workers",
        f"DataLoader(…, num_workers={best}) in place of num_workers={workers}{also}",
        gain,
        f"a worker makes {per_s:,.0f} samples/s, "
        f"{costs.cpu_s / max(1e-12, costs.cpu_s + costs.blocked_s):.0%} of "
        f"its time on a CPU, and {costs.cpus:g} CPUs are shared with the training; the model takes "
        f"{1 / costs.step_s if costs.step_s else 0:,.0f} samples/s at most{crowding}",
        # Several at once may get no more than one from a disk whose speed nobody measured.
        is_bound=is_in_the_way
        or (best > workers and work.storage_s > 0.5 * work.total_s and not _is_measured(measured.store)),
    )


def _is_crowded(measured: Measurements, best: int) -> bool:
    """Whether far more workers compute than there are CPUs."""
    return measured.times.num_workers >= 2 * max(1, best) and _waiting_share(measured) > MOST_WAITING


def _waiting_share(measured: Measurements) -> float:
    """Of the time in which workers made batches, how much they waited for a CPU."""
    return waited_for_cpu_s(measured) / max(1e-12, sum(process.busy_s for process in measured.times.loading))


def _is_measured(store: Store | None) -> bool:
    """Whether it is known what the disk gives to several at once."""
    return store is not None and store.is_cold and store.parallel_per_s > 0


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


def _transport_fixes(measured: Measurements, costs: Costs, work: Work) -> Iterator[Fix]:
    workers = measured.times.num_workers
    if workers and not measured.setting.is_fastload:
        moved = _in_slots(measured, costs, work)
        yield Fix(
            "loader",
            "from fastload import DataLoader, in place of torch.utils.data's",
            max(gain_of(costs, workers, moved), 1.0),
            "its batches are made where the training reads them; sending and receiving them fall away",
        )
    if workers and costs.best_workers():
        # Where none is best, that is what is said of the number of workers.
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


def _in_slots(measured: Measurements, costs: Costs, work: Work) -> Costs:
    """The costs where batches are made in memory that is used again and again, and read there."""
    bytes_each = measured.times.batch_bytes / batch_samples(measured)
    # What the user's own function collates, it goes on to collate.
    collating = [seen for seen in measured.loading if seen.activity == "collate"]
    torchs_s = sum(seen.seconds for seen in collating if not seen.place)
    share = torchs_s / sum(seen.seconds for seen in collating) if torchs_s > 0 else 0.0
    collate_s = share * on_cpu_share(measured) * work.collate_s / made_samples(measured)
    spared_s = max(0.0, collate_s - SLOT_S_PER_BYTE * bytes_each)
    # No more than half of a step is taken for the pages' first touch and their end.
    pages_s = min(PAGES_S_PER_BYTE * bytes_each, 0.5 * costs.step_s)
    return replace(
        costs,
        step_s=costs.step_s - pages_s,
        training_cpu_s=max(0.0, costs.training_cpu_s - pages_s),
        cpu_s=max(0.0, costs.cpu_s - spared_s),
        receive_s=0.1 * costs.receive_s,
        send_s=0.0,
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
    known = attributed(measured.loading)
    places = [seen for seen in known if seen.activity == "transform"]
    slowest = max(places, key=lambda seen: seen.seconds)
    moved = [seen for seen in places if _NORMALISING.search(seen.place)]
    is_moved = slowest in moved and measured.setting.device != "cpu"
    taken_s = sum(seen.seconds for seen in moved) if is_moved else slowest.seconds
    share = taken_s / max(1e-12, sum(seen.seconds for seen in known))
    workers = measured.times.num_workers
    freed = replace(costs, cpu_s=costs.cpu_s * (1 - share), blocked_s=costs.blocked_s * (1 - share))
    if is_moved:
        yield Fix(
            "device",
            "make uint8 batches, and convert and normalise them on the device: "
            "batch.to(device, non_blocking=True).float().div_(255).sub_(mean).div_(std)",
            gain_of(costs, workers, freed),
            f"{share:.0%} of the time in which samples are made: {'; '.join(s.place for s in moved[:3])}",
        )
        return
    yield Fix(
        "transform",
        f"make {slowest.place or 'transforms'} cheaper: do it once before the training, on whole batches, on "
        "the device, or with fastload.transforms",
        gain_of(costs, workers, freed),
        f"it takes {share:.0%} of the time in which samples are made",
        is_bound=True,
    )


def _descriptor_fixes() -> Iterator[Fix]:
    yield Fix(
        "open files",
        "more open files: 'ulimit -n 65536' before the training (docker run --ulimit nofile=65536:65536)",
        None,
        "torch's workers pass a descriptor for each tensor on its way, and for each that the training keeps",
    )
    yield Fix(
        "sharing strategy",
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        None,
        "tensors then go by name, and take no descriptor while nobody uses them",
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

"""The verdict and what speaks for it, in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fastload.loader.diagnosis.costs import Costs, receive_s, spent, startup_s
from fastload.loader.diagnosis.extent import batch_samples, made_samples, seen_s
from fastload.loader.diagnosis.findings import Verdict
from fastload.loader.diagnosis.measurements import Measurements, Seen
from fastload.loader.diagnosis.stepping import works_and_rest
from fastload.loader.diagnosis.storing import LEAST_SHARE, is_kept_by_kernel, was_kept
from fastload.loader.diagnosis.verdicts import Work, exhausted
from fastload.system.units import count, milliseconds, size

_MOST_PLACES = 3
_LEAST_SHARE = 0.05
_LEAST_BUSY_S = 0.5

_NAMES: dict[Verdict, str] = {
    "storage": "Storage is the limit",
    "decoding": "Decoding is the limit",
    "transforms": "Transforms are the limit",
    "preparing": "Making samples (decoding and transforms) is the limit",
    "transport": "Making and moving batches is the limit",
    "copy": "Copying batches to the device is the limit",
    "model": "The model itself is the limit",
    "main thread": "Logging, or other work of the main thread, is the limit",
    "little": "There is too little work for loading to matter",
}

_ENDED = {
    "open files": "it had as many files open as 'ulimit -n' allows",
    "shared memory": "/dev/shm was full",
}


def headline_of(measured: Measurements, work: Work, verdict: Verdict) -> str:
    """The verdict as a sentence, with the figure behind it."""
    times = measured.times
    ended = exhausted(measured)
    if ended is not None:
        return f"{_NAMES[verdict]}: the training ended because {_ENDED[ended]}."
    waits = f"the training waits for data {times.waiting_share:.0%} of the time"
    part_s = {
        "storage": work.storage_s,
        "decoding": work.decoding_s,
        "transforms": work.transforms_s,
        "preparing": work.transforms_s,
    }.get(verdict)
    if part_s is not None and work.total_s > 0:
        return f"{_NAMES[verdict]}: {waits}, and {part_s / work.total_s:.0%} of loading goes into it."
    if verdict == "main thread":
        all_s = spent(works_and_rest(measured), "work", "model", "copy")
        share = spent(measured.training, "work") / all_s
        return f"{_NAMES[verdict]}: it takes {share:.0%} of the step."
    if verdict == "little":
        return f"{_NAMES[verdict]}: {times.samples:,} samples took {seen_s(measured):.2f} s in all."
    return f"{_NAMES[verdict]}: {waits}."


def evidence_of(measured: Measurements, costs: Costs, work: Work) -> Iterator[str]:
    """What was measured, a sentence each, the steps first."""
    yield from _step_evidence(measured)
    yield from _loading_evidence(measured, costs, work)
    yield from _places(measured.loading, "making samples", ("transform", "decode", "load", "read"))
    yield from _places(measured.training, "the main thread's steps", ("work", "model", "copy"))
    if (started_s := startup_s(measured)) > 0.1 * seen_s(measured):
        yield f"Starting and ending workers took {started_s:.2f} s in {count(measured.epochs, 'epoch')}."
    yield from _beside_the_model(measured, costs)
    yield from _balance(measured)
    if measured.slow:
        slowest = ", ".join(f"{one.index} ({one.seconds:.2f} s)" for one in measured.slow[:5])
        yield f"Slowest samples, by index: {slowest}."
    yield from _store_evidence(measured, work)
    if measured.gpu_busy:
        mean = sum(measured.gpu_busy) / len(measured.gpu_busy)
        yield f"The GPU was busy {mean:.0%} of the time."
    if measured.error:
        yield f"The training ended with {measured.error}"


def _beside_the_model(measured: Measurements, costs: Costs) -> Iterator[str]:
    # Every trial begins with the model as it is.
    its_s = min((trial.seconds for trial in measured.trials), default=costs.step_s)
    if its_s < 0.5 * costs.step_s:
        batch = batch_samples(measured)
        yield (
            f"Trained by itself, the model takes {milliseconds(its_s * batch)} of the "
            f"{milliseconds(costs.step_s * batch)} of a step: the rest is what else the script does there."
        )


def _step_evidence(measured: Measurements) -> Iterator[str]:
    times = measured.times
    if times.batches < 1:
        yield "No batch came."
        return
    if times.batches < 2:
        yield (
            f"Only {count(times.batches, 'batch', 'batches')} of "
            f"{count(times.batch_size, 'sample')} was seen."
        )
        return
    steps = times.batches
    yield (
        f"{times.samples_per_s:,.0f} samples/s in batches of {times.batch_size}: of "
        f"{milliseconds(_mean_s(measured))} a "
        f"batch, {milliseconds(times.waiting_s / steps)} are waited for data and "
        f"{milliseconds(times.stepping_s / steps)} are the step."
    )
    if times.stepping_s > 0:
        yield f"Without waiting, the training would take {times.samples / times.stepping_s:,.0f} samples/s."


def _mean_s(measured: Measurements) -> float:
    return (measured.times.waiting_s + measured.times.stepping_s) / max(1, measured.times.batches)


def _loading_evidence(measured: Measurements, costs: Costs, work: Work) -> Iterator[str]:
    times = measured.times
    if not any(process.batches for process in times.loading):
        return
    made = made_samples(measured)
    who = (
        "the training process loads"
        if not times.num_workers
        else count(times.num_workers, "worker") + " load"
    )
    who = who + "s" if times.num_workers == 1 else who
    delayed_s = sum(process.delayed_s for process in times.loading) / made
    yield (
        f"{who[0].upper()}{who[1:]}: a sample takes {milliseconds(costs.cpu_s)} of CPU time, "
        f"{milliseconds(costs.blocked_s)} of waiting "
        f"(for a disk, a lock, a sleep) and {milliseconds(delayed_s)} of waiting for a free CPU."
    )
    if work.total_s > 0:
        names = ("reading", "decoding", "transforms", "making batches")
        if not work.is_told_apart:
            names = ("waiting", "", "making samples", "making batches")
        seconds = (work.storage_s, work.decoding_s, work.transforms_s, work.collate_s)
        told = [f"{n} {s / work.total_s:.0%}" for n, s in zip(names, seconds, strict=True) if n and s > 0]
        yield f"Of loading's time: {', '.join(told)}."
    received_s = receive_s(measured)
    if times.num_workers and received_s > 0.1 * times.waiting_s:
        yield (
            "Taking batches in took the training process "
            f"{received_s / max(1e-12, times.waiting_s):.0%} of its waits."
        )
    if measured.sending_cpu_s > 0.1 * costs.cpu_s * made:
        yield f"Sending takes workers {milliseconds(measured.sending_cpu_s / made)} of CPU time a sample."


def _places(seen: tuple[Seen, ...], what: str, activities: tuple[str, ...]) -> Iterator[str]:
    """The lines of code that take most."""
    taken: dict[str, float] = defaultdict(float)
    for one in seen:
        if one.activity in activities:
            taken[one.place] += one.seconds
    all_s = sum(taken.values())
    told = [
        f"{place}: {taken[place] / all_s:.0%}"
        for place in sorted(taken, key=lambda place: -taken[place])[:_MOST_PLACES]
        if place and taken[place] >= _LEAST_SHARE * all_s
    ]
    if told:
        yield f"Of {what}, by line: {'; '.join(told)}."


def _balance(measured: Measurements) -> Iterator[str]:
    busy = [process.busy_s for process in measured.times.loading]
    # Of several epochs each has workers of its own.
    if len(busy) < 2 or sum(busy) < _LEAST_BUSY_S or len(busy) != measured.times.num_workers:
        return
    mean_s = sum(busy) / len(busy)
    if max(busy) > 1.5 * mean_s:
        slowest = busy.index(max(busy))
        yield (
            f"Worker {slowest} was busy {max(busy) / mean_s:.1f} times as long as the average one: "
            "look at its samples."
        )


def _store_evidence(measured: Measurements, work: Work) -> Iterator[str]:
    store = measured.store
    if store is None:
        return
    if store.random_per_s:
        state = "from the disk" if store.is_cold else "out of the page cache"
        yield (
            f"Samples {state}{f' ({store.kind})' if store.kind else ''}: {store.random_per_s:,.0f} a second "
            "one by one, "
            f"{store.parallel_per_s:,.0f} by several at once; {milliseconds(store.latency_s)} to the "
            "first byte."
        )
    if store.note:
        yield store.note
    if work.storage_s < LEAST_SHARE * work.total_s or work.total_s <= 0:
        return
    if was_kept(measured):
        first_s, *_, last_s = measured.epoch_waits_s
        yield (
            f"Only the first epoch waits for the disk: {milliseconds(first_s)} a batch, and "
            f"{milliseconds(last_s)} in the last one. What is read once stays in memory."
        )
    elif is_kept_by_kernel(store, measured.limits):
        yield (
            f"The data take {size(store.size_bytes)}, less than half of the memory that is available: once "
            "read, the page cache keeps them by itself."
        )

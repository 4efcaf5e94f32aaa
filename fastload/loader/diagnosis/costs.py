"""What a sample costs, and the throughput that follows from that: the model behind every predicted gain."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from fastload.loader.diagnosis.extent import (
    batch_samples,
    epoch_batches,
    goes_on,
    made_samples,
    seen_s,
)
from fastload.loader.diagnosis.measurements import Activity, Measurements, Seen
from fastload.loader.times import EpochTimes

MOST_WORKERS = 32
"""More are never advised: each is a Python process of some 200 MB."""

WORKERS_A_CPU = 4
"""So many workers for each CPU are advised at most, eight where there are few CPUs: processes that mostly
wait still wake each other up."""

WORKER_START_S = 0.03
"""What starting and ending a worker takes, where none was started yet: forks of a process that has imported
torch took 15 to 45 ms of the training process (measured with two and eight workers on two CPUs)."""

MOST_FORK_S = 0.045
"""Of what starting a worker took, so much at most is the training process's, one worker after the other. What
goes beyond is the worker's own, importing where it was spawned and opening its dataset, beside the others."""

RECEIVING_S, RECEIVING_S_PER_BYTE = 0.4e-3, 0.1e-9
SENDING_S, SENDING_S_PER_BYTE = 0.4e-3, 0.3e-9
"""CPU time that a batch of two tensors takes the training process and the worker on its way through torch's
own queue and shared memory, where there is no worker yet to be seen doing it. Measured on the jobs of
benchmarks/bench_transport.py: some 0.25 ms a tensor on either side, and the first touch of shared pages."""

SHARING_S, SHARING_S_PER_BYTE = 0.3e-3, 0.55e-9
"""By how much longer torch's workers make a batch of two tensors than the training process does: they put it
into shared memory that is new each time (measured with `default_collate`: 0.16 ms a tensor, and the bytes of
one of 4 KB to 19 MB)."""

SATURATED = 0.9
"""Where so much of all CPUs is taken, threads that wait for each other wait for CPUs as well."""

LOOKING = 0.01
"""Of the time in which a process made batches, so much it waited for the thread that looked at it."""

CHILLED, MOST_CHILLED, MOST_CHILLED_S = 0.03, 0.5, 0.5e-3
"""What runs or sleeps for long leaves the code and the data of what comes after it out of the CPU's caches:
that takes longer by so much of it, by no more than half of its own time, and by no more than filling the
caches takes (measured: steps of 1 ms and batches of 0.5 ms took 0.35 and 0.3 ms longer behind 10 to 160 ms of
writing or of JSON, samples of 0.25 ms 0.1 ms longer behind photos that took 9 ms each, samples of 0.75 ms 0.3
to 0.6 ms longer behind waits of 5 to 66 ms)."""

_OPENCV = re.compile(r"\bcv2\b|OpenCV")

ENOUGH = 0.97
"""Of the best throughput that any number of workers gives: the least number that gives so much is advised."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a sample costs, in seconds.

    Attributes:
        step_s: The training's step, the wait for a CPU left out.
        receive_s: Taking it in from a worker, in the training process.
        cpu_s: Making it: CPU time.
        blocked_s: Making it: waiting for something else than a CPU.
        beside_share: CPU time of OpenCV's other threads for each second of `cpu_s`.
        sharing_s: Of `cpu_s`, what goes into new shared memory, which no workers do not need.
        send_s: Sending it to the training process: a worker's CPU time beside making others.
        training_cpu_s: The CPU time of the training process, of all its threads.
        cpus: The CPUs' worth of time that all processes share.
        most_per_s: The samples a second that the storage gives at most, however many ask.
        fork_s: What each worker adds to the start of an epoch, one after the other; 0 where workers live on.
        opening_s: What a worker then does by itself before its first batch, beside the others.
        epoch_samples: How many samples an epoch has.
    """

    step_s: float
    receive_s: float
    cpu_s: float
    blocked_s: float
    send_s: float
    training_cpu_s: float
    cpus: float
    most_per_s: float = math.inf
    fork_s: float = 0.0
    opening_s: float = 0.0
    beside_share: float = 0.0
    sharing_s: float = 0.0
    epoch_samples: float = math.inf

    def rate(self, workers: int) -> float:
        """Samples a second with so many workers: the least of what each part can give."""
        load_s = self._load_cpu_s(workers) + self.blocked_s
        all_cpus = self._most_of_cpus(workers)
        if workers == 0:
            return min(_per_s(1, load_s + self.step_s), all_cpus, self.most_per_s)
        return min(
            _per_s(1, self.step_s + self.receive_s),
            _per_s(workers, max(load_s, self.send_s)),
            all_cpus,
            self.most_per_s,
        )

    def is_saturated(self, workers: int) -> bool:
        """Whether so many workers and the training take nearly all the CPUs there are."""
        return self.rate(workers) >= SATURATED * self._most_of_cpus(workers)

    def _most_of_cpus(self, workers: int) -> float:
        """Samples a second, if the CPUs were all that is needed."""
        sent_s = self.send_s if workers else 0.0
        load_s = self._load_cpu_s(workers) * (1 + self.beside_share)
        return _per_s(self.cpus, load_s + self.training_cpu_s + sent_s)

    def _load_cpu_s(self, workers: int) -> float:
        """The CPU time of making a sample."""
        return self.cpu_s if workers else max(0.0, self.cpu_s - self.sharing_s)

    def start_s(self, workers: int) -> float:
        """What starting so many workers takes, in each epoch."""
        if not workers:
            return 0.0
        # As many open their datasets at a time as there are CPUs.
        return self.fork_s * workers + self.opening_s * max(1.0, workers / max(1.0, self.cpus))

    def throughput(self, workers: int) -> float:
        """Samples a second over a whole epoch, the start of its workers included."""
        rate = self.rate(workers)
        if math.isinf(self.epoch_samples) or math.isinf(rate) or rate <= 0:
            return rate
        return self.epoch_samples / (self.epoch_samples / rate + self.start_s(workers))

    def best_workers(self) -> int:
        """The least number of workers with which an epoch is nearly as short as any number makes it."""
        most = min(MOST_WORKERS, max(8, round(WORKERS_A_CPU * self.cpus)))
        speeds = [self.throughput(workers) for workers in range(most + 1)]
        return next(workers for workers, speed in enumerate(speeds) if speed >= ENOUGH * max(speeds))


def costs_of(measured: Measurements) -> Costs:
    """What a sample costs, of what was measured.

    Making and taking are both costed by the batch, and divided by one number of samples.
    """
    times = measured.times
    made, samples = made_samples(measured), batch_samples(measured)
    # The first batch's wait is not among the waits, its step is.
    taken = max(1, times.batches) * samples
    lasting = 1 - warming_s(times) / times.stepping_s if times.stepping_s > 0 else 1.0
    step_s = max(0.0, times.stepping_s * lasting - measured.training_delayed_s) / taken
    busy_s = sum(process.busy_s for process in times.loading)
    cpu_s = min(busy_s, sum(process.cpu_s for process in times.loading))
    looked_s = LOOKING * busy_s if measured.loading else 0.0
    blocked_s = max(0.0, busy_s - cpu_s - waited_for_cpu_s(measured) - looked_s) / made
    training_cpu_s = step_s if measured.training_cpu_s is None else lasting * measured.training_cpu_s / taken
    received_s, sent_s = receive_s(measured) / taken, measured.sending_cpu_s / made
    if not times.num_workers and not measured.setting.is_fastload:
        received_s = (RECEIVING_S + RECEIVING_S_PER_BYTE * times.batch_bytes) / samples
        sent_s = (SENDING_S + SENDING_S_PER_BYTE * times.batch_bytes) / samples
    sharing_s = 0.0
    if times.num_workers and not measured.setting.is_fastload:
        collate_s = on_cpu_share(measured) * sum(process.collate_s for process in times.loading) / made
        sharing_s = min(collate_s, (SHARING_S + SHARING_S_PER_BYTE * times.batch_bytes) / samples)
    fork_s, opening_s = _starts_s(measured)
    return Costs(
        step_s=step_s,
        receive_s=received_s,
        cpu_s=cpu_s / made,
        blocked_s=blocked_s,
        send_s=sent_s,
        training_cpu_s=training_cpu_s,
        cpus=measured.setting.usable_cpus,
        most_per_s=_most_per_s(measured, blocked_s),
        fork_s=fork_s,
        opening_s=opening_s,
        beside_share=measured.helping_cpu_s / cpu_s if _uses_opencv(measured) else 0.0,
        epoch_samples=epoch_batches(measured) * samples,
        sharing_s=sharing_s,
    )


def _uses_opencv(measured: Measurements) -> bool:
    """Whether threads that helped to make samples may have been OpenCV's.

    Those of torch, one in a worker, hardly help with one sample: they spin until they are needed again.
    """
    return any(_OPENCV.search(seen.place) for seen in measured.loading)


def chilled_s(own_s: float, before_s: float) -> float:
    """How much of what something took was due to cold caches.

    Args:
        own_s: What it took.
        before_s: What ran before it each time.
    """
    return min(CHILLED * before_s, MOST_CHILLED * own_s, MOST_CHILLED_S)


def with_warm_steps(costs: Costs, before_s: float, batch: float) -> Costs:
    """What a sample costs where steps no longer follow what left the CPU's caches cold.

    Args:
        costs: What it costs now.
        before_s: For how long that runs or sleeps, of each sample.
        batch: Samples a step.
    """
    cold_s = chilled_s(batch * costs.step_s, batch * before_s) / batch
    return replace(
        costs, step_s=costs.step_s - cold_s, training_cpu_s=max(0.0, costs.training_cpu_s - cold_s)
    )


def warming_s(times: EpochTimes) -> float:
    """What the very first step took beyond any other: threads that start, algorithms that are tried.

    Where so many steps were taken that not all of them are known, that is nothing beside them.
    """
    first, *others = times.steps_s or (0.0,)
    has_first = len(times.steps_s) >= times.batches - 1
    return max(0.0, first - max(others)) if others and has_first else 0.0


def _starts_s(measured: Measurements) -> tuple[float, float]:
    """What starting workers takes in each epoch: each, one after the other, and each beside the others."""
    if measured.setting.persistent_workers or goes_on(measured):
        return 0.0, 0.0
    workers = measured.times.num_workers
    if not workers:
        return WORKER_START_S, 0.0
    whole_s = startup_s(measured) / max(1, measured.epochs)
    fork_s = min(MOST_FORK_S, whole_s / workers)
    rounds = max(1.0, workers / max(1.0, measured.setting.usable_cpus))
    return fork_s, (whole_s - fork_s * workers) / rounds


def startup_s(measured: Measurements) -> float:
    """What starting workers took, in all epochs: the first waits, without the making of their batches."""
    times = measured.times
    if times.num_workers == 0:
        return 0.0
    batches = sum(process.batches for process in times.loading)
    busy_s = sum(process.busy_s for process in times.loading)
    batch_s = busy_s / batches if batches else 0.0
    return max(0.0, times.first_wait_s - measured.epochs * batch_s)


def receive_s(measured: Measurements) -> float:
    """How much of the waits went into taking batches in, rather than waiting for them, or for a CPU.

    Where nobody looked, it is none. Copies to the device count, where the loader makes them.
    """
    times = measured.times
    received = spent(measured.training, "receive")
    if measured.receiving_cpu_s is not None:
        received = min(received, measured.receiving_cpu_s)
    elif times.stepping_s > 0:
        # The main thread got a CPU no sooner than in its steps.
        received *= max(0.0, 1 - measured.training_delayed_s / times.stepping_s)
    return min(times.waiting_s, received + times.copying_s)


def on_cpu_share(measured: Measurements) -> float:
    """Of the time in which samples were made, waits for something else left out, how much was on a CPU."""
    loading = measured.times.loading
    busy_s = sum(process.busy_s for process in loading)
    cpu_s = min(busy_s, sum(process.cpu_s for process in loading))
    running_s = cpu_s + waited_for_cpu_s(measured)
    return cpu_s / running_s if running_s > 0 else 1.0


def spent(seen: tuple[Seen, ...], *activities: Activity) -> float:
    """How many seconds a thread was seen doing these things."""
    return sum(one.seconds for one in seen if one.activity in activities)


def waited_for_cpu_s(measured: Measurements) -> float:
    """How long making batches waited for a CPU.

    Where the system does not tell, but all the CPUs there are were in use, nothing else was waited for.
    """
    loading, times = measured.times.loading, measured.times
    delayed_s = sum(process.delayed_s for process in loading)
    busy_s, cpu_s = sum(p.busy_s for p in loading), sum(p.cpu_s for p in loading)
    wall_s = seen_s(measured)
    used = cpu_s + measured.sending_cpu_s + (measured.training_cpu_s or 0.0)
    # Nine tenths: the rest goes into what else a system does.
    if delayed_s == 0 and times.num_workers and used >= 0.9 * measured.setting.usable_cpus * wall_s > 0:
        return max(0.0, busy_s - cpu_s)
    return min(delayed_s, max(0.0, busy_s - cpu_s))


def _most_per_s(measured: Measurements, blocked_s: float) -> float:
    """What the storage gives at most, if it is cold and the training waits for it."""
    store = measured.store
    if store is None or not store.is_cold or store.parallel_per_s <= 0 or blocked_s <= 0:
        return math.inf
    # Waits much shorter than those for the bare disk are waits for the page cache: most files come from
    # there.
    cold_s = 1 / store.random_per_s if store.random_per_s else 1 / store.parallel_per_s
    if blocked_s < 0.3 * cold_s:
        return math.inf
    times = measured.times
    seconds = times.waiting_s + times.stepping_s
    present_per_s = (times.batches - 1) * batch_samples(measured) / seconds if seconds > 0 else 0.0
    return max(store.parallel_per_s, present_per_s)


def _per_s(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else math.inf

"""What can be done where the training's own step is the limit: the model, logging, copies to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fastload.loader.diagnosis.costs import Costs, chilled_s, spent
from fastload.loader.diagnosis.extent import batch_samples
from fastload.loader.diagnosis.findings import Fix, Verdict
from fastload.loader.diagnosis.measurements import Measurements, Seen
from fastload.system.units import milliseconds

WRITES_LEFT = 0.1
"""Of ten log writes, one is left."""

COPY_S, COPIED_BYTES_PER_S = 0.1e-3, 2e9
"""A copy to a GPU takes no longer: its launch, and half of what PCIe 3.0 x16 gives out of memory that is not
page-locked (some 4 GB/s). What is seen beyond is the wait for the steps before it."""

_MOST_PLACES = 3

_MOST_IDLE = 0.5
"""A GPU, or a CPU, that is idle for more than this in the steps waits for something that costs a step, not a
sample: a larger batch shares it among more samples."""

_TRIALS = {
    "batch": "a batch twice as large (batch_size={doubled}; adapt the learning rate)",
    "amp": "automatic mixed precision: with torch.autocast({device!r}, dtype=torch.bfloat16): …",
    "channels_last": "model.to(memory_format=torch.channels_last), and the images too",
}


def stepping_fixes(measured: Measurements, costs: Costs, verdict: Verdict) -> Iterator[Fix]:
    """What makes the step shorter."""
    yield from _work_fixes(measured, costs)
    if verdict == "model":
        yield from _model_fixes(measured, costs)
        if measured.uses_data_parallel:
            yield Fix(
                "ddp",
                "torch.nn.parallel.DistributedDataParallel, one process a GPU, in place of DataParallel",
                None,
                "DataParallel copies the model to every GPU in each step, from one Python thread",
            )


def _work_fixes(measured: Measurements, costs: Costs) -> Iterator[Fix]:
    """Doing less often what is not the model: logging, saving, drawing."""
    works = sorted((s for s in measured.training if s.activity == "work"), key=lambda s: -s.seconds)
    places = list(dict.fromkeys(seen.place for seen in works if seen.place))[:_MOST_PLACES]
    all_s = spent(works_and_rest(measured), "work", "model", "copy")
    if not works or all_s <= 0:
        return
    share = sum(seen.seconds for seen in works) / all_s
    workers = measured.times.num_workers
    freed = _with_fewer_writes(costs, share, batch_samples(measured), workers)
    yield Fix(
        "fewer log writes",
        f"log, save and draw ten times less often than now{': ' if places else ''}{'; '.join(places)}",
        freed.throughput(workers) / costs.throughput(workers),
        f"all that is logged, saved and the like takes {share:.0%} of the step, and a tenth of that would be "
        "left",
    )


def _with_fewer_writes(costs: Costs, share: float, batch: float, workers: int) -> Costs:
    """What a sample costs with a tenth of the writes, which take a share of the step now."""
    fewer = 1 - WRITES_LEFT
    written_s = batch * share * costs.step_s
    cold_step_s = fewer * chilled_s(batch * (1 - share) * costs.step_s, written_s) / batch
    # Workers load beside the writes, the training process right after them.
    cold_load_s = 0.0 if workers else fewer * chilled_s(batch * costs.cpu_s, written_s) / batch
    return replace(
        costs,
        cpu_s=costs.cpu_s - cold_load_s,
        step_s=costs.step_s * (1 - share * fewer) - cold_step_s,
        training_cpu_s=max(0.0, costs.training_cpu_s * (1 - share * fewer) - cold_step_s),
    )


def with_bounded_copies(measured: Measurements) -> Measurements:
    """The measurements, with no more copying to a GPU than copies can take: the rest is the model's.

    A copy out of ordinary memory waits until the GPU has done the steps before it, and is seen doing so.
    """
    times = measured.times
    copied_s = spent(measured.training, "copy")
    most_s = times.batches * (COPY_S + times.batch_bytes / COPIED_BYTES_PER_S)
    if measured.setting.device != "cuda" or copied_s <= most_s:
        return measured
    share = most_s / copied_s
    training: list[Seen] = []
    for seen in measured.training:
        if seen.activity == "copy":
            training.append(replace(seen, activity="model", seconds=seen.seconds * (1 - share)))
            training.append(replace(seen, seconds=seen.seconds * share))
        else:
            training.append(seen)
    return replace(measured, training=tuple(training))


def works_and_rest(measured: Measurements) -> tuple[Seen, ...]:
    """What the main thread was seen doing in its steps."""
    return tuple(seen for seen in measured.training if seen.activity in ("work", "model", "copy"))


def _model_fixes(measured: Measurements, costs: Costs) -> Iterator[Fix]:
    workers = measured.times.num_workers
    doubled = 2 * measured.times.batch_size
    all_s = spent(works_and_rest(measured), "work", "model", "copy")
    share = spent(measured.training, "model") / all_s if all_s > 0 else 1.0
    for trial in measured.trials:
        left = trial.changed_s / trial.seconds
        # What a larger batch shares out may be the script's own; what else is tried changes the model alone.
        its = share if trial.change == "batch" else min(share, trial.seconds / max(costs.step_s, 1e-9))
        freed = replace(
            costs,
            step_s=costs.step_s * (1 - its * (1 - left)),
            training_cpu_s=costs.training_cpu_s * (1 - its * (1 - left)),
        )
        yield Fix(
            trial.change,
            _TRIALS[trial.change].format(doubled=doubled, device=measured.setting.device),
            freed.throughput(workers) / costs.throughput(workers),
            f"tried with your model: {milliseconds(trial.seconds)} a sample became "
            f"{milliseconds(trial.changed_s)}",
        )
    if not any(trial.change == "batch" for trial in measured.trials):
        yield _larger_batch(measured, costs, doubled)
    if not measured.trials:
        yield Fix(
            "amp",
            "look into the step itself: torch.autocast, channels_last, torch.compile, a smaller model",
            None,
            "what each gains depends on the model and the device",
        )


def _larger_batch(measured: Measurements, costs: Costs, doubled: int) -> Fix:
    action = _TRIALS["batch"].format(doubled=doubled)
    busy = _busy(measured, costs)
    if busy is None or busy > _MOST_IDLE:
        why = "what a step costs by itself, whatever its batch, was not seen"
        return Fix(
            "batch",
            action,
            None,
            why if busy is None else f"what computes is busy for {busy:.0%} of the step",
        )
    workers = measured.times.num_workers
    # What is busy grows with the batch, the rest of the step is shared by twice as many samples.
    step_s = costs.step_s * (busy + (1 - busy) / 2)
    freed = replace(costs, step_s=step_s)
    return Fix(
        "batch",
        action,
        freed.throughput(workers) / costs.throughput(workers),
        f"what computes is busy for {busy:.0%} of the step; the rest is paid once a batch",
    )


def _busy(measured: Measurements, costs: Costs) -> float | None:
    """The share of the step in which the device that computes is busy; None where nobody looked."""
    if measured.gpu_busy:
        return min(1.0, sum(measured.gpu_busy) / len(measured.gpu_busy))
    if measured.setting.device != "cpu" or measured.training_cpu_s is None or costs.step_s <= 0:
        return None
    return min(1.0, costs.training_cpu_s / costs.step_s)

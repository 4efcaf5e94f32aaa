"""Fixes and their gains: the rates of the trials, combined with the step by one rule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fastload.doctor.evidence import STORAGE_SHARE, fits_page_cache, ran_out_of, was_kept
from fastload.doctor.findings import Fix, LoaderTrial, TrainingMeasurements, Verdict
from fastload.doctor.rates import LoadingWork, Rates, attributed, blocked_s, per_s, spent
from fastload.system.units import format_duration, format_size

LEAST_GAIN = 1.05
"""A smaller gain is not worth the trouble, nor more than one second of measuring can tell."""

WRITES_LEFT = 0.1
"""Of ten log writes, one is left."""

CODE_EFFORT = 1.3
"""Another dataset has to gain so many times as much to come before the change of a line."""

_OTHER_DATASETS = frozenset({"decoder", "transforms", "pack"})

ENOUGH = 0.95
"""The fewest workers that give this share of the best rate are advised: each is a process of some 200 MB."""

MOST_OF_MEMORY = 0.7
"""Of the memory that is available, what may be filled with data: the rest is the training's to grow into."""

_NORMALISING = re.compile(r"normali[sz]e|to_?tensor|to_?dtype|convert_?image_?dtype|to_?float", re.IGNORECASE)
_MODEL_CHANGES = {
    "batch": "a batch twice as large (batch_size={doubled}; adapt the learning rate)",
    "amp": "automatic mixed precision: with torch.autocast({device!r}, dtype=torch.bfloat16): …",
}
_FASTLOAD = {"class": "fastload.DataLoader"}
_USE_FASTLOAD = "from fastload import DataLoader, in place of torch.utils.data's"

# Advice that cannot be tried: by what the training ran out of, then by the name that the code below uses.
_ADVICE: dict[str, tuple[Fix, ...]] = {
    "open files": (
        Fix(
            "open files",
            "more open files: 'ulimit -n 65536' before the training (docker run --ulimit nofile=65536:65536)",
            None,
            "torch's workers pass a descriptor for each tensor on its way, and for each that is kept",
        ),
        Fix(
            "sharing strategy",
            "torch.multiprocessing.set_sharing_strategy('file_system')",
            None,
            "tensors then go by name, and take no descriptor while nobody uses them",
        ),
    ),
    "shared memory": (
        Fix("loader", _USE_FASTLOAD, None, "its batches do not go through /dev/shm", _FASTLOAD),
        Fix(
            "shared memory",
            "more shared memory: docker run --shm-size=8g, or mount -o remount,size=8g /dev/shm",
            None,
            "torch's workers put their batches there",
        ),
    ),
    "pin": (
        Fix(
            "pin",
            "DataLoader(…, pin_memory=True) with batch.to(device, non_blocking=True), or fastload's "
            'DataLoader(…, device="cuda")',
            None,
            "copies out of page-locked memory run beside the model",
            {"pin_memory": True},
        ),
    ),
    "model": (
        Fix(
            "amp",
            "look into the step itself: a larger batch, torch.autocast, channels_last, torch.compile, a "
            "smaller model",
            None,
            "what each gains depends on the model and the device",
        ),
    ),
    "data parallel": (
        Fix(
            "ddp",
            "torch.nn.parallel.DistributedDataParallel, one process a GPU, in place of DataParallel",
            None,
            "DataParallel copies the model to every GPU in each step, from one Python thread",
        ),
    ),
}


def fixes_of(
    measured: TrainingMeasurements, rates: Rates, work: LoadingWork, verdict: Verdict
) -> tuple[Fix, ...]:
    """Return what to do, first things first: by gain, arguments before code, the unmeasured last."""
    found = [
        fix
        for fix in _candidates(measured, rates, work, verdict)
        if fix.gain is None or fix.gain >= LEAST_GAIN
    ]

    def rank(fix: Fix) -> tuple[bool, float]:
        return fix.gain is None, -(fix.gain or 0.0) / (CODE_EFFORT if fix.kind in _OTHER_DATASETS else 1.0)

    return tuple(sorted(found, key=rank))


def _candidates(
    measured: TrainingMeasurements, rates: Rates, work: LoadingWork, verdict: Verdict
) -> Iterator[Fix]:
    ended = ran_out_of(measured.error)
    if ended:
        yield from _ADVICE[ended]
        return
    if verdict in ("model", "main thread", "copy"):
        yield from _work_fixes(measured, rates)
    if verdict == "model":
        yield from _model_fixes(measured, rates)
    if verdict in ("transport", "copy") and measured.device != "cpu" and not measured.pin_memory:
        yield from _ADVICE["pin"]
    yield from _persistence_fix(measured, rates)
    yield from _worker_fixes(measured, rates)
    if verdict in ("storage", "decoding", "transforms", "preparing", "transport"):
        yield from _loading_fixes(measured, rates, work)
    if measured.machine.usable_cpus < measured.machine.cpus and verdict != "little":
        yield Fix(
            "quota",
            f"raise the CPU quota of the container from {measured.machine.usable_cpus:g} to "
            f"{measured.machine.cpus} (docker run --cpus={measured.machine.cpus}, or Kubernetes' "
            "resources.limits.cpu)",
            None,
            f"{measured.machine.cpus} CPUs are there, and the quota gives {measured.machine.usable_cpus:g} "
            "CPUs' worth of time",
        )


def _tried(
    measured: TrainingMeasurements, rates: Rates, trial: LoaderTrial, read_s: float = 0.0
) -> tuple[float, str]:
    """Return the gain of a trial, and the sentence that says what was measured."""
    gain = rates.with_trial(trial, read_s).combined() / rates.combined()
    unit = measured.unit
    then, now = f"{trial.samples_per_s:,.0f} {unit}/s", f"{rates.loading:,.0f}"
    why = f"tried on your data: the loader then gives {then}, now {now}"
    if trial.num_workers and rates.step < trial.samples_per_s:
        why += f"; the training step takes {rates.step:,.0f}"
    return gain, why


def _worker_fixes(measured: TrainingMeasurements, rates: Rates) -> Iterator[Fix]:
    tried = {trial.num_workers: trial for trial in measured.trials if trial.kind == "workers"}
    if not tried:
        return
    present = measured.num_workers
    totals = {number: rates.with_trial(trial).combined() for number, trial in tried.items()}
    totals[present] = rates.combined()
    best = min(number for number, total in totals.items() if total >= ENOUGH * max(totals.values()))
    if best == present:
        return
    gain, why = _tried(measured, rates, tried[best])
    if best == 0:
        yield Fix("no workers", "DataLoader(…, num_workers=0)", gain, why, {"num_workers": 0})
        return
    action = f"DataLoader(…, num_workers={best}) in place of num_workers={present}"
    if gain < LEAST_GAIN and present >= 2 * best:
        why = f"{best} give as much as {present}, and each is a process of some 200 MB"
        yield Fix("workers", action, None, why, {"num_workers": best})
        return
    yield Fix("workers", action, gain, why, {"num_workers": best})


def _persistence_fix(measured: TrainingMeasurements, rates: Rates) -> Iterator[Fix]:
    if measured.persistent_workers or measured.epochs < 2 or not rates.start_s:
        return
    once = replace(rates, start_s=rates.start_s / measured.epochs)
    yield Fix(
        "persistent workers",
        "DataLoader(…, persistent_workers=True)",
        once.combined() / rates.combined(),
        f"workers were started {measured.epochs} times, and that takes {format_duration(rates.start_s)} each "
        "time",
        {"persistent_workers": True},
    )


def _loading_fixes(measured: TrainingMeasurements, rates: Rates, work: LoadingWork) -> Iterator[Fix]:
    storage_share = work.share(work.storage_s)
    made = sum(worker.batches for worker in measured.workers) * measured.samples_a_batch
    # Files that are packed, or decoded in another way, are still to be read from where they are.
    read_s = blocked_s(measured) / made if storage_share >= STORAGE_SHARE and made else 0.0
    for trial in measured.trials:
        if trial.kind in ("loader", "decoder", "transforms", "pack"):
            gain, why = _tried(measured, rates, trial, read_s)
            yield Fix(
                trial.kind, _action(measured, trial), gain, why, _FASTLOAD if trial.kind == "loader" else {}
            )
        elif trial.kind == "cache":
            yield from _cache_fix(measured, rates, trial)
    if storage_share >= STORAGE_SHARE and measured.encoding is None and not measured.trial("pack"):
        yield Fix(
            "pack",
            "pack the files into shards: fastload pack FOLDER data.fl, then "
            "fastload.PackedDataset('data.fl')",
            None,
            "shards are read in long runs; how fast depends on the disk that they will be on",
        )
    if work.is_told_apart and work.share(work.transforms_s) >= STORAGE_SHARE:
        yield from _transform_fix(measured)


def _action(measured: TrainingMeasurements, trial: LoaderTrial) -> str:
    encoding, _, transforms = trial.detail.partition(" ")
    if trial.kind == "loader":
        return _USE_FASTLOAD
    if trial.kind == "decoder":
        return "decode with OpenCV: fastload.FolderDataset('FOLDER', transform=…) in place of your dataset"
    if trial.kind == "transforms":
        dataset = f"fastload.FolderDataset('FOLDER', transform=T.{trial.detail})"
        return f"import fastload.transforms as T, and {dataset}"
    samples = measured.store.samples if measured.store is not None else 0
    room = f" ({format_size(samples * trial.stored_bytes)} in all)" if samples and trial.stored_bytes else ""
    return (
        f"fastload pack FOLDER data.fl --encode {encoding}{room}, then fastload.PackedDataset('data.fl', "
        f"transform={f'T.{transforms}' if transforms else '…'})"
    )


def _cache_fix(measured: TrainingMeasurements, rates: Rates, trial: LoaderTrial) -> Iterator[Fix]:
    store, machine = measured.store, measured.machine
    if store is None or fits_page_cache(store, machine.available_bytes) or was_kept(measured):
        return
    ways = []
    if store.size_bytes < MOST_OF_MEMORY * (machine.available_bytes or 0):
        ways.append("copy the files to /dev/shm once, and read them there")
    kind = "PackedDataset" if measured.encoding is not None else "FolderDataset"
    if measured.encoding is not None or not store.are_containers:
        ways.append(f'fastload.{kind}(…, cache="auto")')
    if ways:
        gain, _ = _tried(measured, rates, trial)
        why = (
            f"tried on your data: a second pass over the same samples gives {trial.samples_per_s:,.0f} "
            f"{measured.unit}/s, the first one {rates.loading:,.0f}; from the second epoch on"
        )
        yield Fix("cache", f"keep the data in memory: {', or '.join(ways)}", gain, why)


def _transform_fix(measured: TrainingMeasurements) -> Iterator[Fix]:
    known = attributed(measured.loading)
    places = [one for one in known if one.category == "transform"]
    if not places:
        return
    all_s = spent(known, "read", "load", "decode", "transform", "collate")
    slowest = max(places, key=lambda one: one.seconds)
    share = f"it takes {slowest.seconds / all_s:.0%} of the time in which samples are made"
    if measured.device != "cpu" and _NORMALISING.search(slowest.place):
        yield Fix(
            "device",
            "make uint8 batches, and convert and normalise them on the device: batch.to(device, "
            "non_blocking=True).float().div_(255).sub_(mean).div_(std)",
            None,
            share,
        )
        return
    yield Fix(
        "transform",
        f"make {slowest.place or 'transforms'} cheaper: do it once before the training, on whole batches, "
        "on the device, or with fastload.transforms",
        None,
        share,
    )


def _work_fixes(measured: TrainingMeasurements, rates: Rates) -> Iterator[Fix]:
    """Yield the advice to do less often what is not the model, by its measured share of the step."""
    works = [one for one in measured.training if one.category == "work"]
    if not works:
        return
    share = spent(works, "work") / spent(measured.training, "work", "model", "copy")
    left = 1 - share * (1 - WRITES_LEFT)
    places = list(dict.fromkeys(one.place for one in works if one.place))[:3]
    yield Fix(
        "fewer log writes",
        f"log, save and draw ten times less often than now{': ' if places else ''}{'; '.join(places)}",
        _with_step(rates, left).combined() / rates.combined(),
        f"all that is logged, saved and the like takes {share:.0%} of the step, and a tenth of that would "
        "be left",
    )


def _with_step(rates: Rates, left: float) -> Rates:
    """Return the rates with a step that takes only the share `left` of its time."""
    return replace(rates, step=per_s(left * per_s(rates.step)), step_cpu_s=left * rates.step_cpu_s)


def _model_fixes(measured: TrainingMeasurements, rates: Rates) -> Iterator[Fix]:
    seen_s = spent(measured.training, "work", "model", "copy")
    share = spent(measured.training, "model") / seen_s if seen_s else 1.0
    for trial in measured.model_trials:
        # What a larger batch shares out may be the script's own; the other changes are the model's alone.
        its = share if trial.change == "batch" else min(share, trial.seconds * rates.step)
        left = 1 - its * (1 - trial.changed_s / trial.seconds)
        yield Fix(
            trial.change,
            _MODEL_CHANGES[trial.change].format(
                doubled=2 * (measured.batch_size or 0), device=measured.device
            ),
            _with_step(rates, left).combined() / rates.combined(),
            f"tried with your model: {format_duration(trial.seconds)} a sample became "
            f"{format_duration(trial.changed_s)}",
        )
    if not measured.model_trials:
        yield from _ADVICE["model"]
    if measured.uses_data_parallel:
        yield from _ADVICE["data parallel"]


def trials_to_make(measured: TrainingMeasurements, work: LoadingWork, verdict: Verdict) -> Sequence[str]:
    """Return the kinds of trials that can change what is advised."""
    waits = measured.wait_s > 0.1 * (measured.wait_s + measured.step_s)
    kinds = ["workers"] if waits or verdict == "little" else []
    if verdict in ("storage", "decoding", "transforms", "preparing", "transport"):
        if measured.num_workers and not measured.is_fastload:
            kinds.append("loader")
        if work.share(work.storage_s) >= STORAGE_SHARE:
            kinds.append("cache")
        if work.share(work.decoding_s) >= STORAGE_SHARE or not work.is_told_apart:
            kinds.append("files")
    return kinds


def workers_to_try(measured: TrainingMeasurements) -> list[int]:
    """Return the numbers of workers to try: about the usable CPUs; more where loading waits."""
    cpus = max(1, round(measured.machine.usable_cpus + 0.49))
    busy_s = sum(worker.busy_s for worker in measured.workers)
    numbers = {cpus, cpus // 2 if cpus >= 4 else cpus}
    if blocked_s(measured) > 0.5 * busy_s:
        numbers.add(min(32, 4 * cpus))
    if measured.num_workers:
        numbers.add(0)
    return sorted(numbers - {measured.num_workers})

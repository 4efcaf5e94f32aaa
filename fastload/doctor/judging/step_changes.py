"""Changes that are tried, and those of the training step: when each can help, how far it goes, what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fastload.doctor.findings import SCRIPTS, Fix, TrialResult
from fastload.doctor.judging.evidence import LEAST_SHARE, MOST_PLACES
from fastload.doctor.judging.judge import Judgement
from fastload.doctor.trials import Trials

LEAST_GAIN = 1.05
"""A smaller gain is not worth the trouble, and a second of measuring cannot resolve it."""

EFFORT = 2.0
"""A fix that packs the files, replaces the dataset, or changes what is computed (another precision, a larger
batch, a compiler) has to gain this many times as much to be listed before one that changes a line."""

NO_GRAD = "evaluate without recording gradients: 'with torch.inference_mode():' around the loop"
_MOST_BATCH = 8


@dataclass(frozen=True, slots=True)
class TriedChange:
    """A change of the loader, its data or the training step.

    Attributes:
        can_help: Returns whether it can change the advice.
        trials: Measures it.
        fixes: Yields the fixes that follow from its trials, which the judged measurements contain.
        is_last: True if it is tried after the others, for all loaders. fastload's datasets make the C library
            keep freed memory, with which any loader is faster; runs of the script take longest.
    """

    name: str
    can_help: Callable[[Judgement], bool]
    trials: Callable[[Trials, Judgement], Iterable[TrialResult]]
    fixes: Callable[[Judgement], Iterator[Fix]] = lambda _: iter(())
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class StepChange:
    """A change of the step, by its name in `rerunning.changes`.

    `values` returns how far it is to go, one trial each, none if it cannot help; `action` what to do then.
    `is_costly` is True if it changes what is computed, or needs a compiler.
    """

    kind: str
    values: Callable[[Judgement], Iterable[str]]
    action: Callable[[Judgement, str], str]
    is_costly: bool = False


def _if(condition: Callable[[Judgement], object]) -> Callable[[Judgement], Sequence[str]]:
    return lambda judged: [""] if condition(judged) else []


def _is_on_gpu(judged: Judgement) -> bool:
    return judged.measured.device == "cuda"


def _trains(judged: Judgement) -> bool:
    return judged.measured.role != "evaluation"


def _thread_numbers(judged: Judgement) -> Sequence[str]:
    measured = judged.measured
    cpus = max(1, round(measured.machine.usable_cpus))
    numbers = {cpus, max(1, cpus // 2)} - {measured.facts.threads}
    return [str(number) for number in sorted(numbers)] if measured.device == "cpu" else []


def lines_of_script(judged: Judgement) -> dict[str, float]:
    """Return the seconds of the user's own lines that take much of the step, except averages."""
    measured, seconds = judged.measured, dict[str, float]()
    for one in measured.training:
        is_users = one.source and "-packages/" not in one.source  # of site or dist
        if one.category in SCRIPTS and is_users and one.source not in measured.facts.averages:
            seconds[one.source] = seconds.get(one.source, 0.0) + one.seconds
    least_s, found = LEAST_SHARE * sum(judged.step.values()), sorted(seconds, key=lambda each: -seconds[each])
    return {source: seconds[source] for source in found if seconds[source] > least_s}


def _script_lines(judged: Judgement) -> Iterator[str]:
    if _trains(judged) and (lines := lines_of_script(judged)):
        yield "\n".join(lines)


def less_often(judged: Judgement, _: str = "") -> str:
    """Return the action for the script's own lines."""
    texts = {one.source: one.place for one in judged.measured.training}
    places = [texts[source] for source in lines_of_script(judged)]
    return f"do this in every tenth step only, or faster: {'; '.join(places[:MOST_PLACES])}"


def _batch_factors(judged: Judgement) -> Iterator[str]:
    """Yield the factors of the batch with which an epoch would still have some batches."""
    batches = judged.measured.epoch_batches or math.inf
    factor = 2
    while judged.measured.batch_size and factor <= min(_MOST_BATCH, batches / 4):
        yield str(factor)
        factor *= 2


def _larger_batch(judged: Judgement, value: str) -> str:
    size = judged.measured.batch_size or 1
    rates = f"the learning rate times {value} (for Adam: times {math.sqrt(int(value)):.2g})"
    return f"batches of {size * int(value)} instead of {size}, and {rates}"


def _autocast(judged: Judgement, dtype: str) -> str:
    scaler = ", with torch.amp.GradScaler" if dtype == "float16" else ""
    around = f"with torch.autocast({judged.measured.device!r}, torch.{dtype}):"
    return f"compute in half precision: '{around}' around model and loss{scaler}"


CHANGES_OF_STEP = (
    StepChange("less often", _script_lines, less_often),
    StepChange(
        "average",
        lambda judged: ["\n".join(judged.measured.facts.averages)] if judged.measured.facts.averages else [],
        lambda *_: (
            "average all weights at once, in place of the loop: torch.optim.swa_utils.AveragedModel("
            "model, multi_avg_fn=get_ema_multi_avg_fn(0.999))"
        ),
    ),
    StepChange(
        "optimizer",
        _if(lambda judged: judged.measured.facts.faster_optimizers),
        lambda judged, _: f"update all weights at once: {', '.join(judged.measured.facts.faster_optimizers)}",
    ),
    StepChange(
        "no grad",
        _if(lambda judged: not _trains(judged) and judged.measured.with_grad),
        lambda *_: NO_GRAD,
    ),
    StepChange(
        "threads",
        _thread_numbers,
        lambda judged, value: f"torch.set_num_threads({value}) instead of {judged.measured.facts.threads}",
    ),
    StepChange(
        "channels_last",
        _if(lambda judged: judged.measured.facts.has_convolutions or not _trains(judged)),
        lambda *_: "model.to(memory_format=torch.channels_last), and the same for each batch of images",
    ),
    StepChange(
        "fewer syncs",
        _if(_is_on_gpu),
        lambda *_: "call .item() every 50 steps only: it waits until the device has done all that is queued",
    ),
    StepChange("cudnn.benchmark", _if(_is_on_gpu), lambda *_: "torch.backends.cudnn.benchmark = True"),
    StepChange(
        "matmul precision",
        lambda judged: ["high" if _is_on_gpu(judged) else "medium"],
        lambda _, value: f"torch.set_float32_matmul_precision({value!r}) at the script's start",
        is_costly=True,
    ),
    StepChange("autocast", lambda judged: [judged.measured.facts.half], _autocast, is_costly=True),
    StepChange(
        "torch.compile", _if(bool), lambda *_: "model.compile() after the model is made", is_costly=True
    ),
    StepChange("batch", _batch_factors, _larger_batch, is_costly=True),
)

OF_STEP = frozenset(each.kind for each in CHANGES_OF_STEP)
COSTLY = frozenset(each.kind for each in CHANGES_OF_STEP if each.is_costly)

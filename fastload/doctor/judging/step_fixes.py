"""Fixes of the training step: gains of what was tried with the script, and what is seen without a trial."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from fastload.doctor.findings import Fix, StepTrial, TrialResult
from fastload.doctor.judging.judge import Judgement, per_s
from fastload.doctor.judging.step_changes import (
    CHANGES_OF_STEP,
    COSTLY,
    EFFORT,
    LEAST_GAIN,
    NO_GRAD,
    StepChange,
    TriedChange,
    less_often,
    lines_of_script,
)
from fastload.doctor.trials import Trials
from fastload.system.statements import EVERY
from fastload.system.units import format_count, format_duration

PLAIN = "as it is"
TOGETHER = "together"

# Each was tried alone, in place of the same loader.
OF_LOADER = ("workers", "no workers", "loader", "compile", "decoder", "pack", "cache")

_RULES = (
    "linear and square-root rule: Goyal et al., arXiv:1706.02677, Malladi et al., arXiv:2205.10287; "
    "accumulating gradients gives the optimizer the same batch without the gain"
)


def is_step_tried(judged: Judgement) -> bool:
    """Return whether changes of the step may help: it is the limit, or nearly so, or it is asked for."""
    is_possible = judged.measured.steps and judged.verdict not in ("little", "network")
    is_limit = judged.verdict in judged.step or judged.side == "balanced"
    return bool(is_possible) and (is_limit or judged.measured.is_step_wanted)


def _plain(judged: Judgement) -> list[StepTrial]:
    return [each for each in judged.measured.step_trials if each.kind == PLAIN and not each.failure]


def _gain_of(judged: Judgement, trial: StepTrial) -> float:
    """Return the throughput with a trial's step, divided by that with the plain runs' step; 0 if unknown."""
    if not _plain(judged) or trial.failure:
        return 0.0
    # A batch counts as one sample where its size is unknown to the trials.
    size = judged.measured.samples_a_batch / _plain(judged)[0].samples

    def throughput(runs: Sequence[StepTrial]) -> float:
        rate = statistics.harmonic_mean([each.samples_per_s for each in runs])
        cpu_s = statistics.mean(each.cpu_s / each.samples for each in runs)
        return judged.throughput(replace(judged.rates, step=rate * size, step_cpu_s=cpu_s / size))

    return throughput([trial]) / throughput(_plain(judged))


def _sound(judged: Judgement, trials: Iterable[StepTrial]) -> Iterator[StepTrial]:
    """Yield trials, as failures if the losses leave twice the range of those of the script as it is."""
    known = [loss for each in _plain(judged) for loss in each.losses] or [0.0]
    lowest, highest = min(known), max(known)
    for trial in trials:
        late = trial.losses[len(trial.losses) // 2 :] or (lowest,)
        is_finite = all(map(math.isfinite, trial.losses))
        is_sound = is_finite and 2 * lowest - highest <= statistics.median(late) <= 2 * highest - lowest
        yield trial if is_sound else replace(trial, failure=f"the loss left its range: {late[-1]:.3g}")


def best_trials(judged: Judgement) -> list[StepTrial]:
    """Return each change's best trial, if it gains more than two runs of the same script differ."""
    rates, found = [each.samples_per_s for each in _plain(judged)], dict[str, StepTrial]()
    least = max(LEAST_GAIN, max(rates, default=1.0) / min(rates, default=1.0))
    for trial in judged.measured.step_trials:
        gain, present = _gain_of(judged, trial), found.get(trial.kind)
        enough = 1 + EFFORT * (least - 1) if trial.kind in COSTLY else least
        is_best = present is None or gain > _gain_of(judged, present)
        if trial.kind not in (PLAIN, TOGETHER) and gain >= enough and is_best:
            found[trial.kind] = trial
    return sorted(found.values(), key=lambda each: -_gain_of(judged, each))


def _fixes(judged: Judgement) -> Iterator[Fix]:
    actions = {each.kind: each.action for each in CHANGES_OF_STEP}
    for trial in best_trials(judged):
        action = actions[trial.kind](judged, trial.value)
        yield Fix(trial.kind, action, _why(judged, trial), _gain_of(judged, trial))


def _why(judged: Judgement, trial: StepTrial) -> str:
    before_s = statistics.mean(each.step_s / each.samples for each in _plain(judged)) * trial.samples
    with_it, without = format_duration(trial.step_s), format_duration(before_s)
    if trial.kind == "batch":
        before, after = f"{trial.samples / before_s:,.0f}", f"{trial.samples_per_s:,.0f}"
        return f"tried with your script: {after} samples/s instead of {before} in training steps; {_RULES}"
    why = f"tried with your script: a training step takes {with_it} instead of {without}"
    if trial.kind == "torch.compile":
        steps, epoch = math.ceil(trial.warm_s / (before_s - trial.step_s)), judged.measured.epoch_batches
        paid = format_count(math.ceil(steps / epoch), "epoch") if epoch else format_count(steps, "step")
        why += f"; compiling takes {format_duration(trial.warm_s)} at the start, which {paid} make up for"
    return why


def seen_fixes(judged: Judgement) -> Iterator[Fix]:
    """Yield fixes that need no trial, and that for the script's own lines, estimated if it was not tried."""
    measured, facts = judged.measured, judged.measured.facts
    if facts.unused_device:
        action = f"move model and batches to the GPU: model.to({facts.unused_device!r}), images.to(…)"
        yield Fix("device", action, "the model is on the CPU, although this machine has a GPU")
    if facts.parallel:
        why = f"{facts.parallel} copies the model to all GPUs in each step, and one thread drives them all"
        action = f"DistributedDataParallel, one process for each GPU (torchrun), instead of {facts.parallel}"
        yield Fix("parallel", action, why)
    if measured.role == "evaluation" and 2 * measured.in_training_mode > measured.batches:
        why = "modules were in training mode: dropout is active, and BatchNorm learns from the evaluation"
        yield Fix("evaluation mode", "model.eval() before the evaluation, model.train() after it", why)
    known = {each.kind for each in measured.step_trials if not each.failure}
    if measured.role == "evaluation" and 2 * measured.with_grad > measured.batches and "no grad" not in known:
        yield Fix("no grad", NO_GRAD, "gradients were recorded, which takes time and memory")
    lines = lines_of_script(judged) if judged.verdict in ("model", "main thread") else {}
    if lines and "less often" not in known:
        share = sum(lines.values()) / sum(judged.step.values())
        left = 1 - share * (1 - 1 / EVERY)
        why = f"these lines take {share:.0%} of each step, of which a tenth would be left"
        rates, step_s = judged.rates, left * per_s(judged.rates.step)
        after = judged.throughput(replace(rates, step=per_s(step_s), step_cpu_s=left * rates.step_cpu_s))
        yield Fix("less often", less_often(judged), why, after / judged.throughput(rates))


def combination(judged: Judgement, fixes: Sequence[Fix]) -> Iterator[str]:
    """Yield how the gains of the fixes go together."""
    numbers = {fix.kind: str(number) for number, fix in enumerate(fixes, 1)}
    best = [each for each in best_trials(judged) if each.kind in numbers]
    for trial in judged.measured.step_trials if len(best) > 1 else ():
        if trial.kind == TOGETHER:
            gain, names = _gain_of(judged, trial), _listed(numbers[each.kind] for each in best)
            verb = "add up" if gain > LEAST_GAIN * _gain_of(judged, best[0]) else "do not add up"
            result = f"they failed, {trial.failure}" if trial.failure else f"{gain:.3g} times as fast as now"
            yield f"{names} {verb}: tried together, {result}."
    if len(several := [numbers[kind] for kind in OF_LOADER if kind in numbers]) > 1:
        yield f"{_listed(several)} are alternatives: each was tried alone, and their gains do not add up."


def _listed(numbers: Iterable[str]) -> str:
    *others, last = sorted(numbers)
    return f"{', '.join(others)} and {last}"


def _runs_again(judged: Judgement) -> bool:
    return is_step_tried(judged) and bool(_plain(judged))


def _tried(change: StepChange) -> TriedChange:
    """Return the entry for a change, of which no larger value is tried after one that gains nothing more."""

    def trials(trials: Trials, judged: Judgement) -> Iterator[TrialResult]:
        fastest = max(each.samples_per_s for each in _plain(judged))
        is_training = judged.measured.role != "evaluation"
        for value in change.values(judged) if is_training or not change.is_costly else ():
            for trial in _sound(judged, trials.run_again(change.kind, value, [(change.kind, value)])):
                yield trial
                is_faster = trial.samples_per_s >= LEAST_GAIN * fastest and not trial.failure
                if change.kind == "batch" and not is_faster:
                    return
                fastest = trial.samples_per_s

    return TriedChange(change.kind, _runs_again, trials, is_last=True)


def _together(trials: Trials, judged: Judgement) -> Iterator[TrialResult]:
    best = best_trials(judged)
    if len(best) > 1:
        yield from _sound(judged, trials.run_again(TOGETHER, "", [(each.kind, each.value) for each in best]))


def _as_it_is(name: str, can_help: Callable[[Judgement], bool]) -> TriedChange:
    return TriedChange(name, can_help, lambda trials, _: trials.run_again(PLAIN), is_last=True)


STEP_CHANGES = (
    _as_it_is(PLAIN, is_step_tried),
    *map(_tried, CHANGES_OF_STEP),
    _as_it_is("again", _runs_again),
    TriedChange(TOGETHER, _runs_again, _together, _fixes, is_last=True),
)

"""Fixes of the training step: when they are tried, their gains, and what is seen without a trial."""

import math
from dataclasses import replace

import pytest

from fastload.doctor.findings import Sampled, StepFacts, StepTrial
from fastload.doctor.judging.fixes import diagnose
from fastload.doctor.judging.judge import judge
from fastload.doctor.judging.step_changes import CHANGES_OF_STEP
from fastload.doctor.judging.step_fixes import PLAIN, STEP_CHANGES, TOGETHER
from tests.doctor.test_judge import seen, training, trial

FACTS = StepFacts(faster_optimizers=("Adam(…, fused=True)",), has_convolutions=True, threads=8)


def run(kind, step_ms, value="", samples=32.0, **figures):
    return StepTrial(kind, value, step_s=step_ms / 1e3, samples=samples, **figures)


def trained(*trials, **changes):
    """Steps of 80 ms beside 2 ms of loading."""
    plain = run(PLAIN, 80.0, losses=(2.0, 1.0)), run(PLAIN, 80.0)
    trials = (*plain, *trials)
    return training(wait_s=0.002, step_s=0.08, step_trials=trials, **{"facts": FACTS, **changes})


def fixes(measured):
    return {fix.kind: fix for fix in diagnose(measured).fixes}


def values(kind, measured):
    """How far a change would go, one trial each."""
    return [*next(each for each in CHANGES_OF_STEP if each.kind == kind).values(judge(measured))]


class Runs:
    """Trials whose script always takes as long, and which record what was asked for."""

    def __init__(self, **step_ms):
        self.asked, self.step_ms = [], step_ms

    def run_again(self, kind, value="", changes=()):
        self.asked.append((kind, value, tuple(changes)))
        size = int(value) if kind == "batch" else 1
        return [run(kind, self.step_ms.get(kind, 80.0) * size, value, 32.0 * size)]


def tried(measured, runs):
    for change in STEP_CHANGES:
        if change.can_help(judge(measured)):
            for trial in change.trials(runs, judge(measured)):
                measured = measured.with_trial(trial)
    return measured


def test_the_gain_is_that_of_the_whole_training():
    fix = fixes(trained(run("optimizer", 40.0)))["optimizer"]
    assert fix.gain == pytest.approx(82 / 42)
    assert fix.action == "update all weights at once: Adam(…, fused=True)"
    assert "a training step takes 40 ms instead of 80 ms" in fix.why


def test_a_gain_within_the_difference_of_two_runs_is_none():
    measured = trained(run("optimizer", 70.0))
    assert "optimizer" in fixes(measured)
    noisy = replace(measured, step_trials=(*measured.step_trials, run(PLAIN, 100.0)))
    assert fixes(noisy) == {}


def test_what_changes_the_numbers_has_to_gain_twice_as_much():
    assert set(fixes(trained(run("channels_last", 74.0), run("autocast", 74.0)))) == {"channels_last"}
    both = trained(run("channels_last", 70.0), run("autocast", 50.0))
    assert list(fixes(both)) == ["channels_last", "autocast"]


def test_a_trial_that_fails_is_no_advice():
    assert fixes(trained(run("optimizer", 0.0, failure="it ran out of memory"))) == {}


@pytest.mark.parametrize("losses", [(9.0,), (math.nan,), (2.0, math.inf)])
def test_a_trial_whose_loss_leaves_its_range_is_a_failure(losses):
    class Bad(Runs):
        def run_again(self, kind, value="", changes=()):
            [trial] = super().run_again(kind, value, changes)
            return [replace(trial, losses=(2.0, 1.0) if kind == PLAIN else losses)]

    measured = tried(replace(trained(), step_trials=()), Bad(optimizer=40.0))
    [trial] = (each for each in measured.step_trials if each.kind == "optimizer")
    assert "the loss left its range" in trial.failure
    assert fixes(measured) == {}


def test_all_changes_are_tried_and_those_that_help_together():
    measured = tried(replace(trained(), step_trials=()), runs := Runs(optimizer=40.0, channels_last=60.0))
    assert [kind for kind, *_ in runs.asked].count(PLAIN) == 2
    assert runs.asked[-1] == (TOGETHER, "", (("optimizer", ""), ("channels_last", "")))
    assert measured.step_trials[-1].kind == TOGETHER
    [sentence] = diagnose(measured).combination
    assert sentence == "1 and 2 do not add up: tried together, 1 times as fast as now."
    [*others, last] = measured.step_trials
    faster = replace(measured, step_trials=(*others, replace(last, step_s=0.03)))
    assert diagnose(faster).combination == ("1 and 2 add up: tried together, 2.56 times as fast as now.",)


def test_batches_grow_as_long_as_they_gain():
    runs = Runs(batch=40.0)
    tried(replace(trained(), step_trials=()), runs)
    assert [value for kind, value, _ in runs.asked if kind == "batch"] == ["2", "4"]
    assert values("batch", trained(epoch_batches=9)) == ["2"]
    assert values("batch", trained(batch_size=None)) == []
    fix = fixes(trained(run("batch", 80.0, "2", 64.0)))["batch"]
    assert "batches of 64 instead of 32, and the learning rate times 2" in fix.action
    assert "Goyal" in fix.why


def test_compiling_has_to_pay_for_itself():
    compiled = run("torch.compile", 30.0, warm_s=21.0)
    assert (
        "compiling takes 21 s at the start, which 5 epochs make up for"
        in fixes(trained(compiled, epoch_batches=100))["torch.compile"].why
    )


def test_the_headline_does_not_contradict_the_first_fix():
    balanced = training(wait_s=0.05, step_s=0.052, trials=(trial("workers", 4, 1600.0),))
    diagnosis = diagnose(balanced)
    assert diagnosis.verdict == "model"
    assert diagnosis.fixes[0].kind == "workers"
    assert diagnosis.headline.startswith(
        "Loading and the training step both limit it: the loader alone makes"
    )
    assert diagnose(trained(run("optimizer", 40.0))).headline.startswith("The model is the limit")


def test_nothing_of_the_step_is_tried_where_loading_is_the_limit():
    runs = Runs()
    tried(training(facts=FACTS), runs)
    assert runs.asked == []
    tried(training(facts=FACTS, is_step_wanted=True), runs)
    assert runs.asked


def test_a_script_that_does_not_run_again_is_not_changed():
    class Broken(Runs):
        def run_again(self, kind, value="", changes=()):
            return [replace(each, failure="it ended") for each in super().run_again(kind, value, changes)]

    tried(replace(trained(), step_trials=()), runs := Broken())
    assert [kind for kind, *_ in runs.asked] == [PLAIN]


def test_own_lines_are_thinned_but_averages_are_replaced():
    lines = (
        Sampled("model", "train.py:1 model(x)", 4.0, "/train.py:1"),
        Sampled("script", "train.py:2 p.mul_(0.9)", 3.0, "/train.py:2"),
        Sampled("work", "train.py:3 print(loss)", 1.0, "/train.py:3"),
        Sampled("script", "train.py:4 x = 1", 0.1, "/train.py:4"),
    )
    measured = trained(step=lines, facts=replace(FACTS, averages=("/train.py:2",)))
    assert values("less often", measured) == ["/train.py:3"]
    assert values("average", measured) == ["/train.py:2"]
    untried = fixes(replace(measured, step_trials=()))["less often"]
    assert "train.py:3 print(loss)" in untried.action
    assert 1 < untried.gain < 1.2
    assert "less often" not in fixes(trained(run("less often", 80.0), step=lines))


@pytest.mark.parametrize(
    ("facts", "changes", "kind"),
    [
        ({"unused_device": "cuda"}, {}, "device"),
        ({"parallel": "BalancedDataParallel"}, {}, "parallel"),
        ({}, {"role": "evaluation", "in_training_mode": 100}, "evaluation mode"),
    ],
)
def test_what_is_seen_comes_before_what_is_measured(facts, changes, kind):
    found = list(fixes(trained(run("optimizer", 40.0), facts=replace(FACTS, **facts), **changes)))
    assert kind in found
    assert kind == "evaluation mode" or found[0] == kind


def test_an_evaluation_is_tried_without_gradients():
    assert values("no grad", trained(role="evaluation", with_grad=100)) == [""]
    assert values("no grad", trained(role="evaluation")) == []
    assert values("no grad", trained(with_grad=100)) == []
    evaluated = trained(role="evaluation", with_grad=100)
    assert fixes(evaluated)["no grad"].gain is None
    tried(replace(evaluated, step_trials=()), runs := Runs())
    assert {"no grad", "threads"} <= {kind for kind, *_ in runs.asked}
    assert "torch.compile" not in {kind for kind, *_ in runs.asked}


@pytest.mark.parametrize(("threads", "tried_threads"), [(1, ["4", "8"]), (8, ["4"])])
def test_threads_are_tried_up_to_the_usable_cpus(threads, tried_threads):
    assert values("threads", trained(facts=replace(FACTS, threads=threads))) == tried_threads


def test_the_time_of_a_batch_is_shown_in_parts():
    parts = diagnose(trained(step=seen(model=6.0, script=1.0, work=1.0))).parts
    assert [(part.name, round(part.seconds, 3)) for part in parts] == [
        ("loading", 0.002),
        ("model, backward pass, optimizer", 0.06),
        ("logging, saving, drawing", 0.01),
        ("other code of the script", 0.01),
    ]

"""Trainings of several ranks: the slowest rank and its reason are named, and the network's part is known."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastload.doctor.findings import MachineState, Sampled, TrainingMeasurements
from fastload.doctor.judging.ranks import compare
from tests.commands import free_port, start_python
from tests.doctor.places import slow_network

TRAIN = Path(__file__).parent / "train_ranks.py"
DOCTOR = ["-m", "fastload", "doctor"]

# Of both ranks together; ten times as long as beside other work.
_MOST_S = 200


def run_ranks(*words):
    """Run Python as two ranks without a launcher, whose store ends with rank 0; return what they wrote."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    variables |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank in ("0", "1"):
            environment = {**os.environ, **variables, "RANK": rank, "LOCAL_RANK": rank}
            ranks.append(stack.enter_context(start_python(*words, env=environment, **pipes)))
        ends_at = time.monotonic() + _MOST_S
        try:
            return [
                (*each.communicate(timeout=max(0.0, ends_at - time.monotonic())), each.returncode)
                for each in ranks
            ]
        except subprocess.TimeoutExpired:
            # With their stacks: the training enables the faulthandler.
            for each in ranks:
                each.send_signal(signal.SIGABRT)
            written = [each.communicate(timeout=10)[1] for each in ranks]
            pytest.fail("\n".join(["a rank hangs", *written]))
        finally:
            for each in ranks:
                each.kill()  # a rank whose peer has failed waits for it


def diagnosed(*arguments):
    (output, errors, status), other = run_ranks(*DOCTOR, "--json", *arguments)
    assert (status, other[0], other[2]) == (0, "", 0), errors + other[1]
    return json.loads(output)


def torchrun(*words, before=()):
    command = [*before, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("situation", "slowest", "reason", "verdict"),
    [
        ("--slow-loader", 1, "its loader", "transforms"),
        pytest.param("--slow-model", 1, "its model", "model", marks=pytest.mark.soak),
        pytest.param("--slow-writes", 1, "its other work", "main thread", marks=pytest.mark.soak),
        ("--slow-network", None, None, "network"),
    ],
)
def test_a_slow_rank_and_a_slow_network_are_told_apart(situation, slowest, reason, verdict):
    found = diagnosed(TRAIN, situation, 0.06)
    ranks = found["ranks"]
    assert (ranks["slowest"], ranks["reason"], found["verdict"]) == (slowest, reason, verdict), ranks
    assert [each["rank"] for each in ranks["ranks"]] == [0, 1]
    is_network = verdict == "network"
    assert (ranks["network_s"] > 0.05) == is_network
    assert (ranks["ranks"][0]["held_up_s"] > 0.04) != is_network
    kinds = [fix["kind"] for fix in found["parts"][0]["fixes"]]
    assert kinds == ["accumulation", "compression"] or not is_network


@pytest.mark.soak
def test_collectives_that_the_script_calls_are_no_work_of_the_model():
    ranks = diagnosed(TRAIN, "--calls", "--slow-model", 0.06)["ranks"]
    assert (ranks["slowest"], ranks["reason"]) == (1, "its model")
    assert ranks["ranks"][0]["held_up_s"] > 0.04


def test_equal_ranks_end_together_and_rank_0_reports():
    # Ranks that ended after different steps would wait for each other's gradients.
    first, second = run_ranks(*DOCTOR, "--seconds", 0.5, TRAIN, "--batches", 100_000)
    assert (first[2], second[2]) == (0, 0), first[1] + second[1]
    assert second[0] == ""
    assert "ended early, as requested" in first[0]
    assert "No rank is slower than the others: all 2 were compared." in first[0]
    assert re.search(r"^rank +machine .*\n0 .*\n1 ", first[0], re.MULTILINE)


def test_a_rank_that_failed_is_named_and_the_step_that_waited_for_it_is_not_judged():
    first, second = run_ranks(*DOCTOR, TRAIN, "--fails-after", 16)
    assert (first[2], second[2]) == (1, 1)
    assert "Before that, rank 1 ended with ValueError: a bad label." in first[0]
    assert "No rank is slower than the others: all 2 were compared." in first[0]


@pytest.mark.soak
def test_the_weights_are_those_of_a_training_without_the_doctor():
    watched, plain = torchrun(*DOCTOR, TRAIN), torchrun(TRAIN)
    weights = re.findall(r"weights: .*", plain)
    assert len(weights) == 2
    assert re.findall(r"weights: .*", watched) == weights
    assert watched.count("What limits train_ranks.py?") == 1


@pytest.mark.soak
def test_the_bandwidth_of_a_slow_network_is_measured():
    with slow_network("100mbit") as before:
        output = torchrun(*DOCTOR, "--json", TRAIN, "--width", 1000, "--batches", 10, before=before)
    ranks = json.loads(output)["ranks"]
    assert ranks["gradient_bytes"] == 4 * (1000 * 1000 + 1000)
    # Both ranks send all gradients through one loopback device of 12.5 MB/s.
    assert 4e6 < ranks["bytes_per_s"] < 12.5e6


def training(synced_s, wait_s=0.0, model_s=0.1, work_s=0.0):
    """The measurements of a step after one of warm-up, by the waits for synchronisation of each step."""
    own_s, waits_s = model_s + work_s, synced_s[2:]
    return TrainingMeasurements(
        MachineState(1.0, 1),
        waits=1,
        waiting_s=wait_s,
        steps=1,
        stepping_s=own_s + sum(waits_s) / len(waits_s),
        training=(Sampled("work", "", work_s),),
        synced_s=synced_s,
        exchanged_s=(0.0, 0.0, 0.05, 0.05),
        warmup_steps=1,
    )


def times(rank, synced_s, **parts):
    return rank, ("a", training((9.0, 9.0, synced_s, synced_s), **parts))


@pytest.mark.parametrize("part", ["wait_s", "model_s", "work_s"])
def test_the_rank_that_waits_least_is_the_slowest_by_its_largest_excess(part):
    slow = {"wait_s": 0.0, "model_s": 0.1, "work_s": 0.0}
    slow[part] += 0.05
    found = compare(dict([times(0, 0.06), times(1, 0.01, **slow), times(2, 0.06)]))
    reason = {"wait_s": "its loader", "model_s": "its model", "work_s": "its other work"}[part]
    assert (found.slowest, found.reason) == (1, reason)
    assert found.network_s == pytest.approx(0.01)
    assert [each.held_up_s for each in found.ranks] == pytest.approx([0.05, 0.0, 0.05])
    assert "Rank 1 holds up the others: a step takes 150 ms there and 100 ms elsewhere" in found.headline


@pytest.mark.parametrize("synced_s", [0.0, 0.5], ids=["unknown", "a slow network"])
def test_a_difference_that_costs_little_or_nothing_names_no_rank(synced_s):
    # Without synchronisation, no rank waits for another; beside a slow network, 50 ms do not matter.
    found = compare(dict([times(0, synced_s), times(1, synced_s, model_s=0.15)]))
    assert found.slowest is None


def test_ranks_that_are_late_in_turn_wait_for_each_other():
    turns = [(9.0, 9.0, 0.0, 0.1), (9.0, 9.0, 0.1, 0.0)]
    found = compare(dict(times(rank, 0.05) for rank in (0, 1)))
    assert found.network_s == pytest.approx(0.05)
    found = compare({rank: ("a", training(waits_s)) for rank, waits_s in enumerate(turns)})
    assert (found.slowest, found.network_s) == (None, 0.0)
    assert "ranks wait 50 ms for each other" in " ".join(found.evidence)


def test_gradients_divided_by_the_time_are_the_bandwidth():
    found = compare(dict([times(0, 0.02), times(1, 0.02)]), gradient_bytes=1_000_000)
    assert found.bytes_per_s == pytest.approx(20e6)
    assert "their 1.0 MB are exchanged at 20.0 MB/s (algorithm bandwidth" in " ".join(found.evidence)


def test_missing_ranks_are_named():
    found = compare(dict([times(0, 0.02), times(2, 0.02)]), missing=[1])
    assert "No times arrived from rank 1." in found.evidence

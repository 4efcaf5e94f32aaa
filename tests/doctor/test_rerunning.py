"""The user's script run again: each change reaches it without an edit, and each run ends in time."""

import os
import textwrap
import time

import pytest

from fastload.doctor.rerunning.runs import ScriptRuns

SCRIPT = """
import copy, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset

def average(mean, model):
    for old, new in zip(mean.parameters(), model.parameters()):
        old.data.mul_(0.9).add_(new.data, alpha=0.1)

def main():
    torch.set_num_threads(1)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 2)]
    model = torch.nn.Sequential(*layers)
    mean = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(4000, 3, 8, 8), torch.randint(0, 2, (4000,)))
    for number, (images, labels) in enumerate(DataLoader(data, batch_size=4)):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.002)
        seen(number, model, optimizer, images, loss)
        average(mean, model)

def seen(number, model, optimizer, images, loss):
    {probe}

if __name__ == "__main__":
    main()
"""
SLEEP = 1 + SCRIPT.splitlines().index("        time.sleep(0.002)")
AVERAGE = 1 + SCRIPT.splitlines().index("        old.data.mul_(0.9).add_(new.data, alpha=0.1)")


@pytest.fixture
def runs(tmp_path):
    def make(probe="pass", seconds=0.3, script=SCRIPT):
        path = tmp_path / "train.py"
        path.write_text(script.replace("{probe}", probe))
        environment = os.environ | {"PYTHONPATH": os.getcwd()}
        made = ScriptRuns([str(path)], seconds, lambda *_: None, environment=environment)
        made.folder = tmp_path / "runs"
        return made

    return make


def trial_of(runs, *changes):
    return runs.run("", "", changes, "loader0", is_evaluation=False)


def test_a_run_measures_steps_loss_and_memory_and_leaves_no_process(runs):
    made = runs()
    trial = trial_of(made)
    assert trial.failure == ""
    assert 0.002 < trial.step_s < 1
    assert trial.samples == 4
    assert trial.memory_bytes > 1 << 20
    assert 0 < trial.losses[0] < 5


# A probe fails unless the change has reached the script.
PROBES = {
    ("autocast", "bfloat16"): "layer = model[3]; inputs = model[:3](images); "
    "plain = torch.nn.functional.linear(inputs, layer.weight, layer.bias); "
    "assert loss.dtype == torch.float32; assert not torch.equal(model(images), plain)",
    ("channels_last", ""): "assert model[0].weight.is_contiguous(memory_format=torch.channels_last)",
    ("optimizer", ""): "assert all(group['fused'] for group in optimizer.param_groups)",
    ("threads", "2"): "assert torch.get_num_threads() == 2",
    ("batch", "2"): "assert len(images) == 8; assert round(optimizer.defaults['lr'], 6) == 0.001414",
    ("matmul precision", "medium"): "assert torch.get_float32_matmul_precision() == 'medium'",
}


@pytest.mark.parametrize(
    "change",
    [pytest.param(each, marks=[] if each[0] == "batch" else pytest.mark.soak, id=each[0]) for each in PROBES],
)
def test_a_change_reaches_the_script(runs, change):
    trial = trial_of(runs(PROBES[change]), change)
    assert trial.failure == ""
    assert trial.samples == (8 if change[0] == "batch" else 4)


def test_a_statement_runs_in_every_tenth_step(runs):
    made = runs(seconds=0.5, script=SCRIPT.replace("0.002", "0.02"))
    thinned = trial_of(made, ("less often", f"{made.words[0]}:{SLEEP}"))
    assert thinned.failure == ""
    assert thinned.step_s < 0.5 * trial_of(made).step_s


def test_a_loop_that_averages_weights_is_replaced(runs):
    made = runs(script=SCRIPT.replace("old.data.mul_", "old.missing.mul_"))
    assert "missing" in trial_of(made).failure
    assert trial_of(made, ("average", f"{made.words[0]}:{AVERAGE}")).failure == ""


@pytest.mark.parametrize(
    ("change", "script", "reason"),
    [
        (("no change", ""), SCRIPT, "KeyError: 'no change'"),
        (("optimizer", ""), SCRIPT.replace("optimizer.step()", "pass"), "nothing that it would change"),
        (("less often", "train.py:1"), SCRIPT, "nothing that it would change"),
        (("threads", "2"), SCRIPT.replace("loss.backward()", "raise KeyError(7)"), "KeyError: 7"),
        (("threads", "2"), SCRIPT.replace("4000", "16"), "it ended after 4 steps, and 7 are needed"),
        (("threads", "2"), SCRIPT.replace("loss.backward()", "import os; os._exit(3)"), "os._exit(3)"),
    ],
)
def test_a_run_that_cannot_be_measured_says_why(runs, change, script, reason):
    assert reason in trial_of(runs(script=script), change).failure


def test_a_run_that_hangs_is_ended(runs, monkeypatch):
    monkeypatch.setattr("fastload.doctor.rerunning.runs._START_S", 4.0)
    began = time.perf_counter()
    trial = trial_of(runs(script=textwrap.dedent("import time\ntime.sleep(600)")))
    assert "it took more than" in trial.failure
    assert time.perf_counter() - began < 60


def test_the_script_sees_the_same_arguments_folder_and_environment(runs, tmp_path):
    folder = str(tmp_path)
    made = runs(f"import os; assert (sys.argv[1], os.getcwd(), os.environ['A']) == ('-x', {folder!r}, 'b')")
    made.words, made.cwd = [*made.words, "-x"], folder
    made.environment |= {"A": "b"}
    assert trial_of(made).failure == ""

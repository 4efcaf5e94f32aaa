"""The report of a script: on a page, and with changes of the training step."""

import datetime
import json
import re

import pytest
import torch

from tests.commands import run

SLOW = "Numbers.takes_s = 0.01\n"


def test_the_report_is_also_a_page_with_machine_versions_and_date(script, tmp_path):
    page = tmp_path / "report.html"
    done = run("doctor", "--html", page, script(f"{SLOW}batches()"))
    assert done.returncode == 0, done.stderr
    assert "Ctrl-C ends it sooner, with a report" in done.stderr
    text = page.read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width' in text
    assert "<h1>What limits train.py?</h1>" in text
    assert "Time for one batch" in text
    assert datetime.date.today().isoformat() in text
    assert f"torch {torch.__version__}" in text
    assert "usable CPUs" in text
    # Nothing is wider than a small screen, but for a table that scrolls.
    assert not re.search(r"(?<!max-)width: *\d{3,}(px|rem)|min-width", text)


def test_the_doctor_ends_by_itself_unless_told_to_go_on(script):
    path = script(f"{SLOW}batches()")
    assert "for 60 s after its first step (--whole: to its end)" in run("doctor", path).stderr
    assert "watches train.py to its end" in run("doctor", "--whole", path).stderr


@pytest.mark.soak  # test_rerunning runs each change alone
def test_changes_of_the_step_are_tried_if_asked_for(script):
    path = script(
        f"{SLOW}model = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for batch in DataLoader(Numbers(), 2):\n"
        "    model(batch.float()[:, None]).square().mean().backward()\n"
        "    optimizer.step()"
    )
    done = run("doctor", "--step", "--trial-seconds", "0.1", "--json", path)
    [part] = json.loads(done.stdout)["parts"]
    trials = {trial["kind"]: trial for trial in part["measurements"]["step_trials"]}
    assert {"as it is", "optimizer", "autocast", "torch.compile", "batch"} <= trials.keys()
    assert trials["as it is"]["failure"] == ""
    assert "trial 1: running the script as it is" in done.stderr
    untried = run("doctor", "--step", "--trial-seconds", "0", "--json", path)
    assert json.loads(untried.stdout)["parts"][0]["measurements"]["step_trials"] == []

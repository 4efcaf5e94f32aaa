"""In constructed situations, the doctor finds the true cause."""

import json
import subprocess

import pytest

from tests.commands import FASTLOAD, run
from tests.doctor.places import place_of
from tests.doctor.situations import SITUATIONS, TRAIN


@pytest.mark.parametrize(
    "situation",
    [pytest.param(one, marks=[] if one.is_short else [pytest.mark.soak]) for one in SITUATIONS],
    ids=lambda situation: situation.name,
)
def test_the_verdict_is_the_true_cause(situation, folders):
    with place_of(situation, folders) as (before, places):
        arguments = situation.arguments.format(**places).split()
        command = ["doctor", "--json", "--trial-seconds", "0", "--seconds", str(situation.seconds)]
        command += [TRAIN, *arguments]
        if before:
            command = [*before, *FASTLOAD, *command]
            done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        else:
            done = run(*command)
    assert done.stdout, done.stderr
    [part, *_] = json.loads(done.stdout)["parts"]
    assert part["verdict"] == situation.verdict, "\n".join([part["headline"], *part["evidence"]])
    assert situation.limit in "\n".join(part["limits"]), part["limits"]

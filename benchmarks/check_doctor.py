"""Does the doctor find what slows down training, and does its first fix gain what it predicts?

`fastload doctor` examines each situation of tests/doctor, whose bottleneck is known. Then its first fix is
applied: the training script runs unchanged and with the fix, in turns, and the median throughput of the runs
after their first batch is compared. A row is right if the verdict is the known one and the real gain is
within 25% of the predicted one; where the doctor says "at least 10 ×", the real gain must not be lower by
more than 25%. A fix that no argument applies (a rewritten transform, a quota) has no real gain.

Run it on an otherwise idle machine, as root and with fuse3; without these, the slow disks are left out.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from _harness import identified, options_of, progress, publish_json

sys.path.insert(0, str(Path(__file__).parent.parent))
from fastload.doctor.findings import MOST_GAIN
from tests.doctor.places import place_of
from tests.doctor.situations import APPLIED, SITUATIONS, TRAIN, Situation, make_folders

_WITHIN = 0.25

# The doctor watches for this long: a thousand stack samples.
_SECONDS = 5.0

# Steps of each turn; the first does not count. With a slow disk, they are one epoch: after that, its files
# are in the page cache.
_STEPS = 121
_STEPS_COLD = 36

# Starting workers takes a second if they have to open a packed dataset, which is not to be measured here.
_LONG_EPOCH = ["--samples", "6000"]


def main() -> None:
    only = {"metavar": "TEXT", "default": "", "help": "situations whose name contains it"}
    options = options_of(__doc__, only=only)
    steps = 20 if options.smoke else _STEPS
    rows = []
    with tempfile.TemporaryDirectory() as root:
        folders = make_folders(Path(root))
        for situation in SITUATIONS:
            if options.only in situation.name:
                row = examined(situation, folders, options.runs, steps)
                rows.append(row)
                progress(description(row))
    summary = counts(rows)
    progress(summary)
    heads = ["situation", "truth", "verdict", "first fix", "predicted gain", "real gain"]
    question = "Is the doctor right, and does its first fix gain what it predicts?"
    content = {
        **identified("doctor", question, {"runs": options.runs, "steps": steps}, {}),
        "tables": [],
        "rows": [],
        "missing": [],
        "situations": rows,
        "summary": summary,
        "grids": [{"heads": heads, "rows": [cells(row) for row in rows]}],
    }
    publish_json(content, options)


def counts(rows: list[dict]) -> str:
    """Return how many verdicts are right, and how many gains near the predicted ones."""
    ran = [row for row in rows if "skipped" not in row]
    checked = [row for row in ran if row.get("gain")]
    near = [row for row in checked if is_near(row)]
    bounds = sum(row["predicted"] >= MOST_GAIN for row in near)
    right = sum(row["verdict"] == row["truth"] for row in ran)
    return (
        f"{right} of {len(ran)} verdicts and {len(near)} of {len(checked)} predicted gains are right, "
        f"{bounds} of these as “at least {MOST_GAIN:.0f}”."
    )


def is_near(row: dict) -> bool:
    ratio = row["gain"] / row["predicted"]
    return ratio >= 1 - _WITHIN and (ratio <= 1 + _WITHIN or row["predicted"] >= MOST_GAIN)


def cells(row: dict) -> list[str]:
    if "skipped" in row:
        return [row["name"], row["truth"], "–", "–", "–", "–"]
    shown = [f"{row[name]:.2f}" if row.get(name) else "–" for name in ("predicted", "gain")]
    if (row["predicted"] or 0) >= MOST_GAIN:
        shown[0] = f"at least {MOST_GAIN:.0f}"
    return [row["name"], row["truth"], row["verdict"], row["fix"], *shown]


def description(row: dict) -> str:
    if "skipped" in row:
        return f"{row['name']}: skipped, {row['skipped']}"
    sign = "right" if row["verdict"] == row["truth"] else f"WRONG, it is {row['truth']}"
    gain = ""
    if row.get("gain"):
        as_it_is, fixed = (1e3 * seconds for seconds in row["seconds"].values())
        gain = f", really {row['gain']:.2f} ({as_it_is:.2f} -> {fixed:.2f} ms a sample)"
    predicted = f"{row['predicted']:.2f}" if row["predicted"] else "not predicted"
    return f"{row['name']}: {row['verdict']} ({sign}); {row['fix']}: {predicted}{gain}"


def examined(situation: Situation, folders: dict, runs: int, steps: int) -> dict:
    row = {"name": situation.name, "truth": situation.verdict}
    try:
        with place_of(situation, folders) as (before, places):
            arguments = situation.arguments.format(**places).split()
            if situation.measures == "steady_s" and "slow" not in places:
                arguments += _LONG_EPOCH
            doctor = [sys.executable, "-m", "fastload", "doctor", "--json"]
            command = [
                *before,
                *doctor,
                "--seconds",
                str(max(_SECONDS, situation.seconds)),
                str(TRAIN),
                *arguments,
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            [part, *_] = json.loads(done.stdout)["parts"]
            fix = (part["fixes"] or [{"kind": "nothing", "gain": None, "action": ""}])[0]
            row |= {"verdict": part["verdict"], "fix": fix["kind"], "predicted": fix["gain"]}
            changed = applied(fix, places, arguments, Path(folders["out"]))
            if fix["gain"] and changed is not None:
                row["seconds"] = both_ways(situation, before, arguments, changed, runs, steps, places)
                row["gain"] = row["seconds"]["as it is"] / row["seconds"]["fixed"]
    except pytest.skip.Exception as reason:
        row["skipped"] = str(reason)
    return row


def applied(fix: dict, places: dict, arguments: list[str], out: Path) -> list[str] | None:
    """Return the arguments of the script with the fix; None if no argument applies it."""
    kind, action = fix["kind"], fix["action"]
    data = arguments[arguments.index("--data") + 1]
    if kind == "cache":
        copy = Path("/dev/shm") / f"fastload-check-doctor-{os.getpid()}"
        subprocess.run(["cp", "-r", data, str(copy)], check=True)
        return [str(copy) if argument == data else argument for argument in arguments]
    if option := re.search(r"fastload pack .* (--encode|--shorter-side) (\w+)", action):
        dest = out / f"{Path(data).name}{''.join(option.groups())}.fl"
        if not dest.exists():
            command = [
                sys.executable,
                "-m",
                "fastload",
                "pack",
                data,
                str(dest),
                *option.groups(),
                "--quiet",
            ]
            subprocess.run(command, check=True)
        return [*arguments, "--packed", str(dest), "--fastload", "--compile"]
    if kind not in APPLIED:
        return None
    extra = APPLIED[kind](action)
    return None if extra is None else [*arguments, *extra.split()]


def both_ways(situation, before, arguments, changed, runs, steps, places) -> dict[str, float]:
    """Return the median time of a sample, without the fix and with it."""
    taken: dict[str, list[float]] = {"as it is": [], "fixed": []}
    times = Path(places["out"]) / "times.json"
    is_cold = situation.place in ("latency", "bandwidth")
    steps = min(steps, _STEPS_COLD) if is_cold else steps
    long = [] if situation.measures == "whole_s" else ["--epochs", "50", "--steps", str(steps)]
    for _ in range(runs):
        for name, given in (("as it is", arguments), ("fixed", changed)):
            if is_cold:
                forget(Path(places["slow"]))
            command = [*before, sys.executable, str(TRAIN), *given, *long, "--times", str(times)]
            subprocess.run(command, check=True, capture_output=True)
            taken[name].append(json.loads(times.read_text())[situation.measures])
    for copy in Path("/dev/shm").glob(f"fastload-check-doctor-{os.getpid()}"):
        subprocess.run(["rm", "-r", str(copy)], check=True)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def forget(folder: Path) -> None:
    """Drop a folder's files from the page cache."""
    for path in folder.rglob("*.jpg"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()

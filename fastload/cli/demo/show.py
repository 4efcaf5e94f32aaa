"""What a visitor sees: a table on a terminal, lines elsewhere, or JSON."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from fastload.cli.console import console
from fastload.cli.demo.contest import SEED, Contest
from fastload.cli.demo.race import Outcome
from fastload.cli.demo.sides import BATCH_SIZE, IMAGE_SIDE
from fastload.cli.demo.training import Score, Training
from fastload.cli.progress import count_text, size_text

_WIDTH = 100  # longer lines are hard to read
_FASTER = 1.05  # what is less lies within the noise


def print_contest(contest: Contest) -> None:
    """Prints everything that was measured, and how."""
    print("\n".join(_heading(contest)), end="\n\n")
    if sys.stdout.isatty():
        console().print(_table(contest.race.outcomes))
    else:
        for outcome in contest.race.outcomes:
            print(_line(outcome, contest.race.outcomes[0]))
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    print(f"\n{textwrap.fill(_conclusion(contest.race.outcomes), width)}\n")
    for remark in _remarks(contest):
        print(textwrap.fill(remark, width, initial_indent="· ", subsequent_indent="  "))
    print()
    if contest.images.available is None:
        print("On your own images:  fastload demo --data FOLDER")
    print("To pack and use them:  fastload pack FOLDER photos.fl")


def _heading(contest: Contest) -> Iterator[str]:
    machine, images = contest.machine, contest.images
    kind = "images" if images.available is not None else "made photos"
    classes = f" of {images.classes:,} classes" if images.classes > 1 else ""
    among = ""
    if images.available is not None and images.available > images.count:
        among = f" (of {images.available:,})"
    yield f"fastload {machine.versions['fastload']} and torch's DataLoader, loading the same images"
    yield (
        f"{images.count:,} {kind}{among}{classes}, {size_text(images.size_bytes / images.count)} "
        f"on average; crops of {IMAGE_SIDE} × {IMAGE_SIDE}"
    )
    yield (
        f"{machine.cpu}, {count_text(machine.cpus, 'CPU')}; "
        f"{count_text(contest.workers, 'worker')} a side, batches of {BATCH_SIZE}"
    )
    others = (f"{name} {version}" for name, version in machine.versions.items() if name != "fastload")
    yield ", ".join(others)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), header_style="bold")
    table.add_column("\non disk", no_wrap=True)
    table.add_column("loading\nimages/s", justify="right")
    table.add_column("\n×", justify="right")
    if outcomes[0].training is not None:
        table.add_column("training\nimages/s", justify="right")
        table.add_column("waits\nfor data", justify="right")
        table.add_column("loss\naccuracy", justify="right")
    for outcome in outcomes:
        table.add_row(*_cells(outcome, outcomes[0]))
    return table


def _cells(outcome: Outcome, first: Outcome) -> Iterator[Text]:
    ratio = outcome.loading.median / first.loading.median
    color = "green" if ratio >= _FASTER else "red" if ratio < 1 / _FASTER else ""
    yield _two_lines(outcome.side.name, size_text(outcome.side.size_bytes))
    yield _two_lines(_number(outcome.loading.median), _range(outcome.loading.images_per_s))
    yield Text(_ratio(outcome, first), style=f"bold {color}")
    training = outcome.training
    if training is not None:
        yield _two_lines(_number(training.median), _range(training.images_per_s))
        yield Text(f"{training.waits:.0%}")
        yield Text("\n".join(_learnt(training)))


def _two_lines(first: str, second: str) -> Text:
    return Text.assemble(first, "\n", (second, "dim"))


def _line(outcome: Outcome, first: Outcome) -> str:
    text = (
        f"{outcome.side.name} ({size_text(outcome.side.size_bytes)}): "
        f"loading {_number(outcome.loading.median)} images/s "
        f"({_range(outcome.loading.images_per_s)}), {_ratio(outcome, first)} ×"
    )
    training = outcome.training
    if training is None:
        return text
    loss, accuracy = _learnt(training)
    return (
        f"{text}; training {_number(training.median)} images/s ({_range(training.images_per_s)}), "
        f"waits {training.waits:.0%} of the time, loss {loss}, accuracy {accuracy}"
    )


def _conclusion(outcomes: Sequence[Outcome]) -> str:
    first, files, *packed = outcomes
    gains = [f"{_ratio(files, first)} × as fast from the same files"]
    gains += [f"{_ratio(outcome, first)} × from packed {outcome.side.encoding}" for outcome in packed]
    return f"Beside torch's DataLoader, fastload loads {', '.join(gains)}."


def _ratio(outcome: Outcome, first: Outcome) -> str:
    return f"{outcome.loading.median / first.loading.median:.1f}"


def _learnt(training: Training) -> tuple[str, str]:
    before, after = training.before, training.after
    return (
        f"{before.loss:.2f} → {after.loss:.2f}",
        f"{before.accuracy:.0%} → {after.accuracy:.0%}",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _range(values: Sequence[float]) -> str:
    return f"{_number(min(values))}–{_number(max(values))}"


def _remarks(contest: Contest) -> Iterator[str]:
    """How the figures came about, and what they leave out."""
    race = contest.race
    first, *others = race.outcomes
    rounds = len(first.loading.images_per_s)
    turns = f"{count_text(rounds, 'turn')} of {count_text(race.turn_images, 'image')}"
    yield (
        f"images/s: median of {turns} a side, least and most below it. The sides take turns; workers "
        "are running and files are in memory; nothing decoded is kept. Each side does the same: read, "
        "decode (raw pixels need none), random crop, antialiased resize, flip, uint8 tensor, batch."
    )
    startup_s = max(outcome.loading.startup_s for outcome in race.outcomes)
    yield f"Not counted: starting the workers, at most {startup_s:.1f} s a side."
    files, *packed = others
    for outcome in packed:
        yield _packing(outcome, files, contest.images.count)
    if first.training is not None:
        yield _likeness(race.steps, contest, others)
    yield from contest.notes


def _packing(outcome: Outcome, files: Outcome, images: int) -> str:
    """What packing costs, once, and when that is earned, beside fastload's own way with the files."""
    pack_s = outcome.side.pack_s or 0.0
    text = f"Packing {outcome.side.encoding} took {pack_s:.1f} s, once"
    if outcome.loading.median < _FASTER * files.loading.median:
        return f"{text}; it loads no faster than the same files here."
    gained_s = images / files.loading.median - images / outcome.loading.median
    epochs = math.ceil(pack_s / gained_s)
    return f"{text}; beside the same files that is earned back after {count_text(epochs, 'epoch')}."


def _likeness(steps: int, contest: Contest, others: Sequence[Outcome]) -> str:
    text = f"Training: {count_text(steps, 'step')} of a tiny network on "
    text += f"{count_text(contest.threads, 'CPU thread')}, with one seed for all sides. "
    differences = [o.difference for o in others if o.difference is not None]
    if not all(difference.has_equal_labels for difference in differences):
        return text + "The first batches hold different images: that should not be."
    mean = max(difference.mean for difference in differences)
    most = max(difference.most for difference in differences)
    return (
        f"{text}All sides get the same crops of the same images in the same order: against torch's, "
        f"pixels of the first batch differ by {mean:.2f} of 255 on average, {most} at most."
    )


def as_json(contest: Contest) -> str:
    """Everything that was measured, with each turn's figures."""
    machine, images, race = contest.machine, contest.images, contest.race
    content = {
        "machine": {"cpu": machine.cpu, "cpus": machine.cpus, "system": machine.system},
        "versions": machine.versions,
        "images": {
            "count": images.count,
            "available": images.available,
            "classes": images.classes,
            "size_bytes": images.size_bytes,
        },
        "work": f"random crop resized to {IMAGE_SIDE}x{IMAGE_SIDE}, antialiased; random flip; uint8",
        "cache": "warm",
        "workers": contest.workers,
        "threads": contest.threads,
        "batch_size": BATCH_SIZE,
        "seed": SEED,
        "turn_images": race.turn_images,
        "steps": race.steps,
        "sides": [_side_as_json(outcome, race.outcomes[0]) for outcome in race.outcomes],
        "notes": list(contest.notes),
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def _side_as_json(outcome: Outcome, first: Outcome) -> dict[str, Any]:
    side, loading, difference = outcome.side, outcome.loading, outcome.difference
    return {
        "name": side.name,
        "encoding": side.encoding,
        "size_bytes": side.size_bytes,
        "pack_s": side.pack_s,
        "startup_s": loading.startup_s,
        "loading": {
            "images_per_s": loading.median,
            "turns_images_per_s": loading.images_per_s,
            "ratio": loading.median / first.loading.median,
        },
        "training": None if outcome.training is None else _training_as_json(outcome.training),
        "difference": difference
        and {
            "mean": difference.mean,
            "most": difference.most,
            "has_equal_labels": difference.has_equal_labels,
        },
    }


def _training_as_json(training: Training) -> dict[str, Any]:
    def score(value: Score) -> dict[str, float]:
        return {"loss": value.loss, "accuracy": value.accuracy}

    return {
        "images_per_s": training.median,
        "turns_images_per_s": training.images_per_s,
        "waits": training.waits,
        "turns_waits": training.waiting,
        "before": score(training.before),
        "after": score(training.after),
    }

"""Measures the sides of the race: loading alone, then while a tiny network trains.

The sides take turns within one run, each round in another order, so that whatever else the machine
does meets them all. Before the first turn, every side has started its workers and loaded a few
batches, and every file has been read, by packing. A turn is timed from asking for its first batch to
having its last; as all its workers get equally many batches, none idles at the end.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from fastload.cli.demo.lanes import Lane
from fastload.cli.demo.sides import BATCH_SIZE, Side
from fastload.cli.demo.training import Trainee, Training, warm_up

# The slowest side's turn. Long enough that starting and ending a turn hardly count, short enough for
# several rounds. Of photos with many megapixels, one batch a worker takes longer: then rounds are fewer.
_TURN_S = 1.2
_ROUNDS = (3, 5)
# The slowest side's training, all turns together, unless a number of steps was asked for.
_TRAINING_S = 5.0
_STEPS = (6, 90)
_TRAINING_TURNS = 3

Progress = Callable[[str, int, int], None]
"""Called before each turn with the side's name, and how many turns of how many are done."""


@dataclass(frozen=True, slots=True)
class Loading:
    """How fast a side loads, with nothing else to do.

    Attributes:
        startup_s: From making the loader to its first batch; not part of any rate.
        images_per_s: Of each turn.
    """

    startup_s: float
    images_per_s: list[float]

    @property
    def median(self) -> float:
        """Images a second in the median turn."""
        return statistics.median(self.images_per_s)


@dataclass(frozen=True, slots=True)
class Difference:
    """How a side's first training batch differs from the first side's, in levels of 255.

    Attributes:
        mean: Over all values, without their signs.
        most: Of any value.
        has_equal_labels: Whether both batches show the same images.
    """

    mean: float
    most: int
    has_equal_labels: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured of a side.

    Attributes:
        side: The side.
        loading: How fast it loads.
        training: None where no training steps were asked for.
        difference: None for the first side, and where there was no training.
    """

    side: Side
    loading: Loading
    training: Training | None
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Race:
    """What was measured, and how much of it was done.

    Attributes:
        outcomes: In the order of the sides.
        turn_images: What each side loads in a turn.
        steps: Training steps of each side.
    """

    outcomes: list[Outcome]
    turn_images: int
    steps: int


def race(
    sides: list[Side],
    *,
    classes: int,
    workers: int,
    threads: int,
    rounds: int | None,
    steps: int | None,
    seed: int,
    progress: Progress,
) -> Race:
    """Measures all sides.

    Args:
        sides: The first is what the others are compared with.
        classes: The number of classes.
        workers: Processes of each side; the others' sleep while it has its turn.
        threads: What the training computes with.
        rounds: Turns of each side that only load; None for 5, or 3 where they are long.
        steps: Training steps of each side; None for what takes the slowest some 5 s.
        seed: Of order, crops and network, the same for each side.
        progress: Called before each turn.

    Returns:
        What was measured.
    """
    torch.set_num_threads(threads)
    # Who asks for more workers than CPUs knows it; torch would say it for every side, and twice.
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    lanes = [Lane(side, workers, seed) for side in sides]
    startups = []
    for number, lane in enumerate(lanes):
        progress(f"starting: {lane.side.name}", number, len(lanes))
        startups.append(lane.start(workers))
    slowest = min(lane.load(workers) for lane in lanes)
    batches = max(1, round(slowest * _TURN_S / BATCH_SIZE / workers)) * workers
    if rounds is None:
        turn_s = batches * BATCH_SIZE / slowest
        rounds = _within(_ROUNDS, _ROUNDS[1] * _TURN_S / turn_s)
    rates: dict[Lane, list[float]] = {lane: [] for lane in lanes}
    for turn, lane in enumerate(_turns(lanes, rounds)):
        progress(f"loading: {lane.side.name}", turn, rounds * len(lanes))
        rates[lane].append(lane.load(batches))
    loading = [Loading(*each) for each in zip(startups, rates.values(), strict=True)]
    if steps is None:
        steps = _within(_STEPS, slowest * _TRAINING_S / BATCH_SIZE)
    outcomes = [Outcome(*each, None, None) for each in zip(sides, loading, strict=True)]
    if steps:
        trainees = _train_all(lanes, steps, classes, seed, progress)
        outcomes = [
            replace(o, training=t.result(), difference=_difference(t, trainees[0]))
            for o, t in zip(outcomes, trainees, strict=True)
        ]
    return Race(outcomes, batches * BATCH_SIZE, steps)


def _within(bounds: tuple[int, int], value: float) -> int:
    least, most = bounds
    return min(max(round(value), least), most)


def _turns(lanes: list[Lane], rounds: int) -> Iterator[Lane]:
    """The lanes in turn, each round beginning with another: none always follows the same one."""
    for turn in range(rounds):
        first = turn % len(lanes)
        yield from lanes[first:] + lanes[:first]


def _train_all(lanes: list[Lane], steps: int, classes: int, seed: int, progress: Progress) -> list[Trainee]:
    warm_up(classes)
    trainees = {lane: Trainee(lane, classes, seed) for lane in lanes}
    turns = min(_TRAINING_TURNS, steps)
    for turn, lane in enumerate(_turns(lanes, turns)):
        progress(f"training: {lane.side.name}", turn, turns * len(lanes))
        this_round = turn // len(lanes)
        trainees[lane].train((this_round + 1) * steps // turns - this_round * steps // turns)
    return list(trainees.values())


def _difference(trainee: Trainee, first: Trainee) -> Difference | None:
    if trainee is first:
        return None
    images, labels = trainee.first_batch
    first_images, first_labels = first.first_batch
    levels = (images.short() - first_images.short()).abs()
    return Difference(levels.float().mean().item(), int(levels.max()), bool(labels.equal(first_labels)))

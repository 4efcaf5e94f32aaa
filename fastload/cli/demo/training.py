"""A tiny network, and how its training goes with the batches of one side."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from fastload.cli.demo.lanes import Lane
from fastload.cli.demo.sides import BATCH_SIZE, IMAGE_SIDE

# Loss and accuracy are means over this many steps, the first or the last.
_SCORED_STEPS = 8


@dataclass(frozen=True, slots=True)
class Score:
    """How well the network does on training batches before it learns from them."""

    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Training:
    """How a training goes that a side feeds.

    Attributes:
        images_per_s: Of each turn.
        waiting: The share of each turn that the training waited for data, 0 to 1.
        before: Over the first steps.
        after: Over the last steps.
    """

    images_per_s: list[float]
    waiting: list[float]
    before: Score
    after: Score

    @property
    def median(self) -> float:
        """Images a second in the median turn."""
        return statistics.median(self.images_per_s)

    @property
    def waits(self) -> float:
        """The share of the median turn that was waited."""
        return statistics.median(self.waiting)


class Trainee:
    """A tiny network, and how its training goes."""

    def __init__(self, lane: Lane, classes: int, seed: int) -> None:
        self.lane = lane
        self.first_batch: Any = None
        torch.manual_seed(seed)
        self._network = _tiny_network(classes)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=3e-3)
        self._scores: list[Score] = []
        self._images_per_s: list[float] = []
        self._waiting: list[float] = []

    def train(self, steps: int) -> None:
        """Has a turn of so many steps. The wait for its first batch counts as waiting."""
        waited_s = 0.0
        began = asked = time.perf_counter()
        for images, labels in self.lane.batches(steps):
            waited_s += time.perf_counter() - asked
            if self.first_batch is None:
                self.first_batch = images, labels
            self._scores.append(self._step(images, labels))
            asked = time.perf_counter()
        seconds = time.perf_counter() - began
        self._images_per_s.append(steps * BATCH_SIZE / seconds)
        self._waiting.append(waited_s / seconds)

    def _step(self, images: torch.Tensor, labels: torch.Tensor) -> Score:
        labels = labels.clamp(min=0)  # a folder without classes has the label -1
        guesses = self._network(images.float() / 127.5 - 1)
        loss = functional.cross_entropy(guesses, labels)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        hits = (guesses.argmax(1) == labels).float().mean()
        return Score(loss.item(), hits.item())

    def result(self) -> Training:
        """All turns so far."""
        scored = math.ceil(min(_SCORED_STEPS, len(self._scores) / 2))
        return Training(
            self._images_per_s,
            self._waiting,
            _mean(self._scores[:scored]),
            _mean(self._scores[-scored:]),
        )


def warm_up(classes: int) -> None:
    """Trains a network that nobody keeps: torch's first step takes longer than all others."""
    guesses = _tiny_network(classes)(torch.zeros(BATCH_SIZE, 3, IMAGE_SIDE, IMAGE_SIDE))
    guesses.sum().backward()


def _tiny_network(classes: int) -> nn.Module:
    """Four layers, 27,000 weights: it learns what it can within seconds on a CPU."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 8, stride=8),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, max(classes, 1)),
    )


def _mean(scores: list[Score]) -> Score:
    return Score(
        statistics.fmean(score.loss for score in scores),
        statistics.fmean(score.accuracy for score in scores),
    )

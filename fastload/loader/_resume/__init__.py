"""Resuming an epoch: the state of a loader, and drawing the same order again.

An epoch's order is a function of the random states at its start. So a loader's state holds these, and not the
order: the global states of torch, Python and NumPy, those of the generators of the loader and its samplers,
and how many batches have been handed out. A resume draws the order again from these states, skips the batches
that were handed out without loading them, and puts the user's global states back.
"""

from fastload.loader._resume.ahead import DrawsAhead
from fastload.loader._resume.drawing import TRANSFORMS, WORKERS, generators_of, has_drawn, mixed, start_state
from fastload.loader._resume.epochs import Epochs
from fastload.loader._resume.progress import Position, Progress

__all__ = [
    "TRANSFORMS",
    "WORKERS",
    "DrawsAhead",
    "Epochs",
    "Position",
    "Progress",
    "generators_of",
    "has_drawn",
    "mixed",
    "start_state",
]

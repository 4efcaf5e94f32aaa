"""Resuming an epoch where it was left: what a loader's state holds, and how the same order is drawn again.

An epoch's order is a function of the random state at its start. So a state holds that, not the order:
torch's, Python's and NumPy's global states and the states of the generators that the loader and its
samplers were given, and how many batches have been handed out. To resume, the order is drawn again from
those states, and what had been handed out is skipped without being loaded; the global states are then
put back, because they belong to the user.
"""

from fastload.loader.resume.ahead import DrawsAhead
from fastload.loader.resume.drawing import TRANSFORMS, WORKERS, generators_of, has_drawn, mixed, start_state
from fastload.loader.resume.epochs import Epochs
from fastload.loader.resume.progress import Mark, Progress, SkippingSampler

__all__ = [
    "TRANSFORMS",
    "WORKERS",
    "DrawsAhead",
    "Epochs",
    "Mark",
    "Progress",
    "SkippingSampler",
    "generators_of",
    "has_drawn",
    "mixed",
    "start_state",
]

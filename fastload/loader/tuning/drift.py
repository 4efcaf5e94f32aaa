"""Whether a plan still fits what batches take: pure, as all deciding."""

from __future__ import annotations

from fastload.loader.tuning.plan import Measurements, Trial
from fastload.loader.tuning.search import Candidate, batch_s

# A plan no longer fits if a batch takes so many times what it did, and that share of it is waited for.
_DRIFT = 1.4
_WAITS = 0.1

# It does not fit either if loading a batch takes less than such a share of what it took without workers.
_LIGHT = 0.5


def has_drifted(measured: Measurements, best: Candidate, lately: Trial) -> bool:
    """Whether a training waits for batches that take longer than its plan was made for.

    Args:
        measured: What the plan was made of.
        best: How batches are loaded.
        lately: The latest batches.
    """
    alone = measured.alone
    if alone is None or measured.only_alone:
        return False
    trials = [t for t in measured.trials if (t.num_workers, t.prefetch_factor) == best]
    expected = batch_s(trials) if trials else alone.batch_s
    waited = min((trial.waiting_s / trial.batches for trial in trials), default=alone.load_s)
    waits = lately.waiting_s / lately.batches
    return lately.batch_s > expected * _DRIFT and waits > max(waited * _DRIFT, lately.batch_s * _WAITS)


def has_lightened(measured: Measurements, best: Candidate, load_s: float) -> bool:
    """Whether loading has become so much cheaper that a plan's workers may not be needed.

    Args:
        measured: What the plan was made of.
        best: How batches are loaded.
        load_s: What making a batch takes a worker, lately.
    """
    return measured.alone is not None and best.num_workers > 0 and load_s < _LIGHT * measured.alone.load_s

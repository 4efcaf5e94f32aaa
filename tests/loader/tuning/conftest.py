"""Fixture for tests of tuned loaders that settle early."""

import dataclasses

import pytest

from fastload.loader._tuning.limits import read_limits


@pytest.fixture
def _hasty(monkeypatch):
    """Tries workers in short epochs, settles on less evidence than would be wise, and on two at most."""
    monkeypatch.setattr("fastload.loader._tuning.tuner.read_limits", _at_most_two_workers)
    monkeypatch.setattr("fastload.loader._tuning.decide.WINDOW_S", 0.05)
    monkeypatch.setattr("fastload.loader._tuning.window.WINDOW_S", 0.05)
    monkeypatch.setattr("fastload.loader._tuning.decide._BUDGET_SHARE", 0.1)


def _at_most_two_workers(context, batch_bytes):
    limits = read_limits(context, batch_bytes)
    return dataclasses.replace(limits, most_workers=min(limits.most_workers, 2))

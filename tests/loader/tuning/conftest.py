"""What tests of tuned loaders share: a place for plans that is their own, and haste."""

import dataclasses
import math

import pytest

from fastload.loader.tuning.limits import limits_of


@pytest.fixture(autouse=True)
def _plans_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def _hasty(monkeypatch):
    """Settles on less evidence than would be wise, and among fewer workers; noise is no drift."""
    monkeypatch.setattr("fastload.loader.tuning.tuner.limits_of", _at_most_two_workers)
    monkeypatch.setattr("fastload.loader.tuning.drift._DRIFT", math.inf)
    monkeypatch.setattr("fastload.loader.tuning.tuner._ENOUGH_S", 0.3)
    monkeypatch.setattr("fastload.loader.tuning.tuner._WORTH_KEEPING_S", 0.0)
    monkeypatch.setattr("fastload.loader.tuning.window._WINDOW_S", 0.05)


def _at_most_two_workers(loader, batch_bytes):
    limits = limits_of(loader, batch_bytes)
    return dataclasses.replace(limits, most_workers=min(limits.most_workers, 2))

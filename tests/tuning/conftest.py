"""What tests of tuned loaders share: a place for plans that is their own, and haste."""

import pytest


@pytest.fixture(autouse=True)
def _plans_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def _hasty(monkeypatch):
    """Settles on less evidence than would be wise."""
    monkeypatch.setattr("fastload.tuning.tuner._ENOUGH_S", 0.3)
    monkeypatch.setattr("fastload.tuning.tuner._WORTH_KEEPING_S", 0.1)
    monkeypatch.setattr("fastload.tuning.window._WINDOW_S", 0.05)

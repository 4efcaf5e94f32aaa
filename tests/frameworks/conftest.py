"""Packages of others that fastload is used in; a test's marker `frameworks` names those that it needs."""

import functools
import os
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from tests.frameworks import programs
from tests.tools import imported


@pytest.fixture(scope="module", autouse=True)
def _own_environment() -> Iterator[None]:
    """Takes back the variables that packages set: with some of them, no later program would be a fork."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def run_programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Gives `run_programs(*commands)`: `programs.run` with a folder for the settings of packages."""
    return functools.partial(programs.run, tmp_path_factory.mktemp("settings"))


@pytest.fixture(scope="session")
def timm_data() -> ModuleType:
    """Return timm's module of datasets and transforms."""
    return imported("timm.data")

"""Packages of others that fastload is used in; the tests of those that are not installed are skipped."""

import functools
import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from tests.frameworks import programs


@pytest.fixture(scope="module", autouse=True)
def _own_environment() -> Iterator[None]:
    """Takes back the variables that packages set: with some of them, no later program would be a fork."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def require_installed() -> Callable[[str], None]:
    """Gives `require_installed(package)`: skips the test where it is not installed; imports nothing.

    With FASTLOAD_REQUIRE_TOOLS set, as in CI, the test fails instead.
    """

    def require(package: str) -> None:
        if importlib.util.find_spec(package) is not None:
            return
        reason = f"needs {package} ('make frameworks' installs it)"
        if os.environ.get("FASTLOAD_REQUIRE_TOOLS"):
            pytest.fail(f"{reason}; FASTLOAD_REQUIRE_TOOLS forbids to skip", pytrace=False)
        pytest.skip(reason)

    return require


@pytest.fixture(scope="session")
def require_package(require_installed: Callable[[str], None]) -> Callable[[str], ModuleType]:
    """Gives `require_package(name)`: the module, under the conditions of `require_installed`."""

    def module_of(name: str) -> ModuleType:
        require_installed(name.partition(".")[0])
        # Warnings of a package while it is imported do not matter here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)

    return module_of


@pytest.fixture(scope="session")
def run_programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Gives `run_programs(*commands)`: `programs.run` with a folder for the settings of packages."""
    return functools.partial(programs.run, tmp_path_factory.mktemp("settings"))


@pytest.fixture(scope="session")
def timm_data(require_package: Callable[[str], ModuleType]) -> ModuleType:
    """Return timm's module of datasets and transforms."""
    require_package("torchvision")
    return require_package("timm.data")

"""Invalid options and states are refused, by name."""

from __future__ import annotations

import pytest

import fastload
from fastload import OptionError
from tests.loader.test_resume import DATA, generator, make, take


@pytest.mark.parametrize(
    "options",
    [{"shuffle": False}, {"seed": 1}, {"seed": None}, {"batch_size": 4}, {"drop_last": True}],
    ids=str,
)
def test_a_state_of_a_loader_with_other_settings_is_refused(options):
    settings = {"batch_size": 3, "shuffle": True, "seed": 0}
    loader = fastload.DataLoader(DATA, **settings)
    take(iter(loader), 2)
    other = fastload.DataLoader(DATA, **{**settings, **options})
    with pytest.raises(OptionError, match="same settings"):
        other.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("state", [None, {}, {"version": 4}, 5])
def test_objects_that_are_not_states_are_refused(state):
    with pytest.raises(OptionError, match="state_dict"):
        make("shuffle").load_state_dict(state)


@pytest.mark.parametrize(
    "options", [{"seed": -1}, {"seed": 1.5}, {"seed": True}, {"cache": "rams"}, {"device": 1.5}]
)
def test_invalid_options_are_refused(options):
    with pytest.raises(OptionError):
        fastload.DataLoader(DATA, **options)


def test_seed_and_generator_cannot_be_combined():
    with pytest.raises(OptionError, match="cannot be combined"):
        fastload.DataLoader(DATA, seed=1, generator=generator())

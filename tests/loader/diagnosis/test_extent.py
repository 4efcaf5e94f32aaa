"""How long a training would have gone on."""

import dataclasses

import pytest

from fastload.loader.diagnosis import Measurements
from fastload.loader.diagnosis.extent import batch_samples, epoch_batches, foreseen_batches, foreseen_s
from tests.loader.diagnosis.measured import CPUS, epoch


def cut(epochs, **known):
    """A training of 100 batches, in so many epochs."""
    return Measurements(epoch(), dataclasses.replace(CPUS, **known), epochs=epochs)


@pytest.mark.parametrize(
    ("measured", "batches"),
    [
        (cut(1), 100),
        (cut(1, epoch_batches=1000), 1000),
        (cut(1, epoch_samples=32_000), 1000),
        (cut(2, epoch_batches=80), 160),
        (cut(4, epoch_batches=25), 100),
    ],
    ids=["of no known length", "cut in its first epoch", "known by samples", "in its second", "at its end"],
)
def test_an_epoch_that_was_cut_is_foreseen_to_its_end(measured, batches):
    assert foreseen_batches(measured) == batches
    assert foreseen_s(measured) == pytest.approx(0.1 + 0.1 * batches)


def test_epochs_that_the_training_leaves_by_itself_are_not_prolonged():
    assert foreseen_batches(cut(10, epoch_batches=1000)) == 100
    assert epoch_batches(cut(10, epoch_batches=1000)) == 10


def test_an_iterator_that_goes_on_has_no_end():
    assert epoch_batches(cut(1, epoch_batches=20)) == float("inf")


def test_a_batch_has_the_samples_that_were_asked_for():
    assert batch_samples(Measurements(dataclasses.replace(epoch(), batch_size=3), CPUS)) == 32

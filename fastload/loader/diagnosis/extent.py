"""How much a training is: its batches in samples, its epochs in batches, all of it in seconds.

A training that the doctor ended early goes on for longer than it was watched: what is paid once an epoch is
judged by the epoch that would have been.
"""

from __future__ import annotations

import math

from fastload.loader.diagnosis.measurements import Measurements

_GOES_ON = 1.5
"""An iterator that gave so many times what its loader calls an epoch does not end with it."""

_NEARLY = 0.9
"""Epochs that came to this share of their length came to their end: the last batch may have been dropped."""


def batch_samples(measured: Measurements) -> float:
    """The samples of a batch, for the side that makes batches and for the one that takes them.

    As many as are asked for, where several are: the first tensor of a batch need not have a row for each of
    them (dicts, lists of images with boxes). Ready-made batches are asked for one by one: there it is what
    the first batch holds.
    """
    batches = sum(process.batches for process in measured.times.loading)
    asked = sum(process.samples for process in measured.times.loading) / batches if batches else 0.0
    return asked if asked > 1 else float(max(1, measured.times.batch_size))


def made_samples(measured: Measurements) -> float:
    """The samples that all processes made, those that nobody came to take included; at least one."""
    batches = sum(process.batches for process in measured.times.loading)
    return max(1.0, batches * batch_samples(measured))


def seen_s(measured: Measurements) -> float:
    """How long the training was watched."""
    times = measured.times
    return times.first_wait_s + times.waiting_s + times.stepping_s


def foreseen_batches(measured: Measurements) -> float:
    """The batches of all epochs that began, had they come to their ends."""
    batches, length = measured.times.batches, _told_batches(measured)
    # Only the last epoch can have been cut from outside: a training that leaves earlier ones does so itself.
    if math.isinf(length) or batches < _NEARLY * (measured.epochs - 1) * length:
        return float(batches)
    return max(float(batches), measured.epochs * length)


def foreseen_s(measured: Measurements) -> float:
    """How long all epochs that began would take, had they come to their ends."""
    times = measured.times
    if times.batches < 2:
        return seen_s(measured)
    batch_s = (times.waiting_s + times.stepping_s) / times.batches
    return seen_s(measured) + batch_s * (foreseen_batches(measured) - times.batches)


def epoch_batches(measured: Measurements) -> float:
    """The batches of an epoch as this training has them; infinity where no end is known, or none comes."""
    if goes_on(measured) or (measured.epochs < 2 and math.isinf(_told_batches(measured))):
        return math.inf
    return foreseen_batches(measured) / measured.epochs


def goes_on(measured: Measurements) -> bool:
    """Whether one iterator gives more than an epoch: its workers are started once."""
    setting = measured.setting
    # An epoch has no more batches than samples: the looser bound, where only these are known.
    most = setting.epoch_samples if setting.epoch_batches is None else setting.epoch_batches
    return measured.times.batches > _GOES_ON * measured.epochs * max(1.0, most or math.inf)


def _told_batches(measured: Measurements) -> float:
    """The batches of an epoch, as the loader tells; infinity where it does not."""
    setting = measured.setting
    if setting.epoch_batches is not None:
        return max(1.0, float(setting.epoch_batches))
    return max(1.0, (setting.epoch_samples or math.inf) / batch_samples(measured))

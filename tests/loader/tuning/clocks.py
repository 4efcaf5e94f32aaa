"""Clocks of epochs whose times a test gives."""

from fastload.loader.clock import LoadTimes, StepClock


def started(workers: int = 0, load: LoadTimes | None = None) -> StepClock:
    """Return the clock of an epoch that begins; `load` are its load times."""
    clock = StepClock()
    clock.begin(workers, None, None if load is None else lambda: (load,))
    return clock


def hand(clock: StepClock, waits_s: list[float], step_s: float = 0.0) -> StepClock:
    """Hand out a batch after each wait, in seconds, followed by a step."""
    for wait_s in waits_s:
        if clock.batches:
            clock.waits_s.append(wait_s)
            clock.waiting_s += wait_s
        else:
            clock.first_wait_s = wait_s
        clock.batches += 1
        clock.steps_s.append(step_s)
        clock._stepping_s += step_s
    return clock


def epoch_of(workers: int, seconds: float, batches: int = 100, load_s: float = 0.01) -> StepClock:
    """Return the clock of an epoch that took some seconds, with the time to make each batch."""
    clock = started(workers, LoadTimes(batches, 64 * batches, batches * load_s, 0.0, 0.0, 0.0))
    return hand(clock, [seconds / batches] * batches)

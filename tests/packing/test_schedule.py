"""The schedule: every record exactly once, lowest first, long runs first and short ones at the end."""

from hypothesis import given
from hypothesis import strategies as st

from fastload.packing.running.workers import Schedule

COSTS = st.tuples(st.integers(0, 200_000), st.floats(0, 0.05))


@given(
    ranges=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1000)), max_size=5),
    workers=st.integers(1, 9),
    turns=st.lists(st.tuples(COSTS, st.floats(0, 1)), min_size=1),
)
def test_every_record_is_handed_out_exactly_once(ranges, workers, turns):
    wanted = [range(2000 * turn + gap, 2000 * turn + gap + count) for turn, (gap, count) in enumerate(ranges)]
    schedule = Schedule([(each.start, each.stop) for each in wanted], workers)
    seen = []
    turn = 0
    while (run := schedule.take()) is not None:
        (size, seconds), done = turns[turn % len(turns)]
        turn += 1
        start, stop = run
        assert start < stop
        assert any(start in each and stop - 1 in each for each in wanted)
        reached = start + max(1, round(done * (stop - start)))
        seen += range(start, reached)
        schedule.give_back(reached, stop)
        schedule.learn(reached - start, size * (reached - start), seconds * (reached - start))
    assert seen == [record for each in wanted for record in each]


def test_returned_records_come_first_lowest_first():
    schedule = Schedule([(0, 100)], 1)
    runs = [schedule.take() for _ in range(3)]
    for begin, end in reversed(runs):
        schedule.give_back(begin + 1, end)
    assert [schedule.take() for _ in range(3)] == [(begin + 1, end) for begin, end in runs]
    assert schedule.take()[0] == runs[-1][1]


def runs_of(schedule, size_bytes, seconds):
    """The lengths of all runs where every record costs the same."""
    lengths = []
    while (run := schedule.take()) is not None:
        lengths.append(run[1] - run[0])
        schedule.learn(lengths[-1], size_bytes * lengths[-1], seconds * lengths[-1])
    return lengths


def test_runs_of_photos_are_about_eight_megabytes():
    lengths = runs_of(Schedule([(0, 10_000)], 2), 100_000, 0.0001)
    assert max(lengths) * 100_000 <= 9_000_000
    assert sorted(lengths)[len(lengths) // 2] * 100_000 >= 7_000_000


def test_runs_of_slow_records_are_about_a_quarter_of_a_second():
    lengths = runs_of(Schedule([(0, 10_000)], 2), 100, 0.01)
    assert max(lengths) <= 26


def test_last_runs_are_short_so_that_all_workers_end_together():
    lengths = runs_of(Schedule([(0, 10_000)], 4), 100, 1e-6)
    assert max(lengths) > 500
    assert lengths[-1] <= 2


def test_a_record_larger_than_a_run_gets_its_own_run():
    assert set(runs_of(Schedule([(16, 40)], 2), 1 << 30, 1.0)[1:]) <= {1, 16}

"""Verdict of a comparison, also if PIL is faster."""

from fastload.bench.results import standings, verdict
from tests.bench.results import CLOSE, EQUAL, OTHER, bench_of, comparison, row


def winner(*rows):
    [standing] = standings(bench_of(comparison(*rows)))
    return standing.winner


def test_the_faster_one_wins():
    assert winner(row("PIL", 2.0), row("OpenCV", 1.0)) == "OpenCV"
    assert winner(row("PIL", 1.0), row("OpenCV", 2.0)) == "PIL"


def test_a_small_lead_does_not_count():
    assert winner(row("PIL", 1.04), row("OpenCV", 1.0)) == "neither"


def test_a_lead_in_only_some_runs_does_not_count():
    assert winner(row("PIL", (1.0, 2.0, 2.0)), row("OpenCV", (1.5, 1.0, 1.0))) == "neither"


def test_drift_that_affects_both_changes_nothing():
    assert winner(row("PIL", (2.0, 4.0, 8.0)), row("OpenCV", (1.0, 2.0, 4.0))) == "OpenCV"


def test_opencvs_call_is_the_one_most_similar_to_pil():
    rows = [
        row("OpenCV", 1.0, OTHER, "fast"),
        row("OpenCV", 3.0, EQUAL, "slow"),
        row("OpenCV", 2.0, EQUAL, "equal"),
        row("OpenCV", 0.5, CLOSE, "close"),
    ]
    assert comparison(*rows).row_of("OpenCV").call == "equal"
    assert comparison(rows[0], rows[3]).row_of("OpenCV").call == "close"
    assert comparison(*rows).libraries == {"OpenCV"}


def test_verdict_counts_what_each_is_faster_at():
    won = comparison(row("PIL", 1.0), row("OpenCV", 2.0), title="flip it")
    lost = comparison(row("PIL", 3.0), row("OpenCV", 1.0))
    [first] = verdict(bench_of(won, lost, lost))
    assert "OpenCV is faster at 2 of 3 operations; PIL is faster at 1; none are too close to call" in first


def test_verdict_counts_operations_without_a_call_like_pils():
    rows = row("PIL", 3.0), row("OpenCV", 1.0, OTHER, "INTER_AREA")
    [first] = verdict(bench_of(comparison(*rows, title="shrink it")))
    assert "faster at 1 of 1 operations (at 1 of them its pixels differ visibly from PIL's)" in first


def test_verdict_counts_pipelines_separately():
    single = comparison(row("PIL", 3.0), row("OpenCV", 1.0))
    alone = comparison(
        row("PIL", 2.0), row("OpenCV", 1.0), group="Pipeline, one core", title="training: all of it"
    )
    loaded = comparison(
        row("PIL", 1.0),
        row("OpenCV", 1.0),
        group="Pipeline, one core",
        title="detection: all",
    )
    first, second = verdict(bench_of(single, alone, loaded))
    assert "of 1 operations" in first
    assert "training is 2.0 × as fast with OpenCV" in second
    assert "detection is too close to call" in second


def test_verdict_of_nothing_says_so():
    assert "could be measured" in verdict(bench_of())[0]

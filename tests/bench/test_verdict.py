"""Who wins, and that it is said where it is PIL."""

from fastload.bench.verdict import fastest_equal, most_alike, standings, verdict
from tests.bench.results import CLOSE, EQUAL, OTHER, bench_of, comparison, row


def winner(*rows):
    [standing] = standings(bench_of(comparison(*rows)))
    return standing.winner


def test_the_faster_one_wins():
    assert winner(row("PIL", 2.0), row("OpenCV", 1.0)) == "OpenCV"
    assert winner(row("PIL", 1.0), row("OpenCV", 2.0)) == "PIL"


def test_a_small_lead_is_none():
    assert winner(row("PIL", 1.04), row("OpenCV", 1.0)) == "neither"


def test_a_lead_in_some_runs_only_is_none():
    assert winner(row("PIL", (1.0, 2.0, 2.0)), row("OpenCV", (1.5, 1.0, 1.0))) == "neither"


def test_drift_that_meets_both_changes_nothing():
    assert winner(row("PIL", (2.0, 4.0, 8.0)), row("OpenCV", (1.0, 2.0, 4.0))) == "OpenCV"


def test_opencvs_way_is_the_one_most_like_pils():
    rows = [
        row("OpenCV", 1.0, OTHER, "fast"),
        row("OpenCV", 3.0, EQUAL, "slow"),
        row("OpenCV", 2.0, EQUAL, "equal"),
        row("OpenCV", 0.5, CLOSE, "close"),
    ]
    assert most_alike(comparison(*rows), "OpenCV").call == "equal"
    assert most_alike(comparison(rows[0], rows[3]), "OpenCV").call == "close"
    assert most_alike(comparison(*rows), "PIL") is None


def test_fastest_with_pils_picture_may_be_another_library():
    rows = [row("PIL", 2.0), row("OpenCV", 0.1, OTHER), row("fastload", 1.0)]
    assert fastest_equal(comparison(*rows)).library == "fastload"


def test_verdict_counts_and_says_where_pil_wins():
    won = comparison(row("PIL", 1.0), row("OpenCV", 2.0), title="flip it")
    lost = comparison(row("PIL", 3.0), row("OpenCV", 1.0))
    first, *others = verdict(bench_of(won, lost, lost))
    assert "OpenCV is faster at 2 of 3 operations; PIL is at 1; none are too close to call" in first
    assert "PIL wins at flip it (2.0 ×)." in others


def test_verdict_says_where_pil_wins_nowhere():
    lost = comparison(row("PIL", 3.0), row("OpenCV", 1.0))
    assert "PIL wins at no single operation here." in verdict(bench_of(lost))


def test_verdict_names_speed_that_is_another_pictures():
    rows = row("PIL", 3.0), row("OpenCV", 1.0, OTHER, "INTER_AREA")
    first, *others = verdict(bench_of(comparison(*rows, title="shrink it")))
    assert "faster at 1 of 1 operations, at 1 of them with another picture than PIL's" in first
    text = " ".join(others)
    assert "shrink it (INTER_AREA, 3.0 levels apart)" in text


def test_verdict_speaks_of_pipelines_by_themselves():
    single = comparison(row("PIL", 3.0), row("OpenCV", 1.0))
    alone = comparison(
        row("PIL", 2.0), row("OpenCV", 1.0), group="Pipeline, one core", title="training: all of it"
    )
    loaded = comparison(
        row("PIL", 1.0), row("OpenCV", 1.0), group="Pipeline, DataLoader", title="training: all of it"
    )
    first, second, *_ = verdict(bench_of(single, alone, loaded))
    assert "of 1 operations" in first
    assert "training is 2.0 × as fast with OpenCV" in second
    assert "training in a DataLoader is too close to call" in second


def test_verdict_of_nothing_says_so():
    assert "could be measured" in verdict(bench_of())[0]

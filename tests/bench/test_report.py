"""Result of a comparison, for reading and as JSON."""

import pytest

from fastload.bench.results import Library
from fastload.cli.bench import decoding_content, decoding_lines
from tests.bench.results import CLOSE, EQUAL, OTHER, bench_of, comparison, row


@pytest.fixture
def bench():
    rows = row("PIL", (1.0, 2.0, 3.0)), row("OpenCV", 0.5, CLOSE), row("fastload", 0.25)
    missing = ["torchvision, resize: no such call"]
    return bench_of(
        comparison(*rows, title="decode it", missing=missing),
        comparison(row("PIL", 1.0), row("OpenCV", 2.0, EQUAL), group="Resize", title="shrink it"),
        comparison(row("PIL", 1.0), row("OpenCV", 2.0, OTHER), group="Pipeline, one core", title="all"),
        libraries=[Library("torchvision", None, reason="not installed")],
        notes=("one is left out",),
    )


def test_lines_show_differences_what_is_missing_and_the_answer_last(bench):
    lines = [" ".join(line.split()) for line in decoding_lines(bench)]
    assert "OpenCV call 2 2–2 4.00 ≈ 0.50, 40" in lines
    assert "decode it 0.5 2 4.00 × ≈ 0.50, 40 OpenCV" in lines
    assert "missing: torchvision, resize: no such call" in lines
    assert {"torchvision: not installed", "one is left out"} < {*lines}
    assert any(line.startswith("A processor, 2 usable CPUs") for line in lines)
    assert any(line.startswith("On this machine OpenCV is faster") for line in lines[-4:])


def test_json_holds_every_run_and_the_verdict(bench):
    content = decoding_content(bench)
    first = content["comparisons"][0]["rows"][0]
    assert first["seconds"] == (1.0, 2.0, 3.0)
    assert first["images_per_s"] == 0.5
    assert content["comparisons"][0]["rows"][1]["likeness"] == "close"
    assert content["verdict"][0].startswith("On this machine")
    assert content["libraries"][2]["reason"] == "not installed"

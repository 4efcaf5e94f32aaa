"""Reports: well-formed, escaped, self-contained."""

import json
import re
from html.parser import HTMLParser

import pytest

from fastload.bench.results import Library
from fastload.cli.report._html import to_html
from fastload.cli.report._markdown import to_markdown
from fastload.cli.report.decoding import decoding_document, decoding_json
from fastload.cli.report.document import (
    Document,
    ReportColumn,
    Section,
    Table,
    TableRow,
    figure,
)
from tests.bench.results import CLOSE, EQUAL, OTHER, bench_of, comparison, row

NASTY = "<script>alert('x')</script> | \"& `code` [link](http://a.b)"
VOID = {"meta", "br", "rect", "line"}


class Balanced(HTMLParser):
    """Parser that fails at an end tag without a start tag."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def parsed(page):
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture
def bench():
    rows = row("PIL", (1.0, 2.0, 3.0)), row("OpenCV", 0.5, CLOSE), row("fastload", 0.25)
    missing = [f"torchvision, resize: {NASTY}"]
    return bench_of(
        comparison(*rows, title=NASTY, missing=missing),
        comparison(row("PIL", 1.0), row("OpenCV", 2.0, EQUAL), group="Resize", title="shrink it"),
        comparison(row("PIL", 1.0), row("OpenCV", 2.0, OTHER), group="Pipeline, DataLoader", title="all"),
        libraries=[Library("torchvision", None, reason="not installed")],
        notes=("one is left out",),
    )


def test_html_is_balanced_and_shows_every_word_as_it_is(bench):
    page = to_html(decoding_document(bench))
    parser = parsed(page)
    assert page.startswith("<!doctype html>")
    assert "script" not in {tag for tag, _ in parser.seen}
    for text in (NASTY, "PIL or OpenCV?", "not installed", "one is left out", "A processor"):
        assert text in parser.text


def test_html_is_self_contained(bench):
    page = to_html(decoding_document(bench))
    names = {name for _, attributes in parsed(page).seen for name in attributes}
    assert not names & {"src", "href", "onclick"}
    assert "url(" not in page
    assert "@import" not in page


def test_html_has_a_bar_in_its_colour_for_each_row(bench):
    seen = parsed(to_html(decoding_document(bench))).seen
    assert [attributes.get("role") for _, attributes in seen].count("img") == 7
    tones = [attributes["class"] for tag, attributes in seen if tag == "tr" and "class" in attributes]
    assert tones == ["reference", "contender", "own", *(["reference", "contender"] * 2)]


def test_bars_are_as_long_as_their_values():
    bars = Table("", (ReportColumn("c", "bars"),), (TableRow((50.0,)), TableRow((25.0,))))
    seen = parsed(to_html(Document("t", (), (Section("s", (), (bars,)),)))).seen
    styles = [attributes["style"] for _, attributes in seen if attributes.get("role") == "img"]
    assert styles == ["width:100.0%", "width:50.0%"]


def test_markdown_tables_have_a_cell_for_each_column(bench):
    text = to_markdown(decoding_document(bench))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(len(line) == len(lines[0]) for line in lines[:4])
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    starts = [place for place, line in enumerate(lines) if line.startswith("| --")]
    assert len(starts) == 1 + 3 + 1
    for place in starts:
        assert widths[place - 1] == widths[place] == widths[place + 1]
    assert "<script>" not in text.replace(r"\<script\>", "")


def test_markdown_shows_differences_and_what_is_missing(bench):
    text = to_markdown(decoding_document(bench))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "| OpenCV | call | 2 | 2–2 | 4.00 | ≈ 0.50, 40 |" in lines
    assert "missing: torchvision, resize" in text
    assert any(line.startswith("| torchvision | not installed |") for line in lines)


def test_json_holds_every_run_and_the_verdict(bench):
    content = json.loads(decoding_json(bench))
    first = content["comparisons"][0]["rows"][0]
    assert first["seconds"] == [1.0, 2.0, 3.0]
    assert first["images_per_s"] == 0.5
    assert content["comparisons"][0]["rows"][1]["likeness"] == "close"
    assert content["verdict"][0].startswith("On this machine")
    assert content["libraries"][2]["reason"] == "not installed"


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.123"), (12.34, "12.3"), (1234.0, "1,230"), (123456.0, "123,000")]
)
def test_figures_have_three_digits(value, text):
    assert figure(value) == text

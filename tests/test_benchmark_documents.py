"""Documents of the programs in benchmarks/: well-formed, escaped, self-contained."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.test_escaping import HOSTILE, is_safe

FOLDER = Path(__file__).parent.parent / "benchmarks"
if not FOLDER.exists():
    pytest.skip("needs benchmarks/, of a checkout", allow_module_level=True)

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(FOLDER)
    from _document import Document, ReportColumn, Section, Table, TableRow
    from _document_markdown import to_markdown
    from _html import to_html

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
def document():
    columns = ReportColumn("loader"), ReportColumn("median turn", "bars"), ReportColumn("images/s", "number")
    rows = TableRow((NASTY, 50.0, "50"), "reference"), TableRow(("own", 25.0, "25"), "own")
    table = Table("of | one", columns, rows, (f"missing: {NASTY}",))
    return Document("Which?", (NASTY, "second"), (Section("all", ("text",), (table,)),), ("method",))


def test_html_is_balanced_and_shows_every_word_as_it_is(document):
    page = to_html(document)
    parser = parsed(page)
    assert page.startswith("<!doctype html>")
    assert "script" not in {tag for tag, _ in parser.seen}
    for text in (NASTY, "Which?", "of | one", "text", "method"):
        assert text in parser.text


def test_html_is_self_contained(document):
    page = to_html(document)
    names = {name for _, attributes in parsed(page).seen for name in attributes}
    assert not names & {"src", "href", "onclick"}
    assert "url(" not in page
    assert "@import" not in page


def test_html_has_a_bar_as_long_as_its_value_in_its_colour_for_each_row(document):
    seen = parsed(to_html(document)).seen
    styles = [attributes["style"] for _, attributes in seen if attributes.get("role") == "img"]
    assert styles == ["width:100.0%", "width:50.0%"]
    tones = [attributes["class"] for tag, attributes in seen if tag == "tr" and "class" in attributes]
    assert tones == ["reference", "own"]


def test_markdown_tables_have_a_cell_for_each_column_but_bars(document):
    text = to_markdown(document)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert "<script>" not in text.replace(r"\<script\>", "")


@pytest.mark.parametrize("render", [to_html, to_markdown])
def test_documents_show_hostile_names_escaped(render):
    for text in HOSTILE:
        text += "</title><script>"
        table = Table(text, (ReportColumn(text),), (TableRow((text,)),), (text,))
        page = render(Document(text, (text, text), (Section(text, (text,), (table,)),), (text,)))
        assert is_safe(page)
        assert "<script>" not in page.replace("\\<script\\>", "")

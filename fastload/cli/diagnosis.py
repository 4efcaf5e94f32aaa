"""A diagnosis as sections, which become text for a terminal or an HTML page."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fastload.errors import printable
from fastload.system.units import aligned, format_duration, format_size

if TYPE_CHECKING:
    from fastload.doctor.findings import Diagnosis, TimePart, TrainingMeasurements

_BAR_WIDTH = 30

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 46rem; margin: 0 auto; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-bottom: .3rem; }
p, li, td { overflow-wrap: anywhere; } li { margin: .3rem 0; }
.headline { font-weight: 600; }
.bar { height: .8rem; background: #2f6fd0; } .bar.meanwhile { background: #7d8897; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
td { padding: .15rem .6rem .15rem 0; vertical-align: top; }
footer { margin-top: 2rem; font-size: .85rem; opacity: .75; }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A title with paragraphs, a list, a table, or parts of a time that are drawn as bars."""

    title: str
    lines: Sequence[str] = ()
    kind: Literal["text", "list", "numbered"] = "text"
    rows: Sequence[Sequence[str]] = ()
    parts: Sequence[TimePart] = ()


def sections_of(diagnosis: Diagnosis, measured: TrainingMeasurements) -> Iterator[Section]:
    """Yield the contents of a diagnosis, in the order in which they are read."""
    yield Section("", [diagnosis.headline])
    if diagnosis.parts:
        whole_s = sum(part.seconds for part in diagnosis.parts if not part.is_meanwhile)
        yield Section(f"Time for one batch: {format_duration(whole_s)}", parts=diagnosis.parts)
    fixes = [f"{fix.action}\n{_capital(fix.gain_text)}: {fix.why}." for fix in diagnosis.fixes]
    if fixes:
        yield Section("What to do, in this order", fixes, "numbered")
        yield Section("", diagnosis.combination)
    else:
        yield Section("", ["Nothing to do: nothing that was tried would make it faster."])
    yield Section("Tried with your script", rows=list(_trial_rows(measured)))
    yield Section("Evidence", diagnosis.evidence, "list")
    yield Section("Doubts", diagnosis.doubts, "list")
    yield Section("Limits of this machine", diagnosis.limits, "list")


def _trial_rows(measured: TrainingMeasurements) -> Iterator[tuple[str, ...]]:
    """Yield the trials of the step as rows of a table, with its head first."""
    if measured.step_trials:
        yield "", "steps/s", f"{measured.unit}/s", "memory", "loss"
    for trial in measured.step_trials:
        # Other values are files and lines, which the fixes name.
        name = f"{trial.kind} {trial.value}".strip() if trial.value.isalnum() else trial.kind
        figures = "", "", "", f"failed: {trial.failure}"
        if not trial.failure:
            loss = f"{trial.losses[-1]:.3g}" if trial.losses else ""
            memory = format_size(trial.memory_bytes)
            figures = f"{1 / trial.step_s:.3g}", f"{trial.samples_per_s:,.3g}", memory, loss
        yield name, *figures


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def text_of(sections: Iterator[Section]) -> Iterator[str]:
    """Yield the lines of sections for a terminal; those without content are left out."""
    for section in sections:
        if not (section.lines or section.rows or section.parts):
            continue
        yield ""
        if section.title:
            yield f"{section.title}:"
        for number, line in enumerate(section.lines, 1):
            first, *rest = line.split("\n")
            mark = {"text": "", "list": "  - ", "numbered": f"  {number}. "}[section.kind]
            yield mark + first
            yield from (" " * len(mark) + each for each in rest)
        yield from (f"  {line}" for line in aligned(section.rows))
        longest_s = max((part.seconds for part in section.parts), default=0.0)
        bars = ((part.name, format_duration(part.seconds), _bar(part, longest_s)) for part in section.parts)
        yield from (f"  {line}" for line in aligned(bars))


def _bar(part: TimePart, longest_s: float) -> str:
    return ("·" if part.is_meanwhile else "#") * max(1, round(_BAR_WIDTH * part.seconds / (longest_s or 1.0)))


def page_of(title: str, parts: Sequence[tuple[str, Iterator[Section]]], conditions: Mapping[str, Any]) -> str:
    """Return a page with the sections of several parts, each with a name, and machine, versions and date."""
    machine, versions = conditions["machine"], conditions["versions"]
    memory = format_size(machine["memory_bytes"])
    footer = [
        f"{conditions['date']}. {machine['processor']}, {machine['usable_cpus']:g} usable CPUs, {memory}, "
        f"{machine['system']}.",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    body = [f"<h1>{_escape(title)}</h1>"]
    for name, sections in parts:
        body += [f"<h2>{_escape(name)}</h2>"] * bool(name)
        for section in sections:
            body += _section_html(section)
    lines = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_escape(title)}</title><style>{_STYLE}</style></head><body><main>",
        *body,
        "</main><footer>",
        *(f"<p>{_escape(line)}</p>" for line in footer),
        "</footer></body></html>",
    ]
    return "\n".join(lines) + "\n"


def _section_html(section: Section) -> Iterator[str]:
    if not (section.lines or section.rows or section.parts):
        return
    if section.title:
        yield f"<h2>{_escape(section.title)}</h2>"
    if section.kind == "text":
        style = "" if section.title else ' class="headline"'
        yield from (f"<p{style}>{_escape(line)}</p>" for line in section.lines)
    elif section.lines:
        tag = "ol" if section.kind == "numbered" else "ul"
        items = (_escape(line).replace("\n", "<br>") for line in section.lines)
        yield f"<{tag}>{''.join(f'<li>{item}</li>' for item in items)}</{tag}>"
    if section.rows:
        rows = ("".join(f"<td>{_escape(cell)}</td>" for cell in row) for row in section.rows)
        yield f'<div class="table"><table>{"".join(f"<tr>{row}</tr>" for row in rows)}</table></div>'
    longest_s = max((part.seconds for part in section.parts), default=0.0)
    for part in section.parts:
        kind = "bar meanwhile" if part.is_meanwhile else "bar"
        width = f"width:{part.seconds / (longest_s or 1.0):.1%}"
        yield f"<div>{_escape(part.name)}: {format_duration(part.seconds)}</div>"
        yield f'<div class="{kind}" style="{width}"></div>'


def _escape(text: str) -> str:
    """Return a text as HTML shows it, as on a terminal: with what is not printable escaped."""
    return html.escape("\n".join(printable(line) for line in text.split("\n")))

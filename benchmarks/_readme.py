"""Chart and summary table of the README, from the results of several benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fastload.system.units import format_figure

Results = Mapping[str, Mapping[str, Any]]
"""The JSON of each benchmark by its name."""

Colors = Mapping[str, str]
"""Colours by their use: ink, soft, fastload, other."""

_FASTLOAD, _OTHER = "fastload", "other"
PALETTES = {
    "light": {"ink": "#1b2430", "soft": "#5b6675", _FASTLOAD: "#12937a", _OTHER: "#7d8897"},
    "dark": {"ink": "#e4e8ee", "soft": "#98a3b2", _FASTLOAD: "#3bbf9f", _OTHER: "#667180"},
}

# (row of bench_load's table "Photos", label)
_BARS = (
    ("torch DataLoader + torchvision/PIL", "torch DataLoader + PIL, files"),
    ("DALI, regions decoded", "DALI (CPU), files"),
    ("FFCV, JPEG quality 90", "FFCV, JPEG quality 90"),
    ("fastload, ImageFolder compiled", "fastload, the import alone, files"),
    ("fastload, tiled", "fastload, lossless tiles"),
    ("fastload, jpeg", "fastload, JPEG quality 90"),
)
# In pixels: as wide as a narrow screen, with text of the size that the text around it has.
WIDTH, LINE, FONT = 360, 20, "-apple-system, BlinkMacSystemFont, Segoe UI, Helvetica, Arial, sans-serif"
_ROW, _BAR, _NUMBER = 48, 18, 56

_TORCH, _FFCV = "torch DataLoader + torchvision/PIL", "FFCV"
_COMPILED, _IMPORT = "fastload, ImageFolder compiled", "fastload, the import alone"
_TORCH_CIFAR = "torch DataLoader, CIFAR10"
_FLOATS = "256 × 3×224×224 float32"
# (data, benchmark, table, fastload's row, the other row, the other's name)
_SUMMARY = (
    ("ImageFolder of photos, the import alone", "load", "Photos", _COMPILED, _TORCH, "torch"),
    ("CIFAR10, the import alone", "compile", "Thumbnails, batches of 128", _IMPORT, _TORCH_CIFAR, "torch"),
    ("photos packed as lossless tiles", "load", "Photos", "fastload, tiled", _TORCH, "torch, from files"),
    ("photos packed as JPEG quality 90", "load", "Photos", "fastload, jpeg", "FFCV, JPEG quality 90", _FFCV),
    (
        "photos packed as pixels, at most 400 a side",
        "load",
        "Photos",
        "fastload, raw, at most 400 pixels",
        "FFCV, raw, at most 400 pixels",
        _FFCV,
    ),
    (
        "packed thumbnails of 32 × 32, fastload without workers",
        "load",
        "Thumbnails, uint8",
        "fastload, no workers",
        _FFCV,
        _FFCV,
    ),
    (
        f"any dataset's batches of {_FLOATS}: transport from workers",
        "transport",
        _FLOATS,
        "fastload.DataLoader",
        "torch DataLoader",
        "torch",
    ),
)
SUMMARIZED = tuple(dict.fromkeys(benchmark for _, benchmark, *_ in _SUMMARY))


def summary(results: Results) -> str:
    """Return the table of the README: medians, and the ratios of single runs."""
    lines = [
        "| what is loaded | fastload, samples/s | compared with | its samples/s | ratio | of single runs |",
        "|---|--:|---|--:|--:|--:|",
    ]
    for name, benchmark, table, fastload_row, other_row, label in _SUMMARY:
        rates = [_rate(results[benchmark], table, row) for row in (fastload_row, other_row)]
        seconds = [_row(results[benchmark], table, row)["seconds"] for row in (fastload_row, other_row)]
        ratios = [theirs / ours for ours, theirs in zip(*seconds, strict=True)]
        figures = f"{format_figure(rates[0])} | {label} | {format_figure(rates[1])}"
        ratio = f"{rates[0] / rates[1]:.1f} × | {min(ratios):.1f}–{max(ratios):.1f}"
        lines.append(f"| {name} | {figures} | {ratio} |")
    return "\n".join(lines) + "\n"


def charts(results: Results) -> dict[str, str]:
    """Return the SVG bar chart of photos per second in each palette, by the palette's name."""
    content = results["load"]
    bars = [(label, _rate(content, "Photos", row)) for row, label in _BARS]
    machine, workers = content["machine"], content["setting"]["workers"]
    title = "Photos per second in the training loop"
    conditions = (
        "RandomResizedCrop(224) and flip, uint8",
        f"{workers} workers, {machine['usable_cpus']} CPUs ({machine['processor']})",
        f"page cache: {content['setting']['page cache']}",
    )
    return {name: _svg(title, conditions, bars, palette) for name, palette in PALETTES.items()}


def svg_head(
    height: int, label: str, title: Sequence[str], conditions: Sequence[str], colors: Colors
) -> list[str]:
    """Return the first lines of an SVG: its size, and its heading."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(label)}" font-family="{FONT}" font-size="16">'
    ]
    for number, text in enumerate((*title, *conditions)):
        weight, color = (600, "ink") if number < len(title) else (400, "soft")
        look = f'font-weight="{weight}" fill="{colors[color]}"'
        lines.append(f'<text x="0" y="{LINE * number + 16}" {look}>{escape(text)}</text>')
    return lines


def _svg(title: str, conditions: Sequence[str], bars: list[tuple[str, float]], colors: Colors) -> str:
    label = f"{title}: " + ", ".join(f"{name} {format_figure(rate)}" for name, rate in bars)
    top = LINE * (1 + len(conditions)) + 12
    lines = svg_head(top + _ROW * len(bars), label, [title], conditions, colors)
    longest = max(rate for _, rate in bars)
    for number, (name, rate) in enumerate(bars):
        y = top + _ROW * number
        width = (WIDTH - _NUMBER) * rate / longest
        kind = _FASTLOAD if name.startswith("fastload") else _OTHER
        look = f'font-weight="{600 if kind == _FASTLOAD else 400}" fill="{colors["ink"]}"'
        lines += [
            f'<text x="0" y="{y + 14}" {look}>{escape(name)}</text>',
            f'<rect x="0" y="{y + LINE}" width="{width:.1f}" height="{_BAR}" rx="3" fill="{colors[kind]}"/>',
            f'<text x="{width + 8:.1f}" y="{y + LINE + 15}" {look}>{format_figure(rate)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _rate(content: Mapping[str, Any], table: str, row: str) -> float:
    [count] = [one["count"] for one in content["tables"] if one["title"] == table]
    return float(count / _row(content, table, row)["median_s"])


def _row(content: Mapping[str, Any], table: str, name: str) -> Mapping[str, Any]:
    [row] = [each for each in content["rows"] if (each["table"], each["row"]) == (table, name)]
    return dict(row)

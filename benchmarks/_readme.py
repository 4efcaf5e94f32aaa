"""Chart and summary table of the README, from the results of bench_load.py and bench_transport.py."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from fastload.cli.report.document import figure

Results = Mapping[str, Mapping[str, Any]]
"""The JSON of each benchmark by its name."""

_FASTLOAD, _OTHER = "fastload", "other"
PALETTES = {
    "light": {"ink": "#1b2430", "soft": "#5b6675", _FASTLOAD: "#12937a", _OTHER: "#98a2b0"},
    "dark": {"ink": "#e4e8ee", "soft": "#98a3b2", _FASTLOAD: "#3bbf9f", _OTHER: "#667180"},
}

# (row of bench_load's table "Photos", label)
_BARS = (
    ("torch DataLoader + torchvision/PIL", "torch DataLoader + PIL, files"),
    ("DALI, regions decoded", "DALI (CPU), files"),
    ("FFCV, JPEG quality 90", "FFCV, JPEG quality 90"),
    ("fastload, FolderDataset", "fastload, the same files"),
    ("fastload, tiled", "fastload, lossless tiles"),
    ("fastload, jpeg", "fastload, JPEG quality 90"),
)
_WIDTH, _ROW, _BAR, _TOP, _LABELS = 760, 30, 18, 58, 230  # pixels

_TORCH, _FFCV = "torch DataLoader + torchvision/PIL", "FFCV"
_FLOATS = "256 × 3×224×224 float32"
# (data, benchmark, table, fastload's row, the other row, the other's name)
_SUMMARY = (
    ("photos, from files", "load", "Photos", "fastload, FolderDataset", _TORCH, "torch + PIL"),
    ("photos, lossless tiles", "load", "Photos", "fastload, tiled", _TORCH, "torch + PIL"),
    ("photos, JPEG quality 90", "load", "Photos", "fastload, jpeg", "FFCV, JPEG quality 90", _FFCV),
    (
        "photos, raw, at most 400 pixels",
        "load",
        "Photos",
        "fastload, raw, at most 400 pixels",
        "FFCV, raw, at most 400 pixels",
        _FFCV,
    ),
    ("thumbnails of 32 × 32", "load", "Thumbnails, uint8", "fastload, no workers", _FFCV, _FFCV),
    (
        f"any dataset: batches of {_FLOATS}, transport only",
        "transport",
        _FLOATS,
        "fastload.DataLoader",
        "torch DataLoader",
        "torch",
    ),
)


def summary(results: Results) -> str:
    """Return the table of the README."""
    lines = ["| samples/s | fastload | | compared with | ratio |", "|---|--:|--:|---|--:|"]
    for name, benchmark, table, own, other, label in _SUMMARY:
        rates = [_rate(results[benchmark], table, row) for row in (own, other)]
        cells = (name, figure(rates[0]), figure(rates[1]), label, f"{rates[0] / rates[1]:.1f} ×")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def charts(results: Results) -> dict[str, str]:
    """Return the SVG bar chart of photos per second in each palette, by the palette's name."""
    content = results["load"]
    bars = [(label, _rate(content, "Photos", row)) for row, label in _BARS]
    machine, workers = content["machine"], content["setting"]["workers"]
    title = "Photos per second that reach the training loop"
    subtitle = (
        f"RandomResizedCrop(224) and flip, uint8; {workers} workers on {machine['usable_cpus']} CPUs "
        f"({machine['processor']}); page cache {content['setting']['page cache']}"
    )
    return {name: _svg(title, subtitle, bars, palette) for name, palette in PALETTES.items()}


def _svg(title: str, subtitle: str, bars: list[tuple[str, float]], palette: Mapping[str, str]) -> str:
    height = _TOP + _ROW * len(bars)
    longest = max(rate for _, rate in bars)
    label = f"{title}: " + ", ".join(f"{name} {figure(rate)}" for name, rate in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(label)}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f'<text x="0" y="18" font-size="16" font-weight="600" fill="{palette["ink"]}">{escape(title)}</text>',
        f'<text x="0" y="38" font-size="12" fill="{palette["soft"]}">{escape(subtitle)}</text>',
    ]
    for place, (name, rate) in enumerate(bars):
        middle = _TOP + _ROW * place + _ROW / 2
        width = (_WIDTH - _LABELS - 60) * rate / longest
        kind = _FASTLOAD if name.startswith("fastload") else _OTHER
        weight = 600 if kind == _FASTLOAD else 400
        text = f'y="{middle + 4.5:g}" font-size="13" font-weight="{weight}" fill="{palette["ink"]}"'
        lines += [
            f'<text x="{_LABELS - 10}" {text} text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LABELS}" y="{middle - _BAR / 2:g}" width="{width:.1f}" height="{_BAR}" rx="3" '
            f'fill="{palette[kind]}"/>',
            f'<text x="{_LABELS + width + 8:.1f}" {text}>{figure(rate)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _rate(content: Mapping[str, Any], table: str, row: str) -> float:
    [count] = [one["count"] for one in content["tables"] if one["title"] == table]
    [median_s] = [one["median_s"] for one in content["rows"] if (one["table"], one["row"]) == (table, row)]
    return float(count / median_s)

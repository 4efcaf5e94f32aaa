"""Chart of the simulated cluster, from the results of simulate_cluster.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from _readme import PALETTES

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 300, 48, 170, 58, 36  # pixels
_TITLE = "Training speed of each rank, compared with one rank alone (simulated)"
_TICKS = (1, 4, 16, 64, 256, 1000)


def cluster_charts(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the SVG of speed over ranks in each palette, by the palette's name."""
    rates = {
        label: {row["ranks"]: row["samples_per_s"] for row in content["epochs"] if row["cached"] == cached}
        for label, cached in (("data on disks", 1.0), ("data in the remote", 0.0))
    }
    shares = {
        label: [(ranks, rate / ranks / each[1]) for ranks, rate in each.items()]
        for label, each in rates.items()
    }
    cluster = content["cluster"]
    node, remote = (cluster[f"{name}_bytes_per_s"] * 8 / 1e9 for name in ("node", "remote"))
    subtitle = (
        f"{cluster['batch_size'] / cluster['step_s']:,.0f} samples/s a GPU, "
        f"{cluster['sample_bytes'] / 1e3:.0f} KB each; machines with {cluster['ranks_per_node']} GPUs and "
        f"{node:.0f} Gbit/s; a remote of {remote:.0f} Gbit/s"
    )
    return {name: _svg(subtitle, shares, palette) for name, palette in PALETTES.items()}


def _svg(subtitle: str, lines: Mapping[str, list[tuple[int, float]]], palette: Mapping[str, str]) -> str:
    described = "; ".join(
        f"{label}: " + ", ".join(f"{ranks} ranks {share:.0%}" for ranks, share in points)
        for label, points in lines.items()
    )
    soft, ink = palette["soft"], palette["ink"]
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-label="{escape(f"{_TITLE}: {described}")}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12">',
        f'<text x="0" y="18" font-size="16" font-weight="600" fill="{ink}">{_TITLE}</text>',
        f'<text x="0" y="38" fill="{soft}">{escape(subtitle)}</text>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share)
        drawn += [
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{soft}" '
            'stroke-opacity="0.25"/>',
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" fill="{soft}" text-anchor="end">{share:.0%}</text>',
        ]
    drawn += [
        f'<text x="{_x(ranks):.1f}" y="{_HEIGHT - _BOTTOM + 18}" fill="{soft}" text-anchor="middle">'
        f"{ranks:,}{' rank' if ranks == 1 else ''}</text>"
        for ranks in _TICKS
    ]
    for color, (label, points) in zip((palette["fastload"], palette["other"]), lines.items(), strict=True):
        path = " ".join(f"{_x(ranks):.1f},{_y(share):.1f}" for ranks, share in points)
        x, y = _x(points[-1][0]), _y(points[-1][1])
        drawn += [
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"/>',
            f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{ink}">{label}, {points[-1][1]:.0%}</text>',
        ]
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _x(ranks: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(ranks) / math.log(_TICKS[-1])


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share

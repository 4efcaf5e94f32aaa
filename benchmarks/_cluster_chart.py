"""Chart of the simulated cluster, from the results of simulate_cluster.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from _readme import LINE, PALETTES, WIDTH, Colors, svg_head

_LEFT, _RIGHT, _TOP, _PLOT, _BOTTOM = 48, 44, 118, 200, 48  # pixels
_TITLE = ("Training speed of each rank, compared", "with one rank alone (simulated)")
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
    conditions = (
        f"{cluster['batch_size'] / cluster['step_s']:,.0f} samples/s a GPU, "
        f"{cluster['sample_bytes'] / 1e3:.0f} KB each;",
        f"machines with {cluster['ranks_per_node']} GPUs and {node:.0f} Gbit/s;",
        f"a remote of {remote:.0f} Gbit/s",
    )
    return {name: _svg(conditions, shares, palette) for name, palette in PALETTES.items()}


def _svg(conditions: Sequence[str], lines: Mapping[str, list[tuple[int, float]]], palette: Colors) -> str:
    described = "; ".join(
        f"{label}: " + ", ".join(f"{ranks} ranks {share:.0%}" for ranks, share in points)
        for label, points in lines.items()
    )
    soft, ink = palette["soft"], palette["ink"]
    label = f"{' '.join(_TITLE)}: {described}"
    drawn = svg_head(_TOP + _PLOT + _BOTTOM, label, _TITLE, conditions, palette)
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share)
        drawn += [
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{soft}" '
            'stroke-opacity="0.25"/>',
            f'<text x="{_LEFT - 8}" y="{y + 5:.1f}" fill="{soft}" text-anchor="end">{share:.0%}</text>',
        ]
    below = _TOP + _PLOT + LINE
    drawn += [
        f'<text x="{_x(ranks):.1f}" y="{below}" fill="{soft}" text-anchor="middle">{ranks:,}</text>'
        for ranks in _TICKS
    ]
    drawn.append(
        f'<text x="{WIDTH - _RIGHT}" y="{below + LINE}" fill="{soft}" text-anchor="end">ranks</text>'
    )
    for color, (name, points) in zip((palette["fastload"], palette["other"]), lines.items(), strict=True):
        path = " ".join(f"{_x(ranks):.1f},{_y(share):.1f}" for ranks, share in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        (ranks, share), (_, last) = points[-3], points[-1]
        if last > 0.5:  # the name stands above the end of the line, otherwise to the left of its fall
            x, y = float(WIDTH - _RIGHT), _y(last) - 16
        else:
            x, y = _x(ranks) - 10, _y(share) + 24
        drawn += [
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink}" text-anchor="end">{name}</text>',
            f'<text x="{WIDTH - _RIGHT + 6}" y="{_y(last) + 5:.1f}" fill="{ink}">{last:.0%}</text>',
        ]
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _x(ranks: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * math.log(ranks) / math.log(_TICKS[-1])


def _y(share: float) -> float:
    return _TOP + _PLOT * (1 - share)

"""Draws measurements as lines, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from errata.render.picture import picture

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 70, 110, 30, 40

Point = tuple[float, float]


def drawn(
    found: Mapping[str, Sequence[Point]], colours: Mapping[str, str], *, title: str, x: str
) -> str:
    """Return measurements as SVG.

    Args:
        found: By name of a line, its points in ascending order; all values are positive.
        colours: The colour of each line.
        title: What the upright axis shows.
        x: What the other one shows.
    """
    points = [point for line in found.values() for point in line]
    first, most = min(p[0] for p in points), max(p[0] for p in points)
    low = math.floor(math.log10(min(p[1] for p in points)))
    high = max(low + 1, math.log10(max(p[1] for p in points)))

    def place(right: float, up: float) -> Point:
        across = math.log10(right / first) / (math.log10(most / first) or 1)
        share = (math.log10(up) - low) / (high - low)
        height = HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
        return LEFT + across * (WIDTH - LEFT - RIGHT), height

    parts = [
        f'<text x="{LEFT}" y="18">{title} (both axes logarithmic)</text>',
    ]
    for power in range(low, math.floor(high) + 1):
        left, up = place(first, 10.0**power)
        parts.append(
            f'<text x="{left - 8:.0f}" y="{up + 4:.0f}" text-anchor="end">{10.0**power:,g}</text>'
        )
        parts.append(f'<path d="M{left:.0f} {up:.0f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
    for power in range(math.ceil(math.log10(first)), math.floor(math.log10(most)) + 1):
        left, _ = place(10.0**power, 10.0**low)
        parts.append(
            f'<text x="{left:.0f}" y="{HEIGHT - 20}" text-anchor="middle">{10**power:,}</text>'
        )
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{x}</text>')
    last = float(TOP)
    for name, line in found.items():
        at = [place(*point) for point in line]
        path = " ".join(f"{left:.1f},{up:.1f}" for left, up in at)
        colour, (left, up) = colours[name], at[-1]
        last = max(last + 16, up + 4)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 6:.0f}" y="{last:.0f}" fill="{colour}">{name}</text>')
    return picture(WIDTH, HEIGHT, parts)

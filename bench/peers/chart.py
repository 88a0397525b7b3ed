"""Draws the rates of engines as bars."""

from __future__ import annotations

from html import escape
from pathlib import Path

from errata.render.picture import picture

PLACE = Path(__file__).parents[2] / "docs" / "img" / "peers.svg"
WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 720, 190, 90, 16, 6, 34
COLOURS = {"Errata": "#2a6f97", "raw consume and produce": "#adb5bd"}
OTHER = "#e8a33d"


def draw(rates: dict[str, dict[str, float]]) -> None:
    """Draw records a second, by query and engine; each query has a scale of its own."""
    PLACE.write_text(drawn(rates))


def drawn(rates: dict[str, dict[str, float]]) -> str:
    """Return the picture as SVG."""
    parts, y = list[str](), TOP
    for query, by_engine in rates.items():
        parts.append(f'<text x="{LEFT}" y="{y}" font-weight="bold">{escape(query)}</text>')
        y += GAP
        most = max(by_engine.values())
        for each, rate in by_engine.items():
            width = max(1.0, rate / most * (WIDTH - LEFT - RIGHT))
            colour, middle = COLOURS.get(each, OTHER), y + BAR - 4
            parts += [
                f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(each)}</text>',
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>',
                f'<text x="{LEFT + width + 6:.1f}" y="{middle}">{rate / 1000:,.1f} k/s</text>',
            ]
            y += BAR + GAP
        y += TOP
    return picture(WIDTH, y - TOP + GAP, parts)

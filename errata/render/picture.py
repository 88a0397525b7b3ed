"""What all drawn measurements have in common."""

from __future__ import annotations

from collections.abc import Iterable


def picture(width: int, height: int, parts: Iterable[str]) -> str:
    """Return a picture of some parts, on white."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])

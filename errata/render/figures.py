"""Figures for people."""

from __future__ import annotations


def number(value: float) -> str:
    """Return a number with as many digits as tell something."""
    if value >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"

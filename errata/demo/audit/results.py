"""Recomputes the expected results from the surviving trades in exact arithmetic.

The types are Spark's: a notional with 2 decimals times an index factor with 9 has 11 decimals; its
average has 15 and is rounded half up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

SIZE, SLIDE, DAY = timedelta(minutes=30), timedelta(minutes=20), timedelta(days=1)
GROUP = ("product", "currency")
IDENTITY = (*GROUP, "window_start")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCALE, _MORE = 11, 4
_EXACT = Context(prec=100)

Results = dict[tuple[Any, ...], dict[str, Any]]


def recompute(trades: Iterable[dict[str, Any]]) -> Results:
    """Return the result of every window that holds a trade, by identity."""
    held: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for trade in trades:
        unscaled = int(_EXACT.scaleb(_at_risk(trade), _SCALE))
        for start in windows(trade["at"]):
            held[*(trade[name] for name in GROUP), start].append(unscaled)
    return {key: _result(key, content) for key, content in held.items()}


class Near(float):
    """A double that equals doubles which differ only in the last digits."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Return whether another number is equal within a relative tolerance of 1e-12."""
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-12)


def recompute_bars(trades: Iterable[dict[str, Any]]) -> Results:
    """Return the bar of every day that has a trade, by identity."""
    held: dict[tuple[Any, ...], list[tuple[datetime, str, Decimal]]] = defaultdict(list)
    for trade in trades:
        start = _EPOCH + (trade["at"] - _EPOCH) // DAY * DAY
        entry = trade["at"], trade["key"], _at_risk(trade)
        held[*(trade[name] for name in GROUP), start].append(entry)
    return {key: _bar(key, sorted(content)) for key, content in held.items()}


def _bar(key: tuple[Any, ...], content: list[tuple[datetime, str, Decimal]]) -> dict[str, Any]:
    values = sorted(Fraction(value) for _, _, value in content)
    place = Fraction(99, 100) * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    between = values[low] + (place - low) * (values[high] - values[low])
    amounts = [value for _, _, value in content]
    return {
        **dict(zip(IDENTITY, key, strict=True)),
        "window_end": key[-1] + DAY,
        "open": amounts[0],
        "high": max(amounts),
        "low": min(amounts),
        "close": amounts[-1],
        "p99": Near(between),
        "trades": len(content),
    }


def _at_risk(trade: dict[str, Any]) -> Decimal:
    factor = trade["index_factor"]
    return _EXACT.multiply(trade["notional"], Decimal(1) if factor is None else factor)


def windows(at: datetime) -> Iterable[datetime]:
    """Return the starts of the windows that hold a time, newest first.

    Example:
        >>> [f"{start:%H:%M}" for start in windows(datetime(2026, 7, 15, 2, 0, tzinfo=UTC))]
        ['02:00', '01:40']
    """
    start = _EPOCH + (at - _EPOCH) // SLIDE * SLIDE
    while start + SIZE > at:
        yield start
        start -= SLIDE


def _result(key: tuple[Any, ...], content: list[int]) -> dict[str, Any]:
    total, count = sum(content), len(content)
    shifted = total * 10**_MORE
    rounded = (2 * abs(shifted) + count) // (2 * count) * (1 if total >= 0 else -1)
    return {
        **dict(zip(IDENTITY, key, strict=True)),
        "window_end": key[-1] + SIZE,
        "traded": _EXACT.scaleb(Decimal(total), -_SCALE),
        "average": _EXACT.scaleb(Decimal(rounded), -_SCALE - _MORE),
        "trades": count,
        "largest": _EXACT.scaleb(Decimal(max(content)), -_SCALE),
    }

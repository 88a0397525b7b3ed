"""What the results must be, recomputed from the surviving trades in exact arithmetic.

The types are Spark's: a notional of 2 digits after the point times an index factor of 9 has 11, the
average of that has 15 and is rounded half up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

SIZE, SLIDE = timedelta(minutes=30), timedelta(minutes=20)
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
        factor = trade["index_factor"]
        at_risk = _EXACT.multiply(trade["notional"], Decimal(1) if factor is None else factor)
        unscaled = int(_EXACT.scaleb(at_risk, _SCALE))
        for start in windows(trade["at"]):
            held[*(trade[name] for name in GROUP), start].append(unscaled)
    return {key: _result(key, content) for key, content in held.items()}


def windows(at: datetime) -> Iterable[datetime]:
    """Return the starts of the windows that hold a moment, newest first.

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

"""How long ago something was, by a wall clock that may be set back."""

from __future__ import annotations

import time

from errata.processors.wire.report import FOREVER


def wall_clock_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


def elapsed_ms(since_ms: int, *, now_ms: int) -> int:
    """Return how long ago something was, in ms; `FOREVER` if the clock was set back since.

    Who waits for an interval then ends the wait, instead of waiting until the clock shows again
    what it showed before.

    Args:
        since_ms: What the clock showed then.
        now_ms: What it shows now.

    Example:
        >>> elapsed_ms(1_000, now_ms=1_250)
        250
        >>> elapsed_ms(1_000, now_ms=900) == FOREVER
        True
    """
    return now_ms - since_ms if now_ms >= since_ms else FOREVER

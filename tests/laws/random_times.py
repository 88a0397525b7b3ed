"""The event times of random networks, near 1970 or a change of a zone's clocks; and windows."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from errata import hopping, sliding
from errata.processors.windows.time_windows import Window
from tests.laws import windows
from tests.laws.windows import Clocks, Windows, clock_changes

ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe")
SPREAD_MS = 5 * windows.HOUR
"""More than any clock change in these zones adds to two consecutive windows."""

SIZES = ((12, 8), (10, 4), (7, 3), (8, 8), (16, 16), (9, 2), (9, 1), (21, 2))
"""Sizes of windows, and the distances of their starts."""


class Drawn(NamedTuple):
    """Windows as a user declares them, and as the oracle has them."""

    declared: Window | None
    known: Windows


@dataclass(frozen=True)
class Times:
    """The event times of a network.

    Args:
        base: The begin of a tape, in ms.
        unit: Length of a tape's tick, in ms.
        tz: The time zone of windows; None for UTC.
        change: When its clocks change, in ms.
    """

    base: int = 0
    unit: int = 1
    tz: str | None = None
    change: int = 0

    @property
    def keep(self) -> int:
        """The kept time: at least what two consecutive windows need."""
        return 45 * self.unit + (SPREAD_MS if self.tz else 0)

    @property
    def lateness(self) -> int:
        return 3 * self.unit

    @cached_property
    def clocks(self) -> Clocks | None:
        return None if self.tz is None else Clocks(self.tz, self.change)

    def window(self, dice: random.Random) -> Drawn:
        """Return windows of any family."""
        family = dice.choice(["hopping"] * 5 + ["sliding"] * 3 + ["none"] * 2)
        if family == "none":
            return Drawn(None, windows.whole)
        if family == "sliding":
            size = dice.choice([1, 6, 15]) * self.unit
            return Drawn(sliding(size), windows.sliding(size))
        size, slide = (length * self.unit for length in dice.choice(SIZES))
        origin = dice.choice([0, 3 * self.unit, -5 * self.unit, self.base + 1])
        if self.clocks is None:
            known = windows.hopping(size, slide, origin=origin)
            return Drawn(hopping(size, every=slide, origin=origin), known)
        given: int | str = origin
        shown = origin + self.clocks.ahead(origin)
        if dice.random() < 0.5:  # a text is local time
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=origin)
            given, shown = at.isoformat().removesuffix("+00:00"), origin
        declared = hopping(size, every=slide, origin=given, tz=self.tz)
        return Drawn(declared, windows.zoned(size, slide, origin=shown, clocks=self.clocks))


def draw_times(dice: random.Random) -> Times:
    """Return times in UTC, or (a third of them) near a clock change in some zone."""
    if dice.random() < 0.65:
        return Times(base=dice.choice([0, -37]))  # sometimes mostly before 1970
    tz = dice.choice(ZONES)
    change = dice.choice(clock_changes(tz, 2026))
    unit = dice.choice([1, windows.HOUR // 4, windows.HOUR])
    return Times(change - unit * dice.choice([5, 17, 30]), unit, tz, change)

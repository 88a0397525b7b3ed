"""What a process tells those who watch it: that its loop turns, what it waits for, what it counts.

The main loop writes it, the threads of the port read it: each field is set in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from errata.observe.samples import Samples

STUCK_S = 120.0
"""A step that takes longer is stuck: the longest one in order waits for brokers for a minute."""
LOOK_S = 1.0
"""How often a process that is watched looks at itself."""


class Pulse:
    """The signs of life of one process.

    Args:
        watched: Whether anybody can ask.
    """

    def __init__(self, *, watched: bool = False) -> None:
        self.watched = watched
        self.doing = "starting"
        """What the loop is at."""
        self.turned_s: float | None = None
        """When the loop last turned; None before it does."""
        self.waits: Sequence[str] = ("it is starting",)
        """Why the process is not ready; empty if it is."""
        self.metrics = Samples()
        """Metrics of the work."""
        self._looked_s = float("-inf")

    def turn(self) -> bool:
        """Note that the loop turns; return whether it is time to `tell`."""
        self.turned_s = now = monotonic()
        if not self.watched or now - self._looked_s < LOOK_S:
            return False
        self._looked_s = now
        return True

    def tell(self, waits: Sequence[str], metrics: Samples) -> None:
        """Take what the process found when it looked at itself."""
        self.waits, self.metrics = waits, metrics

    def stopping(self) -> None:
        """Note that the process is about to end."""
        self.doing, self.waits = "stopping", ("it is stopping",)

    @property
    def age_s(self) -> float:
        """Seconds since the loop last turned; 0 before it does."""
        return 0.0 if self.turned_s is None else monotonic() - self.turned_s

    def stuck(self) -> str:
        """Return what the loop is stuck at; "" if it turns."""
        age_s = self.age_s
        if age_s <= STUCK_S:
            return ""
        return f"its loop has not turned for {age_s:.0f} s: {self.doing}"

    def not_ready(self) -> Sequence[str]:
        """Return why the process can't do its work now; empty if it can."""
        if self.turned_s is not None and self.age_s > 5 * LOOK_S:
            return (*self.waits, f"its loop has not turned for {self.age_s:.0f} s: {self.doing}")
        return self.waits

"""The state of a process that its port serves: whether its loop turns, what it waits for, metrics.

The main loop writes it and the port's threads read it, so each field is set by one assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from errata.observe.samples import Samples

STUCK_S = 120.0
"""A step that takes longer is stuck. The longest regular step waits a minute for brokers."""
LOOK_S = 1.0
"""Interval at which a process with a port refreshes its state."""


class Pulse:
    """The state of one process, as its port shows it.

    Args:
        watched: Whether a port serves it.
    """

    def __init__(self, *, watched: bool = False) -> None:
        self.watched = watched
        self.doing = "starting"
        """The current step of the loop."""
        self.turned_s: float | None = None
        """When the loop last turned; None before the first time."""
        self.waits: Sequence[str] = ("it is starting",)
        """Why the process is not ready; empty if it is."""
        self.metrics = Samples()
        """Metrics of the process's work."""
        self._looked_s = float("-inf")

    def turn(self) -> bool:
        """Record that the loop turns; return whether it is time to call `tell`."""
        self.turned_s = now = monotonic()
        if not self.watched or now - self._looked_s < LOOK_S:
            return False
        self._looked_s = now
        return True

    def tell(self, waits: Sequence[str], metrics: Samples) -> None:
        """Store what the process waits for and its metrics."""
        self.waits, self.metrics = waits, metrics

    def stopping(self) -> None:
        """Record that the process is about to end."""
        self.doing, self.waits = "stopping", ("it is stopping",)

    @property
    def age_s(self) -> float:
        """Seconds since the loop last turned; 0 before the first time."""
        return 0.0 if self.turned_s is None else monotonic() - self.turned_s

    def stuck(self) -> str:
        """Return the step that the loop is stuck at; "" if the loop turns."""
        age_s = self.age_s
        if age_s <= STUCK_S:
            return ""
        return f"its loop has not turned for {age_s:.0f} s: {self.doing}"

    def not_ready(self) -> Sequence[str]:
        """Return why the process can't do its work now; empty if it can."""
        if self.turned_s is not None and self.age_s > 5 * LOOK_S:
            return (*self.waits, f"its loop has not turned for {self.age_s:.0f} s: {self.doing}")
        return self.waits

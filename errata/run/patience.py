"""How the start of a process waits for a cluster that is there, but can't serve it yet.

Topics that were just created, and the brokers' own of groups and transactions, have no leader for a
moment; brokers that are started together with everything else are slow to answer. Whatever meets
that before its work has begun is done again, as the next process of a supervisor would. Later a
process ends instead: see `errata.run.exit_status`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from errata.topics.cluster import ClusterError, MovingLeaderError, SilentClusterError

T = TypeVar("T")

AGAIN_S = 0.5
"""How long to wait before a step is repeated."""
PASSING = (MovingLeaderError, SilentClusterError)
"""Errors that end by themselves."""

log = logging.getLogger("errata")


class Patience:
    """The time that the start of one process may wait, from the first error on.

    Args:
        limit_ms: How long, in ms.
        clock_s: The clock, in s.
        sleep: Waits for a time in s.

    Example:
        >>> Patience(60_000).through(lambda: "done")
        'done'
    """

    def __init__(
        self,
        limit_ms: int,
        *,
        clock_s: Callable[[], float] = monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit_s, self._clock_s, self._sleep = limit_ms / 1000, clock_s, sleep
        self._until_s: float | None = None

    def wait(self, error: ClusterError) -> bool:
        """Wait a moment after an error of `PASSING`; return whether to do the step again.

        The first error is logged.
        """
        if self._until_s is None:
            self._until_s = self._clock_s() + self._limit_s
            log.warning("waiting for at most %g s to start: %s", self._limit_s, error)
        if self._clock_s() >= self._until_s:
            return False
        self._sleep(AGAIN_S)
        return True

    def through(self, step: Callable[[], T]) -> T:
        """Return what a step returns; it is repeated after errors of `PASSING`.

        Raises:
            ClusterError: If it still fails when the time is over.
        """
        while True:
            try:
                return step()
            except PASSING as error:
                if not self.wait(error):
                    raise

"""Records that no task can have written, in topics that only tasks write: passed over, and told.

They are no input of a user's, so they become no dead letters; and they change no result. But
somebody writes where nobody should. The log names the last one, a report counts them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from errata.processors.wire.report import FOREIGN
from errata.topics.cluster import TopicPartition

PASSED_OVER = (
    "%(count)d records that no task can have written are passed over; the last, partition "
    "%(partition)d and offset %(offset)d of topic %(topic)s: %(what)s; check who may write there"
)
LOG_S = 60.0
"""They are logged at most this often."""

log = logging.getLogger("errata")


class ForeignRecords:
    """Counts the foreign records that one task or sweeper has read.

    Args:
        text: What is logged, with the names that `PASSED_OVER` has.
        clock_s: Clock in s.

    Attributes:
        pending: How many no report of the task counts yet.
        is_news: Whether some were logged since the last report.
    """

    def __init__(
        self, text: str = PASSED_OVER, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._text = text
        self._clock_s, self._logged_s, self._unlogged = clock_s, -LOG_S, 0
        self.pending, self.is_news = 0, False

    def add(self, place: TopicPartition, offset: int, what: str, *, count: int = 1) -> None:
        """Note records that were just passed over.

        Args:
            place: The partition that they are in.
            offset: The offset of the last one.
            what: What the last one is.
            count: How many they are.
        """
        self.pending += count
        self._unlogged += count
        if self._clock_s() - self._logged_s < LOG_S:
            return
        last = {**place._asdict(), "offset": offset, "what": what}
        log.warning(self._text, {"count": self._unlogged, **last})
        self._unlogged, self._logged_s, self.is_news = 0, self._clock_s(), True

    def taken(self) -> int:
        """Return how many no report counts yet, for the next one."""
        pending, self.pending, self.is_news = self.pending, 0, False
        return pending

    def tally(self) -> dict[str, int]:
        """Return the same as counts of a report; empty if there are none."""
        count = self.taken()
        return {FOREIGN: count} if count else {}

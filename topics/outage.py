"""A server that may be unavailable: waited for at startup, tolerated later, logged either way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from errata.topics.secrets import clean

log = logging.getLogger("errata")

T = TypeVar("T")

WAIT_S = 30.0
"""How long to wait for a server that has not answered yet."""
_AGAIN_S = 0.5


class Outage:
    """Tracks whether a server answers.

    Args:
        server: What it is, as people are told.
        is_away: Whether a fault says that it gives no answer.
    """

    def __init__(self, server: str, is_away: Callable[[Exception], bool]) -> None:
        self._server, self._is_away = server, is_away
        self.has_answered = False
        """Whether it has ever answered, even with an error."""
        self.failure_count = 0
        """How many requests got no answer."""
        self.told = ""
        """Why the last request got no answer; "" if it got one."""

    def ask(self, question: Callable[[], T], *, is_patient: bool) -> T:
        """Return the answer to a request.

        If the server does not answer, the request is retried for up to `WAIT_S` if it is patient,
        or if the server has never answered. Other requests fail at once; the caller retries them.

        Args:
            question: Asks the server.
            is_patient: Whether nothing goes on without the answer.

        Raises:
            Exception: What the question raises.
        """
        # tenacity does not fit: each answer, even a refusal, changes what is known of the server.
        until_s = monotonic() + WAIT_S
        while True:
            try:
                found = question()
            except Exception as error:
                if not self._is_away(error):
                    self._answered()
                    raise
                waits = is_patient or not self.has_answered
                self._missed(
                    error, "it is waited for" if waits else "what is known is gone on with"
                )
                if not waits or monotonic() > until_s:
                    raise
                sleep(_AGAIN_S)
            else:
                self._answered()
                return found

    def _missed(self, error: Exception, then: str) -> None:
        self.failure_count += 1
        if not self.told:
            log.warning("%s gives no answer: %s; %s", self._server, clean(error), then)
        self.told = clean(error)

    def _answered(self) -> None:
        if self.told:
            log.warning("%s answers again", self._server)
        self.has_answered, self.told = True, ""

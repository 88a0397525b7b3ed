"""Keys of the running totals in a report, with one parser and one printer.

A total is a task's own (``read``), one of a box (``totals.revised``), or that of the dead letters
of a reason (``refused.undecodable``).
"""

from __future__ import annotations

from dataclasses import dataclass

_REFUSED = "refused"

DEAD_LETTERS = "dead_letters"
"""The total of all dead letters of a task."""

OF_BOXES = frozenset(
    {
        "judged",
        "passed",
        "closed",
        "revised",
        "requests",
        "replayed",
        "fetched",
        "fallbacks",
        _REFUSED,
    }
)
"""Totals of boxes. No reason of a dead letter has one of these names: ``refused.closed`` belongs to
a box that a user named ``refused``.
"""


@dataclass(frozen=True, slots=True)
class CountKey:
    """The key of a running total.

    Args:
        what: What is counted.
        box: The box; "" if the total is the task's own.
        reason: Reason of the counted dead letters; "" for all other totals.

    Example:
        >>> CountKey.parse("totals.revised"), CountKey.parse("refused.event time").reason
        (CountKey(what='revised', box='totals', reason=''), 'event time')
        >>> str(CountKey("read")), str(CountKey.of_reason("event time"))
        ('read', 'refused.event time')
    """

    what: str
    box: str = ""
    reason: str = ""

    @classmethod
    def of_reason(cls, reason: str) -> CountKey:
        """Return the key of the dead letters of a reason."""
        return cls(_REFUSED, reason=reason)

    @classmethod
    def parse(cls, text: str) -> CountKey:
        """Parse a key; every text is one."""
        first, _, rest = text.partition(".")
        if first == _REFUSED and rest and rest not in OF_BOXES:
            return cls.of_reason(rest)
        box, _, what = text.rpartition(".")
        return cls(what, box) if box else cls(text)

    def __str__(self) -> str:
        if self.reason:
            return f"{self.what}.{self.reason}"
        return f"{self.box}.{self.what}" if self.box else self.what

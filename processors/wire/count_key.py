"""Which running total of a report: a value with one parser and one printer.

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
"""What is counted of a box. No reason of a dead letter is called so: ``refused.closed`` is of a box
that a user named ``refused``.
"""


@dataclass(frozen=True, slots=True)
class CountKey:
    """The key of a running total.

    Args:
        what: What is counted.
        box: Of which box; "" if of none.
        reason: What was wrong with the dead letters that are counted; "" if others are.

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
        """Return the key that a text is; every text is one."""
        first, _, rest = text.partition(".")
        if first == _REFUSED and rest and rest not in OF_BOXES:
            return cls.of_reason(rest)
        box, _, what = text.rpartition(".")
        return cls(what, box) if box else cls(text)

    def __str__(self) -> str:
        if self.reason:
            return f"{self.what}.{self.reason}"
        return f"{self.box}.{self.what}" if self.box else self.what

"""Names of arcs, with one parser and one printer.

Users name arcs; the compiler adds others between them. An exchange is named after the box that
reads it. An arc that is written only to sinks, behind an exchange, has a box of its own. So have
the exact results of a box with ``significance=``, and those that it keeps back. Names that users
give have neither dots nor dashes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_EXCHANGE, _SINK = ".exchange", "sink"
EXACT, KEPT = "exact", "kept"


@dataclass(frozen=True, slots=True)
class ArcName:
    """The name of an arc.

    Args:
        declared: The declared box or source that the arc serves.
        part: ``sink``: the arc of its sinks; ``exact``, ``kept``: see `significance`; else the
            alias of one of its inputs; "": its own arc.
        is_exchange: Whether it is the exchange in front of that.

    Example:
        >>> ArcName.parse("ratio-n.exchange")
        ArcName(declared='ratio', part='n', is_exchange=True)
        >>> str(ArcName("sums", "sink"))
        'sums-sink'
    """

    declared: str
    part: str = ""
    is_exchange: bool = False

    @classmethod
    def parse(cls, text: str) -> ArcName:
        """Parse a name; every text is one."""
        is_exchange = text.endswith(_EXCHANGE)
        bare = text[: -len(_EXCHANGE)] if is_exchange else text
        declared, _, part = bare.partition("-")
        return cls(declared, part, is_exchange) if part else cls(bare, "", is_exchange)

    def __str__(self) -> str:
        bare = f"{self.declared}-{self.part}" if self.part else self.declared
        return bare + _EXCHANGE * self.is_exchange

    @property
    def is_sink(self) -> bool:
        """Whether the arc is only written to sinks."""
        return self.part == _SINK and not self.is_exchange


def part_of(box: str, part: str) -> str:
    """Return the name of the box that writes the `EXACT` or `KEPT` results of a box."""
    return str(ArcName(box, part))


def scope_owner(box: str) -> str:
    """Return the declared box in whose scope a box runs by default: the exchange's own, or itself.

    Example:
        >>> scope_owner("sums-exact"), scope_owner("sums.exchange")
        ('sums', 'sums.exchange')
    """
    name = ArcName.parse(box)
    return name.declared if name.part in (EXACT, KEPT) and not name.is_exchange else box


def sink_of(arc: str) -> str:
    """Return the name of the box that writes an arc's sinks, behind an exchange."""
    return str(replace(ArcName.parse(arc), part=_SINK))


def exchange_of(box: str) -> str:
    """Return the name of the exchange that a box, or the owner of a source, reads from."""
    return str(replace(ArcName.parse(box), is_exchange=True))


def read_by(exchange: str) -> str:
    """Return the box that reads from an exchange, or the source whose owner does."""
    return str(replace(ArcName.parse(exchange), is_exchange=False))


def owner_of(name: str) -> str:
    """Return the declared box that an exchange, or the box of its sinks, serves.

    Example:
        >>> owner_of("sums-sink.exchange"), owner_of("ratio-n.exchange"), owner_of("sums")
        ('sums', 'ratio', 'sums')
    """
    return ArcName.parse(name).declared

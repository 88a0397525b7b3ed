"""The names of exchanges, and of what owns what comes out of them."""

from __future__ import annotations

_SUFFIX, _SINK, _OWNER = ".exchange", "-sink", "-owner"


def sink_of(arc: str) -> str:
    """Return the name of the box that owns what an arc's sinks are written, behind an exchange."""
    return arc + _SINK


def is_sink(name: str) -> bool:
    """Whether an arc is only written to sinks."""
    return name.endswith(_SINK)


def owning_scope(source: str) -> str:
    """Return the scope whose tasks own the identities of a rekeyed source, behind an exchange."""
    return source + _OWNER


def exchange_of(box: str) -> str:
    """Return the name of the exchange that a box, or the owner of a source, reads from."""
    return box + _SUFFIX


def read_by(exchange: str) -> str:
    """Return the box that reads from an exchange, or the source whose owner does."""
    return exchange.removesuffix(_SUFFIX)


def owner_of(name: str) -> str:
    """Return the box that a user declared and that an exchange, or a sink's owner, is there for.

    Example:
        >>> owner_of("sums-sink.exchange"), owner_of("ratio-n.exchange"), owner_of("sums")
        ('sums', 'ratio', 'sums')
    """
    return name.partition(".")[0].partition("-")[0]

"""The names of a network's topics (``docs/protocol.md#1-topics``)."""

from __future__ import annotations

import re

from errata.schemas.errors import ErrataError

SCHEMAS_TOPIC = "_errata_schemas"
"""Topic of the schemas if no schema registry is configured; shared by all networks."""

PROGRESS, PLAN, DEAD_LETTERS = "progress", "plan", "dead-letters"
RESERVED = frozenset({PROGRESS, PLAN, DEAD_LETTERS})
"""Arc names that would collide with one of a network's own topics."""

_PART = re.compile(r"[A-Za-z0-9_-]+")
_VERSION = re.compile(r"\.v[0-9]+$")
"""The end of the name of a topic that a later version of the plan has made."""
_LONGEST = 249


class TopicNameError(ErrataError):
    """The name of a network, arc, box or scope can't be part of a topic's name."""

    def __init__(self, name: str, *, need: str) -> None:
        self.name = name
        super().__init__(f"name {name!r} {need}; choose another one")


def is_part(name: str) -> bool:
    """Whether a name may be part of a topic's name: of letters, digits, ``_`` and ``-``.

    Example:
        >>> is_part("daily-totals"), is_part("daily.totals")
        (True, False)
    """
    return _PART.fullmatch(name) is not None


def arc_topic(network: str, arc: str, *, version: int = 1) -> str:
    """Return the topic of an arc's revisions.

    Args:
        network: The network.
        arc: The arc.
        version: Version of the plan that created the topic: partitions never change in place.

    Raises:
        TopicNameError: If a name has other characters than letters, digits, "_" and "-", is one of
            the reserved ones, or makes a name longer than 249 characters.

    Example:
        >>> arc_topic("tape", "trades"), arc_topic("tape", "trades", version=2)
        ('tape.trades', 'tape.trades.v2')
    """
    if arc in RESERVED:
        raise TopicNameError(arc, need="is the network's own topic")
    return _topic(network, arc) + _suffix(version)


def parse_arc_topic(topic: str) -> tuple[str, str] | None:
    """Return the network and the arc of an arc's topic; None if it can be none.

    Example:
        >>> parse_arc_topic("tape.trades.v2"), parse_arc_topic("trades")
        (('tape', 'trades'), None)
    """
    network, _, arc = unversioned(topic).partition(".")
    is_arc = is_part(network) and is_part(arc) and arc not in RESERVED
    return (network, arc) if is_arc else None


def exchange_topic(network: str, box: str, *, version: int = 1) -> str:
    """Return the topic that sends revisions to the tasks that own their new partitions."""
    return _topic(network, box, "exchange") + _suffix(version)


def progress_topic(network: str) -> str:
    """Return the topic of the tasks' reports."""
    return _topic(network, PROGRESS)


def requests_topic(network: str, arc: str, *, version: int = 1) -> str:
    """Return the topic of replay requests to the sweeper of a connection point."""
    return _topic(network, arc, "requests") + _suffix(version)


def replay_topic(network: str, scope: str, *, version: int = 1) -> str:
    """Return the topic of sweepers' replies to the tasks of a scope."""
    return _topic(network, scope, "replay") + _suffix(version)


def dead_letters_topic(network: str) -> str:
    """Return the topic of refused input."""
    return _topic(network, DEAD_LETTERS)


def plan_topic(network: str) -> str:
    """Return the topic of the deployed plan."""
    return _topic(network, PLAN)


def acknowledging(network: str) -> str:
    """Return the consumer group, and the transactional id, of acknowledged dead letters.

    Example:
        >>> acknowledging("tape")
        'tape.dead-letters'
    """
    return dead_letters_topic(network)


def putting_back(network: str, source: str) -> str:
    """Return the transactional id of who puts the watermark of a source back."""
    return f"{network}.put-back.{source}"


def unversioned(topic: str) -> str:
    """Return the name that a topic had in the first version of the plan."""
    return _VERSION.sub("", topic)


def _suffix(version: int) -> str:
    return f".v{version}" if version > 1 else ""


def _topic(*parts: str) -> str:
    for part in parts:
        if not is_part(part):
            raise TopicNameError(part, need='needs letters, digits, "_" and "-" only')
    name = ".".join(parts)
    if len(name) > _LONGEST:
        raise TopicNameError(name, need=f"is longer than {_LONGEST} characters as a topic's name")
    return name

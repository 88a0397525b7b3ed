"""Whether brokers are there: a process that starts before them waits, and says so once."""

from __future__ import annotations

from collections.abc import Callable

from errata.topics.client import Connection, Settings
from errata.topics.cluster import SilentClusterError

AT_ONCE_S = 2.0
"""Brokers that answer within this time are not waited for with a message."""


def await_brokers(settings: Settings, *, limit_s: float, say: Callable[[str], None]) -> None:
    """Wait until a broker answers.

    Args:
        settings: librdkafka settings of the cluster.
        limit_s: How long to wait.
        say: Told once if there is something to wait for.

    Raises:
        SilentClusterError: If none answers in time.
        RefusedError: If the cluster refuses this client.
    """
    try:
        Connection(settings, reach_s=min(AT_ONCE_S, limit_s))
    except SilentClusterError:
        if limit_s <= AT_ONCE_S:
            raise
        servers = settings["bootstrap.servers"]
        say(f"no broker answers at {servers} yet; waits for one, {limit_s:g} s at most")
        Connection(settings, reach_s=limit_s)

"""A scope whose partitions are shared by a changing set of processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from errata.run.parts import Actor
from errata.topics.groups import Membership

log = logging.getLogger("errata")

GiveUp = Callable[[Collection[int]], None]


class Share:
    """The partitions of a scope that a consumer group has assigned to this process.

    Args:
        scope: The scope.
        join: Joins the group; its argument handles partitions that are revoked.
        start: Starts the actors of one partition.
        stop: Ends them.
    """

    def __init__(
        self,
        scope: str,
        *,
        join: Callable[[GiveUp], Membership],
        start: Callable[[int], list[Actor]],
        stop: Callable[[list[Actor]], None],
    ) -> None:
        self.scope, self._start, self._stop = scope, start, stop
        self._running: dict[int, list[Actor]] = {}
        self._membership = join(self._give_up)

    @property
    def is_member(self) -> bool:
        """Whether the group has assigned partitions to this process at least once, if only none."""
        return self._membership.joined

    def follow(self) -> None:
        """Start newly assigned partitions, and stop revoked ones."""
        self._membership.poll()
        for partition in sorted(self._membership.partitions - self._running.keys()):
            log.info("%s: takes on partition %d", self.scope, partition)
            self._running[partition] = self._start(partition)

    def _give_up(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition in self._running:
                log.info("%s: gives up partition %d", self.scope, partition)
                self._stop(self._running.pop(partition))

    def lost(self, actor: Actor) -> bool:
        """Stop a partition whose task another process has fenced; return whether it was here."""
        mine = [p for p, actors in self._running.items() if actor in actors]
        self._give_up(mine)
        return bool(mine)

    def close(self) -> None:
        """Leave the group, so that other processes take over at once."""
        self._membership.close()

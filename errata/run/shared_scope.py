"""A scope whose partitions several processes share: more may come, or some go, at any time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from errata.run.parts import Actor
from errata.topics.membership import Membership

log = logging.getLogger("errata")

GiveUp = Callable[[Collection[int]], None]


class Share:
    """What a consumer group has given to this process of one scope.

    Args:
        scope: The scope.
        join: Makes a member of the group, given what is to happen to partitions it loses.
        start: Starts what works on one partition.
        stop: Ends it.
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
        """Whether the group has ever told this process what it has, if only nothing."""
        return self._membership.joined

    def follow(self) -> None:
        """Take on what the group has given since the last call, and give up what it has taken."""
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
        """End the work on a partition whose task another process has fenced, if it is one here."""
        mine = [p for p, actors in self._running.items() if actor in actors]
        self._give_up(mine)
        return bool(mine)

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self._membership.close()

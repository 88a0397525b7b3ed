"""Makes the tasks and sweepers of a process from the plan of its network.

The partitions of a scope can be shared by a changing set of processes (`Share`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Sequence
from pathlib import Path
from typing import Protocol

from errata.processors.ingest.bound_task import BoundTask
from errata.processors.ingest.ingest_task import IngestTask
from errata.processors.ingest.owner_task import OwnerTask
from errata.processors.plan.topology import Scope
from errata.processors.tasks.elapsed import wall_clock_ms
from errata.processors.tasks.replay_client import ReplayClient, TopicReplayClient
from errata.processors.tasks.scope_task import ScopeTask
from errata.processors.tasks.shared import Shared
from errata.processors.wire.task_id import ScopeId
from errata.schemas.errors import ErrataError
from errata.sweepers.sweeper import LocalSweepers, Service, Sweeper
from errata.topics.groups import Membership

log = logging.getLogger("errata")

Steps = Generator[bool, None, None]
Revoke = Callable[[Collection[int]], None]


class NoSuchPartError(ErrataError):
    """A scope, arc or partition was named that the network does not have."""


class Actor(Protocol):
    """A task or sweeper that is advanced step by step."""

    name: str

    def steps(self) -> Steps:
        """Start an attempt; yields whether there was something to do."""

    def close(self) -> None:
        """Close connections and files; safe to call twice."""


class Parts:
    """Makes the tasks and sweepers of one process.

    Args:
        shared: What they share.
        state: The folder of their local state.
    """

    def __init__(self, shared: Shared, state: Path) -> None:
        self.shared, self.plan, self.state = shared, shared.plan, state
        self.beside: set[str] = set()
        """Scopes whose tasks use sweepers in this process instead of requests over topics."""
        self._common: dict[tuple[str, int], Sweeper] = {}
        """By arc and partition: sweepers beside tasks that run as long as the process."""

    def check(self, scope: str, partitions: Sequence[int]) -> None:
        """Check that the scope and its partitions exist.

        Raises:
            NoSuchPartError: If one does not.
        """
        topology = self.plan.topology
        if scope not in topology.all_scopes:
            known = ", ".join(topology.all_scopes)
            raise NoSuchPartError(f"the network has no scope {scope!r}; it has: {known}")
        if scope not in topology.process_scopes:
            box = topology.scopes[scope].boxes[-1]
            raise NoSuchPartError(
                f"scope {scope!r} is on Spark; run it with `errata spark --box {box}`"
            )
        count = self.plan.placement.task_count(ScopeId.parse(scope))
        if any(not 0 <= partition < count for partition in partitions):
            raise NoSuchPartError(f"scope {scope!r} has partitions 0 to {count - 1}")

    def tasks(self, scope: str, partition: int, *, stay: bool = False) -> list[Actor]:
        """Return the actors of one partition of a scope: its task, and sweepers beside it.

        Args:
            scope: The scope.
            partition: The partition.
            stay: Whether they run as long as the process: such tasks have sweepers in common, which
                are returned once.
        """
        scope_id = ScopeId.parse(scope)
        folder = self.state / str(scope_id.task(partition))
        if scope_id.is_ingest:
            source = self.plan.topology.sources[scope_id.name]
            if source.is_bound:
                return [BoundTask(self.shared, source, clock_ms=wall_clock_ms)]
            return [
                IngestTask(
                    self.shared, source, partition=partition, folder=folder, clock_ms=wall_clock_ms
                )
            ]
        owned = self.plan.topology.owned(scope)
        if owned is not None:
            return [OwnerTask(self.shared, owned, partition=partition, folder=folder)]
        boxes, sweepers = self.plan.topology.scopes[scope], []
        replays: ReplayClient
        if scope in self.beside:
            known = {*self._common.values()} if stay else set[Sweeper]()
            local = self._local_sweepers(boxes, partition, self._common if stay else {})
            sweepers = [each for found in local.values() for each in found.values()]
            sweepers = [sweeper for sweeper in sweepers if sweeper not in known]
            replays = LocalSweepers(local, partition=partition)
        else:
            replays = TopicReplayClient(self.shared, scope=scope, partition=partition)
        return [ScopeTask(self.shared, boxes, partition=partition, replays=replays), *sweepers]

    def _local_sweepers(
        self, scope: Scope, partition: int, known: dict[tuple[str, int], Sweeper]
    ) -> dict[str, dict[int, Sweeper]]:
        """Return the sweepers of all connection points that a task replays; adds to the known."""
        everywhere = {arc for box in scope.boxes for arc in self.plan.replayed_everywhere(box)}
        folder = f"beside.{ScopeId.of_boxes(scope.name).task(partition)}"
        numbers = {
            arc: range(self.plan.placement.partitions[arc]) if arc in everywhere else [partition]
            for arc in self.plan.replayed_points_of(scope)
        }
        for key in [(arc, number) for arc in numbers for number in numbers[arc]]:
            if key not in known:
                known[key] = self._sweeper(*key, folder)
        return {arc: {number: known[arc, number] for number in numbers[arc]} for arc in numbers}

    def services(self, arcs: Sequence[str] | None) -> list[Actor]:
        """Return the sweepers of all partitions of connection points; None for all that need any.

        Raises:
            NoSuchPartError: If an arc is not a connection point that some box replays.
        """
        replayed = self.plan.replayed_points()
        for arc in arcs or ():
            if arc not in replayed:
                raise NoSuchPartError(
                    f"no box sends replay requests for arc {arc!r}, so it has no sweeper; sweepers "
                    f"are needed for {', '.join(replayed)}"
                )
        return [
            Service(self.shared, self._sweeper(arc, partition, "sweep"))
            for arc in (replayed if arcs is None else arcs)
            for partition in range(self.plan.placement.partitions[arc])
        ]

    def _sweeper(self, arc: str, partition: int, folder: str) -> Sweeper:
        state = self.state / folder / f"{self.plan.deployment.topic(arc)}.{partition}"
        return Sweeper(self.shared, arc, partition=partition, folder=state, clock_ms=wall_clock_ms)


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
        join: Callable[[Revoke], Membership],
        start: Callable[[int], list[Actor]],
        stop: Callable[[list[Actor]], None],
    ) -> None:
        self.scope, self._start, self._stop = scope, start, stop
        self._running: dict[int, list[Actor]] = {}
        self._membership = join(self._revoke)

    @property
    def is_member(self) -> bool:
        """Whether the group has made an assignment to this process, which may be empty."""
        return self._membership.joined

    def follow(self) -> None:
        """Start newly assigned partitions, and stop revoked ones."""
        self._membership.poll()
        for partition in sorted(self._membership.partitions - self._running.keys()):
            log.info("%s: takes partition %d", self.scope, partition)
            self._running[partition] = self._start(partition)

    def _revoke(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition in self._running:
                log.info("%s: gives up partition %d", self.scope, partition)
                self._stop(self._running.pop(partition))

    def release(self, actor: Actor) -> bool:
        """Stop a partition whose task another process has fenced; return whether it was here."""
        partitions = [p for p, actors in self._running.items() if actor in actors]
        self._revoke(partitions)
        return bool(partitions)

    def close(self) -> None:
        """Leave the group, so that other processes take over at once."""
        self._membership.close()

"""The loop of a process: deploys its network if needed, then advances its tasks or sweepers.

The tasks of a process are generators that one thread advances in turn. A commit with an unknown
outcome ends a task's attempt and starts the next one. Being fenced ends the process, since another
process has taken over the work.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic

from errata.deploy import rights
from errata.deploy.preparation import prepare
from errata.observe.pulse import Pulse
from errata.processors.declare.network import Network
from errata.processors.plan.deployed import NewVersionError
from errata.processors.reports.progress_view import View
from errata.processors.tasks.shared import Shared, scope_of
from errata.processors.tasks.task import Task
from errata.run.drain import drain
from errata.run.parts import Actor, Life, Parts
from errata.run.readiness import Look
from errata.run.shared_scope import Share
from errata.settings.logs import about
from errata.settings.place import Place, connect
from errata.topics.cluster import DoubtfulCommitError, FencedError
from errata.topics.refused import Right
from errata.topics.registry_server import registry

log = logging.getLogger("errata")

STILL_S = 5.0
"""Interval between checks that the topics, and the rights to them, still exist."""
IDLE_S = 0.004
"""Sleep of a process that has nothing to do."""
RESTS_S, RESTING_S = 1.0, 0.01
"""After `RESTS_S` without work a process sleeps for `RESTING_S` at a time, which costs less."""


def collect_seldom() -> None:
    """Tune Python's garbage collector for a process that only runs `Worker.run`.

    Existing objects stay alive; later, batches create and drop many objects within milliseconds.
    """
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)


class Worker:
    """Runs one process's share of a network.

    Args:
        network: The network.
        place: The cluster, registry and folder that it works with.
        pulse: State for the port of the process.
    """

    def __init__(self, network: Network, place: Place, pulse: Pulse | None = None) -> None:
        self.place, self.pulse = place, pulse or Pulse()
        about["network"] = network.name
        self.cluster = connect(place)
        self.plan = prepare(network, place, self.cluster)
        self.shared = Shared(
            self.cluster,
            self.plan,
            registry(self.cluster, place.registry),
            View(self.cluster, plan=self.plan),
            place.compaction_lag_ms,
            place.on_error,
        )
        state = place.state / self.plan.network / self.plan.deployment
        self.parts = Parts(self.shared, state)
        self.shares: list[Share] = []
        self.lives: dict[Actor, Life] = {}
        self.needed: list[Right] = []

    def add_scope(
        self,
        name: str,
        *,
        partitions: Sequence[int] | None = None,
        shared: bool = False,
        sweep_beside: bool = False,
    ) -> None:
        """Add the tasks of a scope.

        Args:
            name: A scope, or ``ingest.<source>``.
            partitions: The partitions to run; None for all.
            shared: Run the partitions that a consumer group of all such processes assigns to this
                one, and give them up when others join.
            sweep_beside: Whether the tasks use sweepers in this process instead of requests over
                topics.

        Raises:
            NoSuchPartError: If the scope or a partition does not exist.
        """
        self.parts.check(name, partitions or ())
        self._require(rights.of_scope(self.plan, name))
        self.parts.beside |= {name} if sweep_beside else set()
        if shared:
            group, topic = f"{self.plan.network}.{name}", self.plan.shared_by(name)
            share = Share(
                name,
                join=partial(self.cluster.membership, group, topic),
                start=lambda partition: self._start(self.parts.tasks(name, partition)),
                stop=self._stop,
            )
            self.shares.append(share)
            return
        count = len(self.plan.tasks(name))
        for partition in range(count) if partitions is None else partitions:
            self._start(self.parts.tasks(name, partition))

    def add_sweepers(self, arcs: Sequence[str] | None = None) -> None:
        """Add the sweepers of connection points, all partitions; None for all that are asked.

        Raises:
            NoSuchPartError: If an arc is not a connection point that some box asks.
        """
        for arc in self.plan.asked():
            if arcs is None or arc in arcs:
                self._require(rights.of_sweeper(self.plan, arc))
        self._start(self.parts.services(arcs))

    def _require(self, needed: list[Right]) -> None:
        self.cluster.require(needed)
        self.needed += needed

    def _start(self, actors: list[Actor]) -> list[Actor]:
        self.lives |= {actor: actor.life() for actor in actors}
        return actors

    def _stop(self, actors: list[Actor]) -> None:
        for actor in actors:
            self.lives.pop(actor).close()
            actor.close()

    def _replaced(self, actor: Actor) -> bool:
        """Return whether another process has taken over a task; a timeout fences, too."""
        if not isinstance(actor, Task):
            return True
        for _ in actor.read_reports():
            time.sleep(IDLE_S)
        return actor.is_superseded

    def _advance(self, actor: Actor) -> bool:
        """Advance an actor by one step; a doubtful commit starts its next attempt."""
        self.pulse.doing = about["task"] = actor.name
        try:
            return next(self.lives[actor])
        except (DoubtfulCommitError, FencedError) as error:
            if isinstance(error, FencedError) and self._replaced(actor):
                if any(share.lost(actor) for share in self.shares):
                    return True
                raise
            log.warning("%s; starting a new attempt", error)
            self.shared.meter.doubtful[scope_of(actor.name)] += 1
            self.lives[actor] = actor.life()
            return True

    def run(self, stop: Callable[[], bool]) -> None:
        """Advance all actors in turn until `stop` returns true.

        Raises:
            FencedError: If another process has taken over a task that is not shared.
            NewVersionError: If a new version of the plan is deployed, or is about to be.
            ErrataError: If something needs an operator.
        """
        try:
            look = Look(self.shared, self.shares)
            seen_s = busy_s = monotonic()
            while not stop():
                if self.pulse.turn():
                    self.pulse.tell(*look(self.lives))
                if monotonic() > seen_s + STILL_S:
                    self.cluster.require_still(self.needed)
                    seen_s = monotonic()
                if self.shared.view.version > self.plan.version:
                    raise NewVersionError(
                        f"network {self.plan.network!r} moves to version "
                        f"{self.shared.view.version} of its plan; version {self.plan.version} ends"
                    )
                for share in self.shares:
                    share.follow()
                busy = False
                for actor in list(self.lives):
                    busy |= actor in self.lives and self._advance(actor)
                about.pop("task", None)
                if busy:
                    busy_s = monotonic()
                else:
                    time.sleep(IDLE_S if monotonic() < busy_s + RESTS_S else RESTING_S)
            self.pulse.stopping()
            drain(self.lives, self._advance)
        finally:
            for share in self.shares:
                share.close()
            self._stop(list(self.lives))
            self.cluster.close()

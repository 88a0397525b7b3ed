"""The loop of a process: deploys its network if needed, then advances its tasks or sweepers.

The tasks of a process are generators that one thread advances in turn. A commit with an unknown
outcome ends a task's attempt and starts the next one; so does a cluster that can't serve its start
yet (`Patience`). Being fenced ends the process, since another process has taken over the work. Once
a second the process inspects itself (`Inspector`): whether it is ready, and its metrics. When it is
asked to end, it commits its open transactions (`drain`).
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from time import monotonic

from errata.deploy import rights
from errata.deploy.deployment import prepare
from errata.deploy.processes import ALL, Part
from errata.observe import metrics
from errata.observe.metric_catalogue import Samples
from errata.observe.port import Pulse
from errata.processors.declare.network import Network
from errata.processors.plan.deployed import NewVersionError
from errata.processors.reports.progress_view import UnreadableRecord, View
from errata.processors.reports.validation import InvalidReport
from errata.processors.tasks.shared import Shared, scope_of
from errata.processors.tasks.task import Task
from errata.run.calls import Calls
from errata.run.parts import Actor, Parts, Share, Steps
from errata.run.patience import PASSING, Patience
from errata.settings.logs import context
from errata.settings.place import Place, connect
from errata.sweepers.sweeper import Service, Sweeper
from errata.topics.cluster import DoubtfulCommitError, FencedError
from errata.topics.refused import Right
from errata.topics.registry_server import registry

log = logging.getLogger("errata")

RIGHTS_CHECK_S = 5.0
"""Interval between checks that the topics and the rights to them still exist."""
COLLECT_S = 30.0
"""Interval between collections of garbage: the columns that a cycle holds are not counted."""
IDLE_S = 0.004
"""Sleep of a process that has nothing to do."""
IDLE_AFTER_S, REST_S = 1.0, 0.2
"""After `IDLE_AFTER_S` without work it rests for `REST_S` at a time, or until a record arrives."""
DRAIN_S = 4.0
"""How long `drain` may take; the next attempt aborts a commit that hangs."""


class ReplacedError(FencedError):
    """Another process has taken over a task."""


def tune_garbage_collector() -> None:
    """Tune Python's garbage collector for a process that only runs `Worker.run`.

    Existing objects stay alive; later, batches create and drop many objects within milliseconds.
    `Worker.run` collects garbage by the clock: a few cycles can hold columns of any size.
    """
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)


class Worker:
    """Runs one process's share of a network.

    Args:
        network: The network.
        place: The cluster, registry and folder that it works with.
        pulse: State for the port of the process.
        patience: What is left of the time that its start may wait; None: all of it.
    """

    def __init__(
        self,
        network: Network,
        place: Place,
        pulse: Pulse | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.place, self.pulse = place, pulse or Pulse()
        self.patience = patience or Patience(place.wait_ms)
        context["network"] = network.name
        self.cluster = connect(place)
        try:
            self.plan = prepare(network, place, self.cluster)
        except BaseException:  # the start is repeated, with another connection
            self.cluster.close()
            raise
        self.calls = Calls()
        self.shared = Shared(
            self.cluster,
            self.plan,
            registry(self.cluster, place.registry),
            View(self.cluster, plan=self.plan),
            place.compaction_lag_ms,
            place.on_error,
            interval_ms=place.interval_ms,
            hands_over=True,
            run=self.calls.run,
        )
        state = place.state / self.plan.network / self.plan.deployment.id
        self.parts = Parts(self.shared, state)
        self.shares: list[Share] = []
        self.steps: dict[Actor, Steps] = {}
        self.needed: list[Right] = []

    def add_scope(
        self,
        name: str,
        *,
        partitions: Sequence[int] | None = None,
        part: Part = ALL,
        shared: bool = False,
        sweep_beside: bool = False,
    ) -> None:
        """Add the tasks of a scope.

        Args:
            name: A scope, or ``ingest.<source>``.
            partitions: The partitions to run; None for all.
            part: The part of all partitions to run, if none are named.
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
            group, topic = f"{self.plan.network}.{name}", self.plan.group_topic(name)
            share = Share(
                name,
                join=partial(self.cluster.membership, group, topic),
                start=lambda partition: self._start(self.parts.tasks(name, partition)),
                stop=self._stop,
            )
            self.shares.append(share)
            return
        if partitions is None:
            partitions = part.partitions(len(self.plan.placement.tasks(name)))
        for partition in partitions:
            self._start(self.parts.tasks(name, partition, stay=True))

    def add_sweepers(self, arcs: Sequence[str] | None = None) -> None:
        """Add the sweepers of connection points, all partitions; None for all that need any.

        Raises:
            NoSuchPartError: If an arc is not a connection point that some box replays.
        """
        for arc in self.plan.replayed_points():
            if arcs is None or arc in arcs:
                self._require(rights.of_sweeper(self.plan, arc))
        self._start(self.parts.services(arcs))

    def _require(self, needed: list[Right]) -> None:
        self.cluster.require(needed)
        self.needed += needed

    def _start(self, actors: list[Actor]) -> list[Actor]:
        self.steps |= {actor: actor.steps() for actor in actors}
        return actors

    def _stop(self, actors: list[Actor]) -> None:
        for actor in actors:
            self.steps.pop(actor).close()
            actor.close()

    def _unless_replaced(self, task: Task, error: FencedError) -> Steps:
        """Start the next attempt of a task that was fenced, unless another process has it now.

        A transaction that takes too long fences, too. Only the reports tell, and they may wait for
        a transaction of the other process: the other tasks of this one work meanwhile.

        Raises:
            ReplacedError: If another process has taken it over.
        """
        yield from task.read_reports()
        if task.is_superseded:
            raise ReplacedError(str(error)) from error
        yield from self._next_attempt(task, error)

    def _next_attempt(self, actor: Actor, error: DoubtfulCommitError | FencedError) -> Steps:
        log.warning("%s; starting a new attempt", error)
        self.shared.meter.doubtful[scope_of(actor.name)] += 1
        return actor.steps()

    def _advance(self, actor: Actor) -> bool:
        """Advance an actor by one step; a doubtful commit starts its next attempt."""
        self.pulse.doing = context["task"] = actor.name
        try:
            return next(self.steps[actor])
        except DoubtfulCommitError as error:
            self.steps[actor] = self._next_attempt(actor, error)
            return True
        except FencedError as error:
            if isinstance(actor, Task) and not isinstance(error, ReplacedError):
                self.steps[actor] = self._unless_replaced(actor, error)
                return True
            if any(share.release(actor) for share in self.shares):
                return True
            raise
        except PASSING as error:
            if _has_started(actor) or not self.patience.wait(error):
                raise
            self.steps[actor] = actor.steps()
            return True

    def run(self, stop: Callable[[], bool]) -> None:
        """Advance all actors in turn until `stop` returns true.

        Raises:
            FencedError: If another process has taken over a task that is not shared.
            NewVersionError: If a new version of the plan is deployed, or is about to be.
            ErrataError: If something needs an operator.
        """
        try:
            inspect = Inspector(self.shared, self.shares)
            seen_s = busy_s = collected_s = monotonic()
            while not stop():
                if self.pulse.turn():
                    self.pulse.update(*inspect(self.steps))
                if monotonic() > seen_s + RIGHTS_CHECK_S:
                    self.cluster.require_still(self.needed)
                    seen_s = monotonic()
                if monotonic() > collected_s + COLLECT_S:
                    gc.collect()
                    collected_s = monotonic()
                version, newest = self.plan.deployment.version, self.shared.view.version
                if newest > version:
                    raise NewVersionError(
                        f"network {self.plan.network!r} moves to version {newest} of its plan; "
                        f"version {version} ends"
                    )
                for share in self.shares:
                    share.follow()
                busy = False
                for actor in list(self.steps):
                    busy |= actor in self.steps and self._advance(actor)
                context.pop("task", None)
                if not busy and self.calls.rest(IDLE_S):
                    busy_s = monotonic()
                elif not busy and monotonic() < busy_s + IDLE_AFTER_S:
                    time.sleep(IDLE_S)
                elif busy or self.cluster.rest(REST_S):
                    busy_s = monotonic()
            self.pulse.stopping()
            drain(self.steps, self._advance, self.calls.rest)
        finally:
            self.close()

    def close(self) -> None:
        """Give up all work and close all connections."""
        for share in self.shares:
            share.close()
        self._stop(list(self.steps))
        self.calls.close()
        self.cluster.close()


class Inspector:
    """Inspects the tasks and sweepers of a process.

    Args:
        shared: What they share.
        shares: The scopes that the process shares with other processes.
    """

    def __init__(self, shared: Shared, shares: Sequence[Share]) -> None:
        self.shared, self.shares = shared, shares
        self._reports_end: int | None = None
        self._logged: dict[str, InvalidReport] = {}
        self._logged_records: dict[bytes, UnreadableRecord] = {}

    def __call__(self, actors: Collection[Actor]) -> tuple[list[str], Samples]:
        """Return why the process is not ready, and its current metrics."""
        tasks = [actor for actor in actors if isinstance(actor, Task)]
        sweepers = [sweeper for actor in actors for sweeper in _sweepers(actor)]
        self._log_invalid_reports()
        self._log_unreadable_records()
        samples = metrics.work(self.shared, [task.name for task in tasks], tasks, sweepers)
        return list(self._wait_reasons(tasks, sweepers)), samples

    def _log_invalid_reports(self) -> None:
        """Log each invalid report once; of one task only the last."""
        for task, invalid in self.shared.view.invalid.items():
            if self._logged.get(task) is not invalid:
                self._logged[task] = invalid
                log.warning("the report of %s is invalid and is ignored: %s", task, invalid.reason)

    def _log_unreadable_records(self) -> None:
        """Log each record of the plan topic that can't be read once; of one key only the last."""
        for key, record in self.shared.view.unreadable.items():
            if self._logged_records.get(key) is not record:
                self._logged_records[key] = record
                log.error("%s", record.reason)

    def _wait_reasons(
        self, tasks: Collection[Task], sweepers: Collection[Sweeper]
    ) -> Iterator[str]:
        for share in self.shares:
            if not share.is_member:
                yield f"scope {share.scope}: the consumer group has not assigned partitions yet"
        for task in tasks:
            if not task.started:
                again = f": it {task.again}" if task.again.what else ""
                yield f"task {task.name} is starting{again}"
            elif task.waits_for:
                yield f"task {task.name} waits: {task.waits_for}"
        if self._reports_end is None:
            self._reports_end = self.shared.cluster.end(self.shared.view.source)
        has_read_reports = self.shared.view.has_read_to(self._reports_end)
        for sweeper in sweepers:
            if sweeper.full:
                yield f"{sweeper.name} replies to no request: {sweeper.full}"
            elif not (has_read_reports and sweeper.has_caught_up()):
                yield f"{sweeper.name} has read its arc up to epoch {sweeper.store.upto} so far"


def _sweepers(actor: Actor) -> list[Sweeper]:
    if isinstance(actor, Service):
        return [actor.sweeper]
    return [actor] if isinstance(actor, Sweeper) else []


def _has_started(actor: Actor) -> bool:
    """Whether a task or sweeper has begun its work."""
    if isinstance(actor, Task):
        return actor.started
    return all(sweeper.has_caught_up() for sweeper in _sweepers(actor))


def drain(
    actors: Iterable[Actor],
    advance: Callable[[Actor], bool],
    rest: Callable[[float], bool] = lambda _: False,
) -> None:
    """Let every task commit its open transaction.

    Args:
        actors: All tasks and sweepers of the process.
        advance: Advances one of them by a step.
        rest: Waits until a call of a task to the brokers has returned, for some time at most.
    """
    until = monotonic() + DRAIN_S
    tasks = [actor for actor in actors if isinstance(actor, Task)]
    while open_ := [task for task in tasks if task.attempt.is_committing]:
        if monotonic() > until:
            return
        if not any([advance(task) for task in open_]):
            rest(IDLE_S)

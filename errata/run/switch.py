"""Switches a network from one version of its plan to the next.

Each step can be repeated by a process that continues after another one died:

0. if the brokers have lost records, the processes of the old version write them again: only they
   have the state for that;
1. processes of the old version are asked to end;
2. the ingest tasks are taken over, and report the largest epoch that any of them has reported:
   nothing more comes in under the old version;
3. its scopes process all epochs up to that one;
4. each task of the new version gets a first report as of that epoch, with a copy in new topics of
   what it owns of arcs whose partitions or fields change, with the content of boxes that become
   connection points, and with the content of new arcs;
5. the new version is deployed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import polars as pl

from errata.deploy.versions import new_arcs
from errata.processors.arcs.partitioner import Spread
from errata.processors.ingest.bound_task import BoundTask
from errata.processors.ingest.intake import KEY, key_encoder, owners
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import announce, write_plan
from errata.processors.plan.topology import Source
from errata.processors.reports.progress_view import View
from errata.processors.tasks import lost_records
from errata.processors.tasks.lost_records import LostRecordsError
from errata.processors.tasks.rebuild import path_to
from errata.processors.tasks.shared import Shared
from errata.processors.tasks.takeover import Fill, NewArc, Takeover, contents, mark
from errata.processors.wire.report import NEVER, PENDING, Report
from errata.processors.wire.task_id import ScopeId, TaskId
from errata.run.parts import Actor
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.topics.cluster import DoubtfulCommitError, FencedError, TopicPartition, Transactions

MOST_ATTEMPTS = 10
"""How often the switch is begun at most, if processes of the old version are slow to end."""

log = logging.getLogger("errata")

Jobs = Callable[[Sequence[str], Callable[[], bool]], None]
"""Runs jobs on Spark, by the names of their scopes, until they have processed all complete input.

Calls the function repeatedly meanwhile.
"""


@dataclass
class Switch:
    """Switches a network from the deployed version to the next one.

    Args:
        old: What the tasks of the deployed version share.
        new: What the tasks of the next version share; on the same cluster.
        parts: Makes the tasks of the old version's scopes with their sweepers, and the sweepers
            that its jobs on Spark ask.
        jobs: Runs the jobs on Spark; only needed if there are any.
        fill: Writes the content of new arcs; only needed if there are any.
        copied: Result: how many tuples of each arc were copied.
        filled: Result: how many tuples were written to each new arc.
        step: The current step, as a phrase for the log: "moves prices.0".
    """

    old: Shared
    new: Shared
    parts: Callable[[], list[Actor]]
    jobs: Jobs | None = None
    fill: Fill | None = None
    copied: dict[str, int] = field(default_factory=dict)
    filled: dict[str, int] = field(default_factory=dict)
    step: str = ""
    _read: dict[str, pl.DataFrame] = field(default_factory=dict)

    def run(self) -> Iterator[bool]:
        """Run the switch.

        It is repeated from the start if other processes were slow to end, or if the brokers have
        lost records meanwhile that processes of the old version can write again.
        """
        for attempt in count(1):
            try:
                yield from self.run_once()
            except (FencedError, DoubtfulCommitError, LostRecordsError) as error:
                is_final = isinstance(error, LostRecordsError) and not self._pending_loss()
                if is_final or attempt == MOST_ATTEMPTS:
                    raise
                log.warning("%s; starting the switch again", error)
            else:
                return

    def run_once(self) -> Generator[bool, None, None]:
        """Run the switch once; yields whether there was something to do.

        Raises:
            FencedError: If a process of the old version was slow to end: run it again.
            DoubtfulCommitError: If the outcome of a commit is not known: run it again.
            LostRecordsError: If the brokers have lost records: run it again.
        """
        self.step = "looks for lost records"
        yield from self._await_restored()
        announce(self.old.cluster, self.new.plan)
        self.step = "reads the reports"
        yield from self._read_reports()
        if not self._has_begun():
            self.step = "stops ingest"
            takeovers = list[Takeover]()
            try:
                yield from self._stop_ingest(takeovers)
                self.step = "processes the remaining input"
                yield from self._drain(takeovers)
            finally:
                for takeover in takeovers:
                    takeover.close()
        for scope in self.new.plan.topology.all_scopes:
            yield from self._move(scope)
            self._read.clear()
        self.step = "ends tasks that the new version does not have"
        yield from self._end_others()
        write_plan(self.old.cluster, self.new.plan, first_epoch=self._last_epoch() + 1)

    # ---------------------------------------------------------------- lost records

    def _await_restored(self) -> Iterator[bool]:
        """Wait while the old version writes again what the brokers have lost.

        If it has been asked to end, it goes on for that, unless the new one has begun.
        """
        told = ""
        while True:
            yield from self._read_committed_reports()
            if self._has_begun():
                return
            lost = yield from self._lost()
            if not lost:
                return
            version = self.old.plan.deployment.version
            if told != lost:
                told = lost
                log.warning("%s; waiting until version %d has written them again", lost, version)
            if self.old.view.version > version:
                yield from self._give_back()

    def _lost(self) -> Generator[bool, None, str]:
        """Return which records the old version has to write again; "" if none."""
        if pending := self._pending_loss():
            return pending
        for task in self._restorable():
            found = yield from lost_records.find(self.old, self.old.view.of(task))
            lost, _ = lost_records.sorted_out(found)
            if lost:
                return f"task {task}: {lost_records.text(lost)}"
        return ""

    def _pending_loss(self) -> str:
        """Return what tasks of the old version have yet to write again; "" if nothing."""
        pending = [t for t in self._restorable() if self.old.view.of(t).rebuilt == PENDING]
        return f"the brokers have lost records of {', '.join(pending)}" if pending else ""

    def _restorable(self) -> list[str]:
        """Return the tasks of the old version that can write records again: jobs on Spark can't."""
        plan = self.old.plan
        return [t for s in plan.topology.process_scopes for t in plan.placement.tasks(s)]

    def _give_back(self) -> Iterator[bool]:
        """Let the old version go on: hand back the tasks that were taken over, and tell it so."""
        for task in self.old.plan.placement.ingest_tasks():
            if self.old.view.of(task).plan == mark(self.new.plan.fingerprint):
                takeover = self._take_over(self.old, task)
                try:
                    yield from takeover.claim()
                    yield from takeover.give_back(self.old.plan.fingerprint)
                finally:
                    takeover.close()
        announce(self.old.cluster, self.old.plan)

    # ---------------------------------------------------------------- the reports

    def _read_committed_reports(self) -> Iterator[bool]:
        """Read the reports that can be read while tasks are at work."""
        source = self.old.view.source
        yield from self._read_to(self.old.cluster.stable_ends([source])[source])
        yield False

    def _read_reports(self) -> Iterator[bool]:
        """Read all reports; first abort transactions of dead processes, which block reading."""
        plan = self.old.plan
        hides = lost_records.hidden(self.old.cluster, [self.old.view.source])
        for task in self._tasks(plan):
            transactions = self.old.cluster.transactions(f"{plan.network}.{task}")
            if hides:
                lost_records.uncover_reports(self.old, transactions)
            transactions.close()
            yield True
        yield from self._read_to(self.old.cluster.end(self.old.view.source))

    def _read_to(self, end: int) -> Iterator[bool]:
        """Read all reports before an offset."""
        for view in (self.old.view, self.new.view):
            view.poll()
            while not view.has_read_to(end):
                yield False
                view.poll()

    def _has_begun(self) -> bool:
        """Whether some task is of the new version by now."""
        return any(map(self._is_moved, self._tasks(self.new.plan)))

    def _is_moved(self, task: str) -> bool:
        return self.new.view.of(task).plan == self.new.plan.fingerprint

    def _tasks(self, plan: CompiledPlan) -> list[str]:
        return [task for s in plan.topology.all_scopes for task in plan.placement.tasks(s)]

    def _last_epoch(self) -> int:
        return self.old.view.newest_epoch()

    def _take_over(
        self,
        shared: Shared,
        task: str,
        *,
        outputs: tuple[str, ...] = (),
        transactions: Transactions | None = None,
    ) -> Takeover:
        existed = task in self._tasks(self.old.plan)
        return Takeover(
            shared,
            TaskId.parse(task),
            outputs=outputs,
            to_plan=self.new.plan.fingerprint,
            from_plan=self.old.plan.fingerprint if existed else None,
            transactions=transactions,
        )

    # ---------------------------------------------------------------- end the old version

    def _stop_ingest(self, takeovers: list[Takeover]) -> Iterator[bool]:
        """Take over all ingest tasks, then raise all their reports to the largest epoch."""
        plan = self.old.plan
        for task in plan.placement.ingest_tasks():
            source = plan.topology.sources[TaskId.parse(task).scope.name]
            outputs = () if source.rekey or source.is_bound else (source.arc.name,)
            if source.is_bound:
                yield from self._follow(task, source)
            takeovers.append(self._take_over(self.old, task, outputs=outputs))
            yield from takeovers[-1].claim()
        for takeover in takeovers:
            yield from takeover.raise_to(self._last_epoch())

    def _follow(self, task: str, source: Source) -> Iterator[bool]:
        """Let a task of a bound source take over the pairs of the task that makes them.

        That one is taken over by now, and makes no more.
        """
        if self.old.view.of(task).plan == mark(self.new.plan.fingerprint):
            return
        actor = BoundTask(self.old, source, clock_ms=lambda: time.time_ns() // 1_000_000)
        if actor.is_leader:
            return
        steps = actor.steps()
        try:
            while actor.pairs_left():
                yield next(steps)
        finally:
            steps.close()

    def _drain(self, takeovers: Sequence[Takeover]) -> Iterator[bool]:
        """Run the scopes of the old version until they have processed everything.

        Raises:
            LostRecordsError: If the brokers have lost records: no epoch follows in which they could
                be written again.
        """
        actors, view = self.parts(), self.old.view
        running = [actor.steps() for actor in actors]
        scopes = [
            task
            for scope in self.old.plan.topology.scopes
            for task in self.old.plan.placement.tasks(scope)
        ]

        def meanwhile() -> bool:
            while any([next(steps) for steps in running]):
                pass
            return False

        try:
            while min(map(view.frontier, scopes), default=0) < self._last_epoch():
                for takeover in takeovers:
                    yield from takeover.check_ends()
                if pending := self._pending_loss():
                    raise LostRecordsError(pending)
                due = self._due()
                if due and self.jobs is not None:
                    self.jobs(due, meanwhile)
                view.poll()
                yield any([next(steps) for steps in running])
        finally:
            for steps in running:
                steps.close()
            for actor in actors:
                actor.close()

    def _due(self) -> list[str]:
        """Return the jobs on Spark that are behind although their input is complete."""
        plan, view, last = self.old.plan, self.old.view, self._last_epoch()
        jobs = []
        for scope in (scope for scope in plan.topology.scopes.values() if scope.on_spark):
            behind = min(map(view.frontier, plan.placement.tasks(scope.name))) < last
            inputs = [(a, p) for a in scope.inputs for p in range(plan.placement.partitions[a])]
            if behind and all(view.complete(*place)[0] >= last for place in inputs):
                jobs.append(scope.name)
        return jobs

    # ---------------------------------------------------------------- begin the new version

    def _move(self, scope: str) -> Iterator[bool]:
        """Write the copies and first reports of the tasks of a scope of the new version."""
        takeovers: list[Takeover] = []
        shared = self._of_job(scope)
        try:
            for task in self.new.plan.placement.tasks(scope):
                self.step = f"moves {task}"
                if not self._is_moved(task):
                    takeovers.append(self._take_over(self.new, task, transactions=shared))
                    yield from takeovers[-1].claim()
            ends = self._fill(scope, takeovers)
            for takeover in takeovers:
                self.step = f"moves {takeover.name}"
                copies: dict[str, pl.DataFrame] = {}
                for arc in self._moved_by(scope):
                    copies[arc] = yield from self._copies(arc, takeover.name)
                report = self._firsts().report(takeover.name, filled=ends)
                yield from takeover.move(copies, report, to=self.new.plan.fingerprint)
        finally:
            if shared is not None:
                shared.close()
            for takeover in takeovers:
                takeover.close()

    def _of_job(self, scope: str) -> Transactions | None:
        """Return the transactions for the reports of a job on Spark; its driver writes them."""
        plan = self.new.plan
        if scope not in plan.topology.jobs:
            return None
        return self.new.cluster.transactions(f"{plan.network}.{scope}.spark")

    def _fill(self, scope: str, takeovers: list[Takeover]) -> dict[TopicPartition, tuple[int, int]]:
        """Write the new arcs of a scope on behalf of its tasks; return their end positions."""
        plan, last = self.new.plan, self._last_epoch()
        ends = dict[TopicPartition, tuple[int, int]]()
        attempts = {takeover.partition: takeover.report.attempt for takeover in takeovers}
        wms = {box: self._firsts().watermark(plan.topology.scope_of(box)) for box in plan.choices}
        for arc in new_arcs(self.old.plan, plan) if attempts and last >= 0 else ():
            if plan.topology.scope_of(arc) == scope:
                assert self.fill is not None, f"{arc} is new"
                self.step = f"fills {arc}"
                result = self.fill(NewArc(arc, last, attempts, wms))
                self.filled[arc] = max(result.tuples, self.filled.get(arc, 0))  # of all attempts
                ends |= {
                    TopicPartition(plan.deployment.topic(arc), p): (end, last)
                    for p, end in result.ends.items()
                }
        return ends

    def _end_others(self) -> Iterator[bool]:
        """Make sure that tasks which the new version does not have never run again."""
        for task in sorted({*self._tasks(self.old.plan)} - {*self._tasks(self.new.plan)}):
            takeover = self._take_over(self.old, task)
            try:
                yield from takeover.claim()
            finally:
                takeover.close()

    def _firsts(self) -> FirstReports:
        return FirstReports(self.old.view, self.new.view, self._last_epoch())

    def _moved_by(self, scope: str) -> list[str]:
        """Return the arcs of the old version with history that a scope writes to a new topic."""
        old, new = self.old.plan, self.new.plan
        return [
            arc
            for arc in new.kept_ms
            if arc in old.topology.arcs and new.topology.scope_of(arc) == scope
            if arc not in old.kept_ms or new.deployment.topic(arc) != old.deployment.topic(arc)
        ]

    def _copies(self, arc: str, task: str) -> Generator[bool, None, pl.DataFrame]:
        """Return an insert for each tuple of an arc that a task owns, with its new `partition`."""
        if arc not in self._read:
            fields = self.new.plan.topology.arcs[arc].fields
            if arc in self.old.plan.kept_ms:
                tuples = yield from contents(self.old, arc, fields=fields)
            else:
                tuples = yield from self._recomputed(arc)
            self.copied[arc] = tuples.height
            self._read[arc] = self._owned(arc, tuples)
        return self._read[arc].filter(pl.col("task") == task)

    def _recomputed(self, arc: str) -> Generator[bool, None, pl.DataFrame]:
        """Return an insert for each tuple of an arc that kept no history in the old version."""
        plan = self.old.plan
        path, anchors = path_to(plan, arc, at_rest=True), dict[str, pl.DataFrame]()
        for name in path.anchors:
            fields = plan.topology.arcs[name].fields
            inserts = yield from contents(self.old, name, fields=fields)
            anchors[name] = frames.entering(inserts, list(fields))
        firsts = self._firsts()
        tuples = path.content(
            anchors, arc, wm=lambda box: firsts.watermark(plan.topology.scope_of(box))
        )
        never = by_column.constant(False, tuples.height, pl.Boolean)
        return frames.between(tuples, never, tuples, ~never)

    def _owned(self, arc: str, tuples: pl.DataFrame) -> pl.DataFrame:
        """Add to tuples their new `partition`, and the `task` that writes them in the new version.

        Tuples of a source belong to its ingest task, or to the owner of their identity; all others
        belong to the task of their partition.
        """
        plan, kind = self.new.plan, self.new.plan.topology.arcs[arc]
        after = frames.side(tuples, frames.AFTER, list(kind.fields))
        places = Spread(kind, plan.placement.partitions[arc]).places(after)
        tuples = tuples.with_columns(places.alias("partition"))
        scope = plan.topology.scope_of(arc)
        if arc not in plan.topology.sources:
            owner = places
        elif plan.topology.sources[arc].rekey:
            keys = key_encoder(kind).encode(after.select(kind.identity))
            owner = owners(pl.DataFrame({KEY: keys}), len(plan.placement.tasks(scope)))
        else:
            return tuples
        tasks = pl.Series("task", plan.placement.tasks(scope))
        return tuples.with_columns(tasks.gather(owner))


@dataclass(frozen=True)
class FirstReports:
    """First reports as of the last epoch of the old version, by which it has processed all input.

    Args:
        old: What the old version's tasks have reported.
        new: The same, read with the new version's plan.
        last: That epoch.
    """

    old: View
    new: View
    last: int

    def report(self, task: str, *, filled: Mapping[TopicPartition, tuple[int, int]]) -> Report:
        """Return a task's first report; whoever claims the task sets `attempt` and `committed`.

        Args:
            task: The task.
            filled: End positions of what is rewritten on behalf of its scope.
        """
        plan = self.new.plan
        task_id = TaskId.parse(task)
        scope, partition = str(task_id.scope), task_id.partition
        before = self.old.of(task)
        ended_tasks = [
            self.old.of(peer)
            for peer in self._peers(scope)
            if peer not in plan.placement.tasks(scope)
        ]
        existed = task in self._peers(scope)
        counts = dict(before.counts) if existed else {}  # task 0 has them since it ended
        for report in ended_tasks if partition == 0 else ():
            for name, total in report.counts.items():
                counts[name] = counts.get(name, 0) + total
        topics = {plan.deployment.topic(arc) for arc in plan.topology.topics} | {
            s.topic for s in plan.topology.sources.values()
        }
        own_ends = {place: end for place, end in filled.items() if place.partition == partition}
        return replace(
            before,
            task=task,
            done=self.last,
            watermark=self.watermark(scope) if scope in plan.topology.scopes else before.watermark,
            ends={place: end for place, end in before.ends.items() if place.topic in topics}
            | own_ends,
            closes=NEVER,  # the new task determines which windows are open
            resume=self._unread(task)
            | {place: offset for place, offset in before.resume.items() if place.topic in topics},
            counts=counts,
        )

    def watermark(self, scope: str) -> int:
        """Return wm(last) of a scope of boxes, as every reader of the same sources knows it.

        Reports of sources drop watermarks that all readers have passed. Only the readers then know
        that the watermark was higher before.
        """
        plan, view = self.old.plan, self.old
        behind = set(self.new.plan.topology.sources_behind(scope))
        known = [self.new.line(scope).at(self.last)]
        for name in plan.topology.scopes:
            if set(plan.topology.sources_behind(name)) != behind:
                continue
            known += [view.watermark(peer, upto=self.last) for peer in plan.placement.tasks(name)]
        return max(known)

    def _peers(self, scope: str) -> Sequence[str]:
        """Return the tasks of a scope in the old version."""
        existed = ScopeId.parse(scope).is_ingest or scope in self.old.plan.topology.scopes
        return self.old.tasks(scope) if existed else []

    def _unread(self, task: str) -> dict[TopicPartition, int]:
        """Return where a task starts in topics that are new to it: after all old records."""
        old, new = self.old.plan, self.new.plan
        task_id, offsets = TaskId.parse(task), dict[TopicPartition, int]()
        scope = new.topology.scopes.get(str(task_id.scope))
        for arc in scope.inputs if scope is not None else ():
            if arc in old.topology.topics and old.deployment.topic(arc) == new.deployment.topic(
                arc
            ):
                place = TopicPartition(new.deployment.topic(arc), task_id.partition)
                writers = self.old.writers(arc, place.partition)
                offsets[place] = max(self.old.of(w).ends.get(place, (0, 0))[0] for w in writers)
        return offsets

"""From one version of a plan to the next, which has other numbers of partitions (DESIGN 5).

Each step can be taken again by whoever comes after one that died:

1. what runs the old version is told to end;
2. the ingest tasks are taken over, and with the largest epoch that any reported, nothing more comes
   in under the old version;
3. its scopes are run to that epoch;
4. each task of the new version gets a first report as of that epoch, with a copy of what it owns
   of arcs whose partitions change, in new topics;
5. the new version is deployed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import polars as pl

from errata.parts import Actor
from processors.deployed import PlanMismatchError, announce, write_plan
from processors.intake import key_encoder, owners
from processors.plan import Plan
from processors.report import Report
from processors.scopes import INGEST
from processors.spread import Spread
from processors.takeover import Takeover, contents
from processors.taking import KEY
from processors.task import Shared
from schemas import revisions as frames
from topics.cluster import DoubtfulCommitError, FencedError


def next_version(old: Plan, new: Plan) -> Plan:
    """Return a plan as the version after the one that is deployed.

    Args:
        old: As it is deployed.
        new: The same network with other numbers of partitions.

    Raises:
        PlanMismatchError: If a source is among those that can't be moved.
    """
    for name, source in new.sources.items():
        grown = old.topic_partitions[name] != new.topic_partitions[name]
        if grown and not source.rekey:
            raise PlanMismatchError(
                f"topic {source.topic!r} of source {name!r} has {new.topic_partitions[name]} "
                f"partitions, was deployed with {old.topic_partitions[name]}: records of one "
                "identity may come in another partition now; give the source rekey=True under "
                "another name of the network"
            )
        if old.partitions[name] != new.partitions[name] and not source.arc.is_connection_point:
            raise PlanMismatchError(
                f"source {name!r} keeps no history, so that nothing of it can be moved to "
                f"{new.partitions[name]} partitions; give it keep= under another name of the "
                "network"
            )
    version = old.version + 1
    changed = {arc for arc in new.topics if old.partitions[arc] != new.partitions[arc]}
    return replace(
        new,
        version=version,
        deployment=old.deployment,
        generations=old.generations | dict.fromkeys(changed, version),
    )


MOST_LIVES = 10
"""So often it is begun again, if processes of the old version are slow to end."""

log = logging.getLogger("errata")


@dataclass
class Switch:
    """Moves a network from the version that is deployed to the next one.

    Args:
        old: What the tasks of the deployed version share.
        new: What those of the next one do; the same cluster.
        parts: Makes the tasks of the old version's scopes, each with sweepers beside it.
        copied: Filled in: how many tuples of each arc were copied.
        now: Filled in: what it is at.
    """

    old: Shared
    new: Shared
    parts: Callable[[], list[Actor]]
    copied: dict[str, int] = field(default_factory=dict)
    now: str = ""
    _read: dict[str, pl.DataFrame] = field(default_factory=dict)

    def run(self) -> Iterator[bool]:
        """Do all of it, again from the start if others were slow to end."""
        for lives in count(1):
            try:
                yield from self.life()
            except (FencedError, DoubtfulCommitError) as error:
                if lives == MOST_LIVES:
                    raise
                log.warning("%s; the switch is begun again", error)
            else:
                return

    def life(self) -> Generator[bool, None, None]:
        """Do all of it; yields whether there was something to do.

        Raises:
            FencedError: If somebody of the old version was slow to end: start a new life.
            DoubtfulCommitError: If the outcome of a commit is not known: start a new life.
        """
        announce(self.old.cluster, self.new.plan)
        self.now = "reads the reports"
        yield from self._read_reports()
        if not any(map(self._is_moved, self._tasks(self.new.plan))):
            self.now = "stops what comes in"
            yield from self._stop_entry()
            self.now = "processes what has come in"
            yield from self._drain()
        for scope in self._scopes(self.new.plan):
            for task in self.new.plan.tasks(scope):
                self.now = f"moves {task}"
                if not self._is_moved(task):
                    yield from self._move(task)
            self._read.clear()
        self.now = "ends tasks that are no more"
        yield from self._end_others()
        write_plan(self.old.cluster, self.new.plan, first_epoch=self._last_epoch() + 1)

    # ---------------------------------------------------------------- what stands

    def _read_reports(self) -> Iterator[bool]:
        """Read what is reported; transactions that dead processes left open would hold it back."""
        plan = self.old.plan
        for task in self._tasks(plan):
            self.old.cluster.transactions(f"{plan.network}.{task}").close()
            yield True
        for shared in (self.old, self.new):
            end = shared.cluster.end(shared.view.source)
            while not shared.view.has_read_to(end):
                shared.view.poll()
                yield False

    def _is_moved(self, task: str) -> bool:
        return self.new.view.of(task).plan == self.new.plan.fingerprint

    @staticmethod
    def _entry(plan: Plan) -> list[str]:
        return [task for source in plan.sources for task in plan.tasks(f"{INGEST}{source}")]

    @staticmethod
    def _scopes(plan: Plan) -> list[str]:
        return [*(f"{INGEST}{source}" for source in plan.sources), *plan.scopes]

    def _tasks(self, plan: Plan) -> list[str]:
        return [task for scope in self._scopes(plan) for task in plan.tasks(scope)]

    def _last_epoch(self) -> int:
        return max(self.old.view.of(task).done for task in self._entry(self.old.plan))

    def _take_over(self, shared: Shared, task: str, *, outputs: tuple[str, ...] = ()) -> Takeover:
        come, to = self.old.plan.fingerprint, self.new.plan.fingerprint
        return Takeover(shared, task, outputs=outputs, come=come, to=to)

    # ---------------------------------------------------------------- the old version ends

    def _stop_entry(self) -> Iterator[bool]:
        """Take over all ingest tasks, then let none report less than the largest epoch."""
        taken: list[Takeover] = []
        plan = self.old.plan
        try:
            for task in self._entry(plan):
                source = task.removeprefix(INGEST).rpartition(".")[0]
                outputs = () if plan.sources[source].rekey else (source,)
                taken.append(self._take_over(self.old, task, outputs=outputs))
                yield from taken[-1].claim()
            for one in taken:
                yield from one.raise_to(self._last_epoch())
        finally:
            for one in taken:
                one.close()

    def _drain(self) -> Iterator[bool]:
        """Run the scopes of the old version until nothing is left to do."""
        actors, view = self.parts(), self.old.view
        lives = [actor.life() for actor in actors]
        scopes = [task for scope in self.old.plan.scopes for task in self.old.plan.tasks(scope)]
        try:
            while min(map(view.frontier, scopes), default=0) < self._last_epoch():
                yield any([next(life) for life in lives])
        finally:
            for life in lives:
                life.close()
            for actor in actors:
                actor.close()

    # ---------------------------------------------------------------- the new one begins

    def _move(self, task: str) -> Iterator[bool]:
        """Give one task of the new version its copies and its first report."""
        taken = self._take_over(self.new, task)
        try:
            yield from taken.claim()
            copies: dict[str, pl.DataFrame] = {}
            for arc in self._moved_by(task):
                copies[arc] = yield from self._copies(arc, task)
            yield from taken.move(copies, self._first_report(task), to=self.new.plan.fingerprint)
        finally:
            taken.close()

    def _end_others(self) -> Iterator[bool]:
        """See that tasks which the new version does not have never run again."""
        for task in sorted({*self._tasks(self.old.plan)} - {*self._tasks(self.new.plan)}):
            taken = self._take_over(self.old, task)
            try:
                yield from taken.claim()
            finally:
                taken.close()

    def _moved_by(self, task: str) -> list[str]:
        """Return the arcs with history that a task writes, and of which the partitions change."""
        old, new, scope = self.old.plan, self.new.plan, task.rpartition(".")[0]
        return [
            arc
            for arc in new.kept_ms
            if new.scope_of(arc) == scope and new.topic(arc) != old.topic(arc)
        ]

    def _copies(self, arc: str, task: str) -> Generator[bool, None, pl.DataFrame]:
        """Return an insert for each tuple of an arc that a task owns, with its new `partition`."""
        if arc not in self._read:
            found = yield from contents(self.old, arc)
            self.copied[arc] = found.height
            self._read[arc] = self._owned(arc, found)
        return self._read[arc].filter(pl.col("task") == task)

    def _owned(self, arc: str, found: pl.DataFrame) -> pl.DataFrame:
        """Add to tuples their new `partition`, and the `task` that writes them in the new version.

        Those of a source stay with its ingest task, or belong to the owner of their identity; all
        others belong to the task of their partition.
        """
        plan, kind = self.new.plan, self.new.plan.arcs[arc]
        after = frames.side(found, frames.AFTER, list(kind.fields))
        places = Spread(kind, plan.partition_count(arc)).places(after)
        found = found.with_columns(places.alias("partition"))
        scope = plan.scope_of(arc)
        if arc not in plan.sources:
            owner = places
        elif plan.sources[arc].rekey:
            keys = key_encoder(kind).encode(after.select(kind.identity))
            owner = owners(pl.DataFrame({KEY: keys}), len(plan.tasks(scope)))
        else:
            return found
        return found.with_columns(pl.format(f"{scope}.{{}}", owner).alias("task"))

    def _first_report(self, task: str) -> Report:
        """Return what a task of the new version begins with, as of the old one's last epoch."""
        view, plan, last = self.old.view, self.new.plan, self._last_epoch()
        scope, _, partition = task.rpartition(".")
        was, peers = view.of(task), self.old.plan.tasks(scope)
        ended = [view.of(peer) for peer in set(peers) - set(plan.tasks(scope))]
        counts = dict(was.counts)
        for report in ended if partition == "0" else ():
            for name, total in report.counts.items():
                counts[name] = counts.get(name, 0) + total
        watermark = was.watermark
        if scope in plan.scopes:
            watermark = max(view.of(peer).watermark for peer in peers)
            for peer in peers:
                moves = view.moves(peer, since=view.of(peer).done, upto=last)
                watermark = max([watermark, *(moved for _, moved in moves)])
        there = {plan.topic(arc) for arc in plan.topics} | {s.topic for s in plan.sources.values()}
        return replace(
            was,
            task=task,
            done=last,
            watermark=watermark,
            ends={place: end for place, end in was.ends.items() if place.topic in there},
            resume={place: offset for place, offset in was.resume.items() if place.topic in there},
            counts=counts,
        )

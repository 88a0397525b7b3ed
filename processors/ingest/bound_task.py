"""The ingest task of a bound source: pairs its epochs with those of the network upstream.

It writes no revisions: readers read the arc where it is (`arcs.bound`). Its report tells up to
which upstream epoch the arc is read in which epoch, in what partitions it changes there, and where
the watermark rises. Sources that are bound to one network share their pairs: the task of the first
one makes them, those of the others follow. So what upstream is one moment is one moment here, in
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from errata.processors.arcs.arc_topic import NOTHING_YET
from errata.processors.arcs.bound import Upstream
from errata.processors.ingest.stamping_task import StampingTask
from errata.processors.plan.topology import Source, ingest_scope
from errata.processors.tasks.shared import Shared
from errata.processors.wire.report import (
    FOREVER,
    IDLE,
    MOST_PAIRS,
    NEVER,
    PENDING,
)
from errata.processors.wire.task_id import ScopeId
from errata.topics.cluster import TopicPartition

BEFORE_ALL = ((NOTHING_YET, NOTHING_YET),)
"""The pairs of a source of which nothing is read yet."""


@dataclass(frozen=True)
class _Moment:
    """The arc upstream as of an upstream epoch.

    Args:
        upto: The upstream epoch.
        changed: The partitions that have changed since the last pair, or are about to.
        watermark: As a pair has it; `NEVER` if it is not known.
        newest_ms: The smallest watermark of all partitions of its sources; `NEVER` if it is not
            known.
        rebuilt: Whether lost records were written again since the last pair.
        lowered: Whether a watermark was put back since the last pair.
    """

    upto: int
    changed: tuple[int, ...]
    watermark: int
    newest_ms: int
    rebuilt: bool
    lowered: bool


class BoundTask(StampingTask):
    """Follows the network upstream of a bound source.

    Args:
        shared: State shared by the tasks of the process.
        source: The bound source.
        clock_ms: The wall clock.
    """

    def __init__(self, shared: Shared, source: Source, *, clock_ms: Callable[[], int]) -> None:
        super().__init__(shared, source, partition=0, outputs=(), clock_ms=clock_ms)

    def start(self) -> Iterator[bool]:
        """Do nothing: all that it knows is in the reports."""
        self.stamped_ms = self.clock_ms()
        yield True

    @cached_property
    def upstream(self) -> Upstream:
        """The network upstream."""
        return self.shared.upstream(self.arc.name)

    @property
    def peers(self) -> Sequence[Source]:
        """The sources that are bound to the same network, this one among them."""
        return self.upstream.sources

    @property
    def is_leader(self) -> bool:
        """Whether it makes the pairs that the tasks of its peers take over."""
        return self.peers[0].arc.name == self.arc.name

    def pairs_left(self) -> list[tuple[int, int]]:
        """Return the pairs of the task that makes them which it has not taken over yet."""
        leader, done = self.view.of(self._task_of(self.peers[0])), self.view.of(self.name).done
        return [pair for pair in leader.bound if pair[0] > done]

    @property
    def _pairs_told(self) -> tuple[tuple[int, int], ...]:
        return self.report.bound or BEFORE_ALL

    def step(self) -> Iterator[bool]:
        """Pair an epoch with what has become complete upstream, or follow the other tasks."""
        self.view.poll()
        self.upstream.poll()
        is_read = self._pairs_told[-1] > BEFORE_ALL[-1]
        if is_read and self._is_lost and not self.has_lost_records:
            yield from self.commit([], replace(self.report, rebuilt=PENDING))
        elif self.is_leader:
            yield from self._lead()
        else:
            yield from self._follow()

    def _lead(self) -> Iterator[bool]:
        """Stamp what has become complete upstream with an epoch."""
        now, newest = self.clock_ms(), self.view.newest_epoch()
        upto = min(self._complete(source) for source in self.peers)
        is_further, is_awaited = upto > self._pairs_told[-1][1], self._is_awaited(now)
        moments = [self._moment(s, upto) for s in self.peers] if is_further or is_awaited else []
        is_news = is_further and any(map(self._is_news, self.peers, moments))
        if is_news or is_awaited:
            if self._is_due(now) and len(self._pairs_told) < MOST_PAIRS:
                yield from self._take(self._next_epoch(newest), moments[0])
                self.stamped_ms = now
            else:
                yield False
        elif newest > self.report.done:
            yield from self.commit([], replace(self.report, done=newest))
        else:
            yield False

    def _follow(self) -> Iterator[bool]:
        """Take over the next pair of the task that makes them; never get ahead of it."""
        leader = self.view.of(self._task_of(self.peers[0]))
        done = min(self.view.newest_epoch(), leader.done)
        if left := self.pairs_left():
            epoch, upto = left[0]
            if self._complete(self.source) < upto:
                yield False
            else:
                yield from self._take(epoch, self._moment(self.source, upto))
        elif done > self.report.done:
            yield from self.commit([], replace(self.report, done=done))
        else:
            yield False

    def _take(self, epoch: int, moment: _Moment) -> Iterator[bool]:
        """Report a pair, and what it brings."""
        report = self.report
        pairs, floors = report.watermarks, report.floors
        if moment.lowered or moment.watermark != NEVER:
            pairs, floors = self._pairs(epoch, moment.watermark, falls=moment.lowered)
        ends = dict(report.ends)
        ends |= {TopicPartition(self.source.topic, p): (0, epoch) for p in moment.changed}
        source = self.upstream.view.source
        report = replace(
            report,
            done=epoch,
            watermark=moment.newest_ms,
            watermarks=pairs,
            floors=floors,
            bound=self._bound(epoch, moment.upto),
            ends=ends,
            resume={source: self.upstream.view.reader.position(source)},
            rebuilt=epoch if moment.rebuilt else report.rebuilt,
            lowered=epoch if moment.lowered else report.lowered,
        )
        yield from self.commit([], report)

    def _bound(self, epoch: int, upto: int) -> tuple[tuple[int, int], ...]:
        """Return the pairs that readers may still need, with the new one."""
        pairs = self._pairs_told
        passed = self._passed()
        last = max((own for own, _ in pairs if own <= passed), default=NOTHING_YET)
        kept = tuple(pair for pair in pairs if pair[0] >= last)
        return kept if upto <= pairs[-1][1] else (*kept, (epoch, upto))

    def _passed(self) -> int:
        """Return the epoch that all readers of the pairs have passed."""
        tasks = [self.view.frontier(task) for task in self._readers()]
        tasks += [self.view.of(self._task_of(source)).done for source in self.peers[1:]]
        if self.arc.name in self.plan.replayed_points():
            sweeper = ScopeId.of_sweeper(self.arc.name)
            numbers = range(self.plan.placement.partitions[self.arc.name])
            tasks += [self.view.of(str(sweeper.task(number))).done for number in numbers]
        return min(tasks, default=self.report.done)

    # ---------------------------------------------------------------- upstream

    def _task_of(self, source: Source) -> str:
        return self.view.tasks(ingest_scope(source.arc.name))[0]

    def _partitions(self, source: Source) -> range:
        return range(self.upstream.plan.placement.partitions[source.bound_to[1]])

    def _complete(self, source: Source) -> int:
        """Return the last upstream epoch that is complete in all partitions of a source's arc."""
        view, arc = self.upstream.view, source.bound_to[1]
        return min(view.complete(arc, number)[0] for number in self._partitions(source))

    @property
    def _is_lost(self) -> bool:
        """Whether lost records of the arc are still to be written again upstream."""
        view, arc = self.upstream.view, self.source.bound_to[1]
        return any(view.rebuilt(arc, p) == PENDING for p in self._partitions(self.source))

    def _is_news(self, source: Source, moment: _Moment) -> bool:
        """Whether a source has changed up to a moment since it was last read."""
        report = self.view.of(self._task_of(source))
        last = report.watermarks[-1][1] if report.watermarks else NEVER
        rises = moment.watermark not in (NEVER, last)
        return bool(moment.changed) or rises or moment.rebuilt or moment.lowered

    def _moment(self, source: Source, upto: int) -> _Moment:
        """Return what a source's arc is upstream as of an epoch."""
        upstream, arc, last = self.upstream, source.bound_to[1], self._pairs_told[-1][1]
        view, report = upstream.view, self.view.of(self._task_of(source))
        sources = upstream.plan.topology.sources_of[arc]
        numbers, known = self._partitions(source), last > NOTHING_YET
        line, rebuilt = view.watermarks.line(sources), max(view.rebuilt(arc, p) for p in numbers)
        was_lost = report.rebuilt == PENDING
        return _Moment(
            upto,
            tuple(p for p in numbers if upto > last and self._written(arc, p) > last),
            self._watermark(source, line.at(upto) if line.lowered <= upto else NEVER),
            max(view.newest(sources, upto=upto) - source.lateness_ms, NEVER),
            rebuilt=known and rebuilt <= upto and (rebuilt > last or was_lost),
            lowered=known and last < line.lowered <= upto,
        )

    def _written(self, arc: str, partition: int) -> int:
        """Return the last upstream epoch in which a partition of the arc was written."""
        view = self.upstream.view
        place = TopicPartition(self.upstream.plan.deployment.topic(arc), partition)
        writers = view.writers(arc, partition)
        return max(view.of(task).ends.get(place, (0, NEVER))[1] for task in writers)

    def _watermark(self, source: Source, upstream: int) -> int:
        """Return the watermark that a pair has, given the one upstream."""
        if upstream == FOREVER:
            return FOREVER
        plan, arc = self.upstream.plan, source.bound_to[1]
        tasks = plan.placement.ingest_tasks(plan.topology.sources_of[arc])
        pairs = [self.upstream.view.of(task).watermarks for task in tasks]
        if all(own and own[-1][1] == IDLE for own in pairs):
            return IDLE
        if upstream == NEVER:
            return NEVER
        return max(upstream - source.lateness_ms, NEVER)

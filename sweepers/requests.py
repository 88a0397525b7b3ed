"""The replay requests that a sweeper has to answer: checked, bounded, and in a fair order.

Anybody who may write to the topic of requests may write anything there. A request counts if a task
of the plan can have sent it: it names the task's own reply partition, and ranges of the arc's
fields. All others are ignored, counted and logged. The tasks take turns, and each has room for so
many requests only, so that a flood in the name of one delays no other, and fills no memory.
A request that was dropped is sent again by its task.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import polars as pl

from errata.processors.arcs.foreign import ForeignRecords
from errata.processors.tasks.shared import Shared
from errata.processors.wire import replay
from errata.processors.wire.replay import BlockError, Request, unpack
from errata.schemas.arc import Arc
from errata.topics.cluster import TopicPartition

MOST_PENDING = 1_000
"""Pending requests of one task; above it the oldest are dropped."""
MOST_BYTES = 16_000_000
"""Size of the ranges in the pending requests of one task."""
MOST_EARLY = 100
"""Pending requests of one task for an attempt or epoch that nobody has reported yet."""
EXPIRE_S = 120.0
"""A request that could not be answered for so long is dropped."""
IGNORED = (
    "%(count)s requests for arc ARC are ignored; the last, partition %(partition)d and offset "
    "%(offset)d: %(what)s; check who may write to topic %(topic)s"
)


@dataclass(frozen=True)
class PendingRequest:
    """A request that is not answered yet, and when it was received."""

    request: Request
    ranges: pl.DataFrame
    received_s: float

    @property
    def key(self) -> tuple[int, int, int]:
        """What tells it from other requests of its task; a request that is sent again keeps it."""
        return self.request.requester.attempt, self.request.requester.epoch, self.request.number


Queue = dict[tuple[int, int, int], PendingRequest]


@dataclass
class _OfTask:
    """The pending requests of one task, the oldest first.

    Args:
        due: Those that may be answered.
        early: Those of an attempt, or for an epoch, that no report has named yet.
        bytes: Size of the ranges in `due`.
    """

    due: Queue = field(default_factory=dict)
    early: Queue = field(default_factory=dict)
    bytes: int = 0

    def add(self, pending: PendingRequest) -> None:
        self.drop(pending)
        self.due[pending.key] = pending
        self.bytes += len(pending.request.ranges)
        while len(self.due) > 1 and (len(self.due) > MOST_PENDING or self.bytes > MOST_BYTES):
            self.drop(next(iter(self.due.values())))

    def drop(self, pending: PendingRequest) -> None:
        dropped = self.due.pop(pending.key, None)
        if dropped is not None:
            self.bytes -= len(dropped.request.ranges)


class Requests:
    """The pending requests of one sweeper.

    Args:
        shared: State shared by the actors of the process.
        arc: The connection point.
        partition: Its partition.
        clock_s: Clock in s.
    """

    def __init__(
        self,
        shared: Shared,
        arc: Arc,
        *,
        partition: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared, self._arc, self._partition, self._clock_s = shared, arc, partition, clock_s
        plan = shared.plan
        self._reply_places = {
            task: TopicPartition(plan.deployment.replies(scope), number)
            for name, scope in plan.topology.scopes.items()
            for number, task in enumerate(plan.placement.tasks(name))
        }
        self._tasks = {task: _OfTask() for task in self._reply_places}
        self._place = TopicPartition(plan.deployment.requests(arc.name), partition)
        self._offset = -1
        self.foreign = ForeignRecords(IGNORED.replace("ARC", repr(arc.name)), clock_s=clock_s)
        """Notes the records that no task can have sent."""

    def __len__(self) -> int:
        return sum(len(of_task.due) + len(of_task.early) for of_task in self._tasks.values())

    def receive(self, value: bytes | None, *, offset: int = -1) -> None:
        """Take a record of the topic: add the request, drop it, or ignore it."""
        self._offset = offset
        request = replay.decode_request(value)
        if request is None:
            return self._ignore("a record that is no request")
        if request.plan != self._shared.plan.fingerprint:
            return None  # a task with another plan has other frontiers
        task = request.requester.task
        fault = self._fault(request)
        if fault is not None:
            return self._ignore(fault)
        if request.requester.attempt < self._shared.view.of(task).attempt:
            return None  # fenced
        of_task, is_early = self._tasks[task], self._is_early(request)
        if is_early and len(of_task.early) >= MOST_EARLY:
            return None
        try:
            ranges = unpack(request.ranges)
        except BlockError as error:
            return self._ignore(f"a request of {task}: {error}")
        fault = self._fault_of(ranges)
        if fault is not None:
            return self._ignore(f"a request of {task} with ranges {fault}")
        pending = PendingRequest(request, ranges, self._clock_s())
        if is_early:
            of_task.early[pending.key] = pending
        else:
            of_task.add(pending)
        return None

    def due(self) -> Iterator[PendingRequest]:
        """Yield the requests that may be answered by now, one of each task in turn.

        Requests that have expired, and those of fenced attempts, are dropped.
        """
        queues = deque(self._due_of(task) for task in self._tasks)
        while queues:
            queue = queues.popleft()
            for pending in islice(queue, 1):
                yield pending
                queues.append(queue)

    def done(self, pending: PendingRequest) -> None:
        """Drop a request that is answered."""
        self._tasks[pending.request.requester.task].drop(pending)

    def _due_of(self, task: str) -> Iterator[PendingRequest]:
        of_task = self._tasks[task]
        for pending in list(of_task.early.values()):
            if self._is_over(pending):
                del of_task.early[pending.key]
            elif not self._is_early(pending.request):
                of_task.add(of_task.early.pop(pending.key))
        for pending in list(of_task.due.values()):
            if self._is_over(pending):
                of_task.drop(pending)
            else:
                yield pending

    def _is_early(self, request: Request) -> bool:
        """Whether a request is of an attempt, or for an epoch, that no report has named yet."""
        view = self._shared.view
        attempt = view.of(request.requester.task).attempt
        return request.requester.attempt > attempt or request.as_of > view.newest_epoch()

    def _is_over(self, pending: PendingRequest) -> bool:
        """Whether a request has expired, or is of a fenced attempt."""
        requester = pending.request.requester
        is_fenced = requester.attempt < self._shared.view.of(requester.task).attempt
        return is_fenced or self._clock_s() - pending.received_s > EXPIRE_S

    def _fault(self, request: Request) -> str | None:
        """Return why no task of the plan can have sent a request; None if one can."""
        task = request.requester.task
        place = self._reply_places.get(task)
        if place is None:
            return f"a request of {task[:200]!r}, which is no task of this network"
        if (request.reply_topic, request.reply_partition) != place:
            return f"a request of {task} that names another place for the reply than its own"
        if request.partition != self._partition:
            return f"a request of {task} for partition {request.partition}"
        return None

    def _fault_of(self, ranges: pl.DataFrame) -> str | None:
        """Return what is wrong with the ranges of a request; None if nothing is."""
        types = {name: kind.dtype for name, kind in self._arc.fields.items()}
        types |= {"from_ms": pl.Int64, "to_ms": pl.Int64}
        for name, dtype in ranges.schema.items():
            if types.get(name) != dtype:
                return f"of a column {name[:200]!r} of type {dtype}"
        for name in ("from_ms", "to_ms"):
            if name not in ranges.columns or ranges[name].null_count():
                return f"that lack {name!r}"
        return None

    def _ignore(self, what: str) -> None:
        self._shared.meter.ignored[self._arc.name] += 1
        self.foreign.add(self._place, self._offset, what)

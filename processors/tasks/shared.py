"""State that the tasks of one process share: cluster, plan, view, codecs made once, and a meter.

The meter counts for the process's metrics, per batch, never per record. The totals in reports are
exactly once and outlive the process; the meter starts at 0 with it.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec, ArcInput
from errata.processors.arcs.bound import BoundInput, Upstream
from errata.processors.arcs.foreign import ForeignRecords
from errata.processors.arcs.partitioner import Emission
from errata.processors.declare.declarations import Sink
from errata.processors.envelopes.outgoing import Outgoing
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.reports.progress_view import View
from errata.processors.tasks.handover import Handover
from errata.processors.tasks.on_error import DEAD_LETTER
from errata.processors.wire.report import COUNTED, INTERVAL_MS
from errata.processors.wire.task_id import TaskId
from errata.schemas.revisions import OPS
from errata.topics.cluster import Cluster, Records
from errata.topics.registry import Registry

AnyInput = ArcInput | BoundInput

_LOTS = 2**20
"""How many numbers there are for the processes that begin at the same time."""

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Inclusive upper bounds of the buckets of `Durations`; one more bucket has no bound."""


@dataclass
class Durations:
    """A histogram of durations.

    Args:
        buckets: Number of durations by bound of `BOUNDS_S`; the last bucket is beyond them all.
        total_s: Sum of all durations.
    """

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Add one duration."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds


class Meter:
    """Running totals of one process.

    Example:
        >>> meter = Meter()
        >>> meter.answered["trades"] += 1
        >>> meter.committed("prices.0", seconds=0.02)
        >>> meter.commits["prices"].total_s
        0.02
    """

    def __init__(self) -> None:
        self.revisions: Counter[tuple[str, str]] = Counter()
        """Committed revisions, by arc and op."""
        self.epochs: Counter[str] = Counter()
        """Epochs in which something was written, by scope."""
        self.commits: dict[str, Durations] = {}
        """Commits by scope."""
        self.doubtful: Counter[str] = Counter()
        """Commits of unknown outcome and fencings by a timeout, by scope: each a new attempt."""
        self.answered: Counter[str] = Counter()
        """Answered replay requests, by connection point."""
        self.refused: Counter[str] = Counter()
        """Replay requests refused because history is gone, by connection point."""
        self.ignored: Counter[str] = Counter()
        """Records in the topics of replay requests that no task can have sent, by arc."""
        self.tuples: Counter[str] = Counter()
        """Tuples in replay replies, by connection point."""

    def wrote(self, task: str, emissions: Sequence[Emission]) -> None:
        """Count the revisions that a task has committed."""
        for emission in emissions:
            counts = np.bincount(emission.revisions["op"].to_numpy(), minlength=len(OPS))
            for op, count in zip(OPS, counts.tolist(), strict=True):
                self.revisions[emission.arc, op] += count
        self.epochs[scope_of(task)] += len({emission.epoch for emission in emissions})

    def committed(self, task: str, *, seconds: float) -> None:
        """Count one commit of a task."""
        self.commits.setdefault(scope_of(task), Durations()).add(seconds)


def scope_of(task: str) -> str:
    """Return the scope of a task.

    Example:
        >>> scope_of("ingest.trades.3")
        'ingest.trades'
    """
    return str(TaskId.parse(task).scope)


def at_once(call: Callable[[], Any]) -> Generator[bool, None, Any]:
    """Run a call that waits for the brokers, and wait with it: nothing is yielded."""
    yield from ()
    return call()


@dataclass
class Shared:
    """State that the tasks of one process share.

    Args:
        cluster: Holds the topics.
        plan: The deployed plan.
        registry: Holds the schemas.
        view: Progress, as known to this process.
        compaction_lag_ms: How long a superseded record stays in a connection point's topic.
        on_error: What happens to tuples that a box refuses: ``dead-letter`` or ``stop``.
        interval_ms: How often an ingest task stamps an epoch, at least `INTERVAL_MS`.
        hands_over: Whether tasks hand what they commit to the readers of the process. Where nothing
            is handed any more, these begin to read only after a while (`feeds.HANDED_S`).
        run: Runs a call that waits for the brokers. It yields while other tasks may work, and
            returns what the call returns.
    """

    cluster: Cluster
    plan: CompiledPlan
    registry: Registry
    view: View
    compaction_lag_ms: int
    on_error: str = DEAD_LETTER
    interval_ms: int = INTERVAL_MS
    hands_over: bool = False
    run: Callable[[Callable[[], Any]], Generator[bool, None, Any]] = at_once
    codecs: dict[str, ArcCodec] = field(default_factory=dict)
    sinks: dict[Sink, Outgoing] = field(default_factory=dict)
    upstreams: dict[str, Upstream] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    process: int = 0
    """Its number, as in `Report.process`; 0 before its first attempt."""
    stamped: int = -1
    """The largest epoch that an ingest task of the process has stamped, committed or not."""

    @cached_property
    def handover(self) -> Handover:
        """What hands the revisions that tasks commit to the readers of the process."""
        return Handover(self)

    def number(self) -> int:
        """Return the number of the process, larger than those of all that have claimed attempts.

        The reports that were written before its first attempt must have been read. Of processes
        that begin at the same time chance decides which one has the larger number.
        """
        if not self.process:
            known = (report.process for report in self.view.reports.values())
            newest = max((number for number in known if number < COUNTED), default=0)
            self.process = (newest // _LOTS + 1) * _LOTS + secrets.randbelow(_LOTS)
        return self.process

    def codec(self, arc: str) -> ArcCodec:
        """Return the codec of an arc."""
        if arc not in self.codecs:
            self.codecs[arc] = ArcCodec(
                self.plan.topology.arcs[arc], self.plan.deployment.own_topic(arc), self.registry
            )
        return self.codecs[arc]

    def upstream(self, source: str) -> Upstream:
        """Return the network upstream of a bound source."""
        topology = self.plan.topology
        network = topology.sources[source].bound_to[0]
        if network not in self.upstreams:
            sources = topology.upstreams[network]
            self.upstreams[network] = Upstream(self.cluster, self.registry, sources)
        return self.upstreams[network]

    def input(
        self,
        arc: str,
        partition: int,
        *,
        done: int,
        resume: int,
        watch: Callable[[Records, pl.DataFrame], None] | None = None,
        foreign: ForeignRecords | None = None,
        is_awaited: bool = True,
    ) -> AnyInput:
        """Return one partition of an arc as input of a reader.

        Args:
            arc: The arc.
            partition: The partition.
            done: As of `ArcInput`.
            resume: As of `ArcInput`.
            watch: As of `ArcInput`.
            foreign: As of `ArcInput`.
            is_awaited: As of `BoundInput`.
        """
        if arc not in self.plan.topology.bound:
            return ArcInput(
                self.view, self.codec(arc), partition, done=done, resume=resume, watch=watch,
                foreign=foreign,
            )  # fmt: skip
        kind = self.plan.topology.arcs[arc]
        return BoundInput(
            self.view, self.upstream(arc), kind, partition, done=done, resume=resume, watch=watch,
            foreign=foreign, is_awaited=is_awaited, lag_ms=self.compaction_lag_ms,
        )  # fmt: skip

    def outgoing(self, sink: Sink) -> Outgoing:
        """Return the encoder of a sink's records."""
        if sink not in self.sinks:
            arc = self.plan.topology.arcs[sink.arc]
            self.sinks[sink] = Outgoing(arc, sink.topic, sink.envelope, sink.format, self.registry)
        return self.sinks[sink]

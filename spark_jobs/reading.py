"""Reads an arc's topic on executors, without any Spark connector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from time import monotonic

import polars as pl

from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.plan.plan import Plan
from errata.processors.reports.progress_view import View, believed
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.spark_jobs.connected import connected
from errata.spark_jobs.registered import Recorder, Registered
from errata.topics.cluster import Cluster, ClusterError, TopicPartition
from errata.topics.registry import Registry

WAIT_S = 0.05
LIMIT_S = 60.0
"""How long no record may arrive before a log's end: an open transaction may hold it back."""
_ROWS = 500_000
"""Number of revisions to buffer before only the last one of each identity is kept."""


@dataclass(frozen=True)
class Part:
    """A partition of an arc, to be read.

    Args:
        arc: The arc.
        partition: Its number.
        end: Where its log ends.
        committed: By task that writes there, and attempt: the last epoch to be believed.
    """

    arc: str
    partition: int
    end: int
    committed: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Arcs:
    """The arcs of a deployed plan, for any process: pickled to executors.

    Args:
        plan: The plan, as deployed.
        kafka: librdkafka settings.
        ids: Schema ids by subject.
    """

    plan: Plan
    kafka: Mapping[str, str | int]
    ids: Mapping[str, int]

    @classmethod
    def of(cls, plan: Plan, kafka: Mapping[str, str | int], registry: Registry) -> Arcs:
        """Return all arcs of a plan that have topics, with their schemas looked up."""
        recorder = Recorder(registry)
        recorder.look_up(plan, plan.topics)
        return cls(plan, kafka, recorder.ids)

    def parts(self, view: View, arc: str) -> list[Part]:
        """Return the partitions of an arc, up to the current ends of their logs."""
        topic, found = self.plan.topic(arc), []
        for number in range(self.plan.partition_count(arc)):
            committed = view.committed(view.writers(arc, number))
            end = view.cluster.end(TopicPartition(topic, number))
            found.append(Part(arc, number, end, committed))
        return found

    def content(self, part: Part, epoch: int) -> pl.DataFrame:
        """Return the tuples that a partition holds as of an epoch; runs on an executor.

        Args:
            part: The partition.
            epoch: Believed revisions of epochs up to this one count.
        """
        arc = self.plan.arcs[part.arc]
        codec = ArcCodec(arc, self.plan.topic(part.arc), Registered(self.ids))
        found = revisions(connected(self.kafka), codec, part.partition, (0, part.end))
        upto = pl.col("epoch") <= epoch
        believable = (believed(frame, part.committed).filter(upto) for frame in found)
        return content(chain([codec.empty], believable), arc)


def content(revisions: Iterable[pl.DataFrame], arc: Arc) -> pl.DataFrame:
    """Return the tuples that remain after an arc's revisions; an exact copy counts once.

    Memory is at most a few times the size of the result, however often it was revised.

    Args:
        revisions: In the order of the log, at least one frame.
        arc: The arc.
    """
    last, later = list[pl.DataFrame](), list[pl.DataFrame]()
    for frame in revisions:
        later.append(frame)
        if _height(later) > max(_ROWS, _height(last)):
            last, later = [frames.last(pl.concat([*last, *later]), arc.identity)], []
    return frames.fold(pl.concat([*last, *later]), arc.identity, list(arc.fields))


def _height(some: list[pl.DataFrame]) -> int:
    return sum(frame.height for frame in some)


def revisions(
    cluster: Cluster, codec: ArcCodec, partition: int, offsets: tuple[int, int]
) -> Iterator[pl.DataFrame]:
    """Yield the revisions of a range of a partition, whether a report covers them or not.

    Yields empty frames while no record arrives.

    Args:
        cluster: Where the arc is.
        codec: How to read it.
        partition: Of the arc.
        offsets: Half-open.

    Raises:
        ClusterError: If the end of the stretch can't be read.
    """
    place, (first, end) = TopicPartition(codec.topic, partition), offsets
    if first >= end:
        return
    reader = cluster.reader({place: first})
    try:
        reached, deadline = first, monotonic() + LIMIT_S
        while (position := reader.position(place)) < end:
            if position > reached:
                reached, deadline = position, monotonic() + LIMIT_S
            elif monotonic() > deadline:
                raise ClusterError(
                    f"partition {partition} of topic '{codec.topic}' was read to offset "
                    f"{position}, but its end {end} was not reached, and nothing has come for "
                    f"{LIMIT_S:g} s; a transaction may be open: see kafka-transactions"
                )
            polled = reader.poll(timeout_s=WAIT_S)
            for records in polled:
                yield codec.decode(records).filter(pl.col("offset") < end)
            if not polled:
                yield codec.empty
    finally:
        reader.close()

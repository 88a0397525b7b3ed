"""Reads an arc while its network runs: its content after an epoch, or its revisions.

Both are complete and committed: no part of an epoch is ever returned.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from time import monotonic, sleep
from typing import Any

import polars as pl
import pyarrow as pa

from errata.client import rows
from errata.deploy.deployment import DeployedNetwork, as_it_runs, open_network
from errata.observe.diagnosis import holder
from errata.observe.network_progress import Progress
from errata.processors.arcs.arc_topic import ArcCodec, ArcInput
from errata.processors.boxes.matching import among, with_identities
from errata.processors.declare.network import Network, Stream
from errata.processors.reports.progress_view import settled
from errata.processors.wire.report import FOREVER, INTERVAL_MS, NEVER
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.arrow import tuple_batch
from errata.schemas.errors import ErrataError
from errata.schemas.fields import physical
from errata.settings.place import overlaid, read_settings
from errata.spark_jobs.as_of import Reports
from errata.spark_jobs.executor import Recorder
from errata.spark_jobs.reading import NOTHING, PAUSE_S, ArcProgress, ArcReader, EpochAheadError
from errata.topics.client import Settings
from errata.topics.cluster import Cluster, TopicPartition

WAIT_S = 5.0
"""How long a reader waits for an epoch that is not complete yet."""
Moment = str | datetime | int
"""An ISO time, a `datetime` (UTC without a zone), or ms since 1970."""
CLOCKS_MS = 60_000
"""How far the clocks of brokers and of ingest may differ; epochs are found by record times."""
_PAUSE_S = 0.02


class UnknownFieldError(ErrataError):
    """An arc has no field of a name."""


def require_fields(arc: Arc, names: Iterable[str]) -> None:
    """Check that an arc has visible fields.

    Raises:
        UnknownFieldError: If it has not.
    """
    for name in names:
        if name not in arc.visible:
            raise UnknownFieldError(
                f"arc {arc.name!r} has no field {name!r}; it has: {', '.join(arc.visible)}"
            )


def moment_ms(moment: Moment) -> int:
    """Return a time in ms since 1970.

    Example:
        >>> moment_ms("1970-01-01T01:00+01:00"), moment_ms(datetime(1970, 1, 1)), moment_ms(5)
        (0, 0, 5)
    """
    if isinstance(moment, int):
        return moment
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@dataclass(frozen=True, eq=False)
class Table:
    """The content of an arc after an epoch, without hidden fields, by identity.

    Args:
        kind: The arc, with its fields.
        epoch: The epoch; -1 before the first.
        watermark_ms: Event time up to which the arc's sources had been seen by then; None if they
            had not been, have ended, or no report holds it.
        content: The tuples, with physical types.
    """

    kind: Arc
    epoch: int
    watermark_ms: int | None
    content: pl.DataFrame

    @property
    def arc(self) -> str:
        """Name of the arc."""
        return self.kind.name

    def __len__(self) -> int:
        """Return the number of tuples."""
        return self.content.height

    @cached_property
    def tuples(self) -> list[dict[str, Any]]:
        """The tuples as dicts of plain values: times are ms (or us) since 1970."""
        return rows.tuples(self.kind, self.content)

    def only(
        self, where: Mapping[str, Any], *, since: Moment | None = None, until: Moment | None = None
    ) -> Table:
        """Return the table with some of its tuples; see `read` for the choices.

        Raises:
            UnknownFieldError: If it has no such field.
        """
        kept = pl.repeat(True, self.content.height, dtype=pl.Boolean, eager=True)
        if where:
            require_fields(self.kind, where)
            typed = self.to_polars()
            for name, value in where.items():
                column = typed[name]
                kept &= column.is_null() if value is None else (column == value).fill_null(False)
        times = self.kind.event_times(self.content)
        if since is not None:
            kept &= (times >= moment_ms(since)).fill_null(False)
        if until is not None:
            kept &= (times < moment_ms(until)).fill_null(False)
        return replace(self, content=self.content.filter(kept))

    def to_arrow(self) -> pa.Table:
        """Return the tuples with logical types: decimals, times with their zone, dates."""
        return pa.Table.from_batches([tuple_batch(self.kind, self.content)])

    def to_polars(self) -> pl.DataFrame:
        """Return the tuples as a frame of Polars with logical types."""
        return pl.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def to_pandas(self) -> Any:
        """Return the tuples as a frame of pandas, which needs to be installed."""
        return self.to_arrow().to_pandas()


def read(
    arc: Stream,
    as_of: int | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    settings: Settings | None = None,
    wait_s: float = WAIT_S,
) -> Table:
    """Return the content of an arc of a deployed network after an epoch.

    The epoch is complete in all partitions, and data that no task has reported is ignored, so that
    a part of an epoch is never seen (Timely Dataflow's frontiers). Arcs that are read as of one
    epoch are consistent: ``now = errata.read(paid)``, then ``errata.read(got, as_of=now.epoch)``.
    Each call connects to the cluster and reads the arc's whole topic; `errata tail --complete`
    follows it.

    Args:
        arc: The arc; it needs a topic.
        as_of: The epoch; None for the last one that is known to be complete. That can be an earlier
            epoch than in the last call: after a task has got new input, only its next report shows
            how far it had come.
        where: Only tuples with these values of some fields, as `Table.to_polars` has them.
        since: Only tuples of this event time or later: an ISO time, a `datetime` (UTC without a
            zone), or ms since 1970.
        until: Only tuples of an earlier event time than this.
        settings: Settings by their names in `errata.toml`, as ``kafka.bootstrap.servers``; they
            override that file and the environment.
        wait_s: How long to wait for `as_of` to be complete, in seconds.

    Raises:
        UnknownNameError: If the arc has no topic; the message lists those that have one.
        NotDeployedError: If the network doesn't run there.
        PlanMismatchError: If another network of that name runs there.
        EpochAheadError: If the epoch is not complete in time; the message names the task that holds
            it back.
        HistoryLostError: If tuples of that epoch may have been removed by compaction, by retention
            or by a new version of the plan. A returned table is complete.
    """
    with opened(network_of(arc), settings) as deployment:
        name = deployment.require_topic(arc.name)
        table = table_of(deployment, name, as_of=as_of, wait_s=wait_s)
    return table.only(where or {}, since=since, until=until)


class NoArcError(ErrataError):
    """Something else was given where the arc of a network is needed."""


def network_of(arc: Stream) -> Network:
    """Return the network of an arc.

    Raises:
        NoArcError: If it is none.
    """
    if not isinstance(arc, Stream):
        raise NoArcError(
            "needs an arc of a network, as net.source(...) and its boxes return them; found "
            f"{arc!r}: import it from the network's file, as `from tape import totals`"
        )
    return arc.network


@contextmanager
def opened(network: Network, settings: Settings | None) -> Iterator[DeployedNetwork]:
    """Yield a network as it is deployed on the cluster that the settings name."""
    place = read_settings(overlaid(os.environ, settings or {}))
    with as_it_runs(open_network(network, place)) as deployment:
        yield deployment


def table_of(
    deployment: DeployedNetwork,
    arc: str,
    *,
    as_of: int | None,
    wait_s: float,
    having: pl.DataFrame | None = None,
) -> Table:
    """Return the content of an arc that has a topic, over an existing connection: see `read`.

    Args:
        deployment: The network.
        arc: Name of the arc.
        as_of: The epoch; None for the last one that is known to be complete.
        wait_s: How long to wait for it, in seconds.
        having: Only tuples with these values of some fields of their identity.
    """
    reader = _reader(deployment, arc)
    view = Reports(deployment.cluster, plan=deployment.plan)
    view.catch_up()
    with closing(ArcProgress(reader, view)) as progress:
        epoch, ends = _complete(progress, as_of, wait_s=wait_s)
        tuples = _content(progress, epoch, ends)
        if having is not None:
            tuples = among(tuples, having, {name: name for name in having.columns})
        known = tuples.sort(reader.arc.identity, nulls_last=True)
        return Table(reader.arc, epoch, _watermark(view, arc, epoch), known)


@dataclass(frozen=True)
class _Reader(ArcReader):
    """An arc that is read over an existing connection."""

    connection: Cluster

    def cluster(self) -> Cluster:
        return self.connection


def _reader(deployment: DeployedNetwork, arc: str) -> _Reader:
    deployment.require_order([arc])
    plan, recorder = deployment.plan, Recorder(deployment.registry)
    recorder.look_up(plan, [arc])
    return _Reader(
        plan.topology.arcs[arc],
        plan.deployment.topic(arc),
        plan.placement.partitions[arc],
        deployment.kafka,
        recorder.ids,
        *deployment.retention(arc),
        deployment.cluster,
    )


def _complete(progress: ArcProgress, as_of: int | None, *, wait_s: float) -> tuple[int, list[int]]:
    """Return the epoch to read, and for each partition the offset after its last record."""
    deadline = monotonic() + wait_s
    while (complete := progress.complete())[0] < (NOTHING if as_of is None else as_of):
        if monotonic() > deadline:
            view, arc = progress.view, progress.reader.arc.name
            writers = {task: None for p in progress.partitions for task in progress.writers(p)}
            behind = min(writers, key=view.frontier)
            raise EpochAheadError(
                f"arc {arc!r} is complete up to epoch {complete[0]} only, but as_of {as_of} was "
                f"requested, and after {wait_s:g} s {holder(view, behind)} still holds it back; "
                "wait longer (wait_s=), request an earlier epoch, or see `errata status`"
            )
        time.sleep(PAUSE_S)
        progress.view.poll()
    return (complete[0] if as_of is None else as_of), complete[1]


def _content(progress: ArcProgress, epoch: int, ends: list[int]) -> pl.DataFrame:
    reader, starts = progress.reader, [0] * len(ends)
    progress.require_whole(epoch)
    if epoch > NOTHING:
        progress.require_kept(epoch)
    pieces = progress.pieces(NOTHING, epoch, starts=starts, ends=ends, intact=epoch)
    nothing = pl.DataFrame(schema=physical(reader.arc.fields))
    return pl.concat([nothing, *map(reader.content, pieces)])


def _watermark(view: Reports, arc: str, epoch: int) -> int | None:
    """Return wm(epoch), from the reports of the arc's scope or of a scope over the same sources."""
    plan = view.plan
    own_scope, sources = plan.topology.scope_of(arc), set(plan.topology.sources_of[arc])
    for scope in plan.topology.scopes:
        if scope == own_scope or set(plan.topology.sources_behind(scope)) == sources:
            watermark_ms = view.watermark_at(scope, epoch)
            is_known = watermark_ms is not None and NEVER < watermark_ms < FOREVER
            return watermark_ms if is_known else None
    return None


class Tail:
    """Reads all partitions of an arc, and returns the epochs that are complete in all of them.

    Args:
        progress: The reports of the tasks.
        codec: The codec of the arc.
        from_beginning: Whether to begin with the content of the topic instead of new epochs.
        since_ms: Begin with the epochs after this time, in ms since 1970, instead.
    """

    def __init__(
        self,
        progress: Progress,
        codec: ArcCodec,
        *,
        from_beginning: bool = False,
        since_ms: int | None = None,
    ) -> None:
        self.progress = progress
        arc, places = codec.arc.name, progress.plan.placement.partitions[codec.arc.name]
        done, starts = -1, [0] * places
        if since_ms is not None:
            done, at = since_ms // INTERVAL_MS, since_ms - CLOCKS_MS
            topics = [TopicPartition(codec.topic, partition) for partition in range(places)]
            starts = [progress.cluster.offset_at(place, at) for place in topics]
        elif not from_beginning:
            done, starts = settled(progress, arc)
        self.inputs = [
            ArcInput(progress, codec, partition, done=done, resume=start)
            for partition, start in enumerate(starts)
        ]

    def step(self) -> pl.DataFrame | None:
        """Return the revisions that have become complete; None if nothing has changed.

        They are whole epochs in order, with deletes first in each epoch: a tuple that moves between
        partitions is deleted before it is inserted, so that the revisions can be folded one by one.
        """
        self.progress.poll()
        return self.advance()

    def advance(self) -> pl.DataFrame | None:
        """Do the same by the reports that were read before."""
        read = sum(source.poll() for source in self.inputs)
        before = self.done
        frontier = self.frontier()
        if frontier <= before:
            return self.inputs[0].codec.empty if read else None
        taken = [
            source.take(frontier).with_columns(pl.lit(source.place.partition).alias("partition"))
            for source in self.inputs
        ]
        for source in self.inputs:
            source.drop(frontier)
        is_kept = pl.col("op") != frames.DELETE
        return pl.concat(taken).sort("epoch", is_kept, "partition", "offset", maintain_order=True)

    @property
    def done(self) -> int:
        """The last epoch that has been returned."""
        return self.inputs[0].done

    def frontier(self) -> int:
        """Return the last epoch that is complete in all partitions."""
        return min(source.frontier() for source in self.inputs)

    def upto_now(self) -> Iterator[pl.DataFrame]:
        """Yield the revisions that are complete now, then end."""
        places = [self.progress.complete(s.codec.arc.name, s.place.partition) for s in self.inputs]
        goal = min(epoch for epoch, _ in places)
        while self.done < goal:
            revisions = self.step()
            if revisions is None:
                sleep(_PAUSE_S)
            elif revisions.height:
                yield revisions

    def until(self, stop: Callable[[], bool]) -> Iterator[pl.DataFrame]:
        """Yield revisions as they become complete, until `stop` returns true."""
        while not stop():
            revisions = self.step()
            if revisions is None:
                sleep(_PAUSE_S)
            elif revisions.height:
                yield revisions

    def close(self) -> None:
        """Stop reading."""
        for source in self.inputs:
            source.close()


@dataclass(frozen=True)
class Content:
    """The content of an arc's topic.

    Args:
        last: The last revision of each identity, with task and epoch, also if it is a delete.
        read: How many revisions were read.
    """

    last: pl.DataFrame
    read: int

    def tuples(self, arc: Arc) -> pl.DataFrame:
        """Return the current tuples."""
        return frames.entering(self.last, list(arc.fields))


def content_of(
    progress: Progress, codec: ArcCodec, *, identities: pl.DataFrame | None = None
) -> Content:
    """Read an arc's topic up to now.

    Args:
        progress: The reports of the tasks.
        codec: The codec of the arc.
        identities: The identities to read; None for all.
    """
    identity = list(codec.arc.identity)
    last, read = codec.empty.with_columns(pl.lit(0, pl.Int32).alias("partition")), 0
    reading = Tail(progress, codec, from_beginning=True)
    try:
        for revisions in reading.upto_now():
            read += revisions.height
            if identities is not None:
                revisions = with_identities(codec.arc, revisions, identities)
            last = frames.last(pl.concat([last, revisions.select(last.columns)]), identity)
    finally:
        reading.close()
    return Content(last, read)

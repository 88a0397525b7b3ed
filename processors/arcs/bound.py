"""Reads the arc of another network where it is, as a source of this one: nothing is copied.

The other network is *upstream*. Its tasks write the arc and report about it; readers here follow
these reports, too. What is upstream one epoch, in all partitions, is one epoch here: the ingest
task of the bound source pairs epochs with upstream ones (`Report.bound`), and readers read by them.
Several upstream epochs may be one here; then each tuple changes once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from time import monotonic

import numpy as np
import polars as pl

from errata.processors.arcs.arc_topic import NOTHING_YET, ArcCodec, ArcInput
from errata.processors.arcs.foreign import ForeignRecords
from errata.processors.plan.deployed import NotDeployedError, read_plan
from errata.processors.plan.plan import Plan
from errata.processors.plan.topology import Source
from errata.processors.reports.progress_view import View
from errata.processors.wire.report import INTERVAL_MS, NEVER
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.topics.cluster import Cluster, LostOffsetError, Records, TopicPartition
from errata.topics.registry import Registry

LOOKED_S = 1.0
"""How often the plan is read again while a new version of it is announced."""


class UpstreamError(ErrataError):
    """The network upstream no longer has what a bound source reads."""


def upstream_plan(cluster: Cluster, network: str, *, source: str) -> Plan:
    """Return the plan of the network that a source is bound to.

    Raises:
        NotDeployedError: If it is not deployed.
    """
    deployed = read_plan(cluster, network)
    if deployed is None:
        raise NotDeployedError(
            f"source {source!r} is bound to an arc of network {network!r}, which is not deployed "
            "on this cluster; start that network first"
        )
    return deployed.plan


class Upstream:
    """A network upstream of bound sources, as this process knows it.

    Args:
        cluster: Holds both networks.
        registry: Holds the schemas of both.
        sources: The sources that are bound to it.

    Raises:
        NotDeployedError: If it is not deployed.
        UpstreamError: If it does not have one of the arcs in this topic any more.
    """

    def __init__(self, cluster: Cluster, registry: Registry, sources: Sequence[Source]) -> None:
        self.cluster, self.registry, self.sources = cluster, registry, sources
        self.versions = 0
        """How many versions of its plan it has followed; readers begin again with each."""
        self._looked_s = monotonic()
        self._open(self._read_plan())

    def poll(self) -> None:
        """Read the reports that have arrived, by the deployed plan."""
        self.view.poll()
        is_new = self.view.version != self.plan.deployment.version
        if is_new and monotonic() >= self._looked_s + LOOKED_S:
            self._looked_s, plan = monotonic(), self._read_plan()
            if plan.deployment != self.plan.deployment:
                self.view.close()
                self._open(plan)

    def _read_plan(self) -> Plan:
        source = self.sources[0]
        return upstream_plan(self.cluster, source.bound_to[0], source=source.arc.name)

    def _open(self, plan: Plan) -> None:
        self.codecs: dict[str, ArcCodec] = {}
        """By bound source: the codec of its arc."""
        for source in self.sources:
            (network, arc), topic = source.bound_to, source.topic
            if arc not in plan.topology.topics or plan.deployment.topic(arc) != topic:
                raise UpstreamError(
                    f"source {source.arc.name!r} is bound to topic '{topic}', which is no arc of "
                    f"network {network!r} any more: declare the source with the topic that "
                    "`errata explain` shows there, and give this network another name"
                )
            written, _ = plan.written(arc, self.registry)
            self.codecs[source.arc.name] = ArcCodec(written, topic, self.registry)
        self.plan, self.view = plan, View(self.cluster, plan=plan)
        self.versions += 1


class BoundInput:
    """One partition of a bound source as input of a reader, with the interface of `ArcInput`.

    Epochs are those of this network, but for those of its inner input.

    Args:
        view: The progress of this network.
        upstream: The network upstream.
        arc: The source's arc.
        partition: The partition.
        done: The last epoch that an earlier attempt processed.
        resume: Offset to read from.
        watch: Called with everything that is read, once its epochs are known.
        foreign: Notes records that are no revisions of the arc.
        is_awaited: Whether the ingest task keeps its pairs until this reader has passed them.
        lag_ms: How long superseded records stay in the topic.
    """

    def __init__(
        self,
        view: View,
        upstream: Upstream,
        arc: Arc,
        partition: int,
        *,
        done: int,
        resume: int,
        watch: Callable[[Records, pl.DataFrame], None] | None = None,
        foreign: ForeignRecords | None = None,
        is_awaited: bool = True,
        lag_ms: int,
    ) -> None:
        self.view, self.upstream, self.done, self.watch = view, upstream, done, watch
        self.arc, self.foreign = arc, foreign
        self.place = TopicPartition(upstream.codecs[arc.name].topic, partition)
        self._is_awaited, self._lag_ms, self._resume = is_awaited, lag_ms, resume
        self._is_narrower = upstream.codecs[arc.name].arc.fields.keys() != self.arc.fields.keys()
        self._inner: ArcInput | None = None
        self._versions = 0
        self._unknown: list[tuple[Records, pl.DataFrame]] = []
        """What `watch` is still to be called with."""
        self._floor = NOTHING_YET

    # ---------------------------------------------------------------- epochs

    @property
    def _pairs(self) -> tuple[tuple[int, int], ...]:
        return self.view.of(self._task).bound

    @property
    def _task(self) -> str:
        return self.view.writers(self.arc.name, self.place.partition)[0]

    @property
    def _changed(self) -> int:
        """The last epoch in which the partition changed, as far as it is reported."""
        return self.view.of(self._task).ends.get(self.place, (0, NEVER))[1]

    @property
    def floor(self) -> int:
        """The first epoch that it can tell: a reader that begins lacks the pairs of epochs before.

        It rises until that reader has read something.
        """
        if self.done < 0 and self._pairs:
            self._floor = self._pairs[0][0]
        return self._floor

    def _upstream_of(self, epoch: int) -> int:
        """Return the upstream epoch up to which the arc is read as of an epoch."""
        known = [upstream for own, upstream in self._pairs if own <= epoch]
        return known[-1] if known else NOTHING_YET

    # ---------------------------------------------------------------- reading

    def poll(self, *, limit: int = 100_000) -> int:
        """Read the records that have arrived; return their number.

        Raises:
            LostOffsetError: If the log no longer has the next records, or may lack some.
        """
        self.upstream.poll()
        if self._versions != self.upstream.versions and not self._open():
            return 0
        assert self._inner is not None
        if not self._is_awaited and 0 <= self.done < min(self._pairs[0][0], self._changed):
            raise self._lost()
        count = self._inner.poll(limit=limit)
        self._tell()
        return count

    def _open(self) -> bool:
        """Open the input upstream, if the pairs that tell its epochs are known."""
        pairs = self._pairs
        if not pairs:
            return False
        if self.done >= 0 and (self._is_awaited or self._changed <= self.done):
            self.done = max(self.done, pairs[0][0])  # nothing has changed here up to that pair
        elif 0 <= self.done < pairs[0][0]:
            raise self._lost()
        unread = [own for own, _ in pairs if own > self.done]
        lag_ms = (pairs[-1][0] - unread[0]) * INTERVAL_MS if unread else 0
        continues = self.watch is not None and self.done >= 0
        if continues and self._changed > self.done and lag_ms > self._lag_ms:
            raise self._lost()
        self.close()
        self._unknown.clear()
        self._inner = ArcInput(
            self.upstream.view,
            self.upstream.codecs[self.arc.name],
            self.place.partition,
            done=self._upstream_of(self.done),
            resume=self._resume,
            watch=None if self.watch is None else self._keep,
            foreign=self.foreign,
        )
        self._versions = self.upstream.versions
        return True

    def _lost(self) -> LostOffsetError:
        return LostOffsetError(self.place, self._resume)

    def _keep(self, records: Records, frame: pl.DataFrame) -> None:
        self._unknown.append((records, frame))

    def _tell(self) -> None:
        """Call `watch` with what has been read in epochs that are known by now."""
        pairs, later = self._pairs, list[tuple[Records, pl.DataFrame]]()
        unknown, self._unknown = self._unknown, []
        for records, frame in unknown:
            if frame.height and frame["epoch"].max() > pairs[-1][1]:  # type: ignore[operator]
                later.append((records, frame))
            elif self.watch is not None:
                own = self._own(frame["epoch"])
                self.watch(records, by_column.beside(frame, own))
        self._unknown = later

    def _own(self, upstream: pl.Series) -> pl.Series:
        """Return the epochs here of upstream epochs, all of which are known."""
        own, last = np.array(self._pairs, np.int64).T
        return pl.Series("epoch", own[np.searchsorted(last, upstream.to_numpy())], pl.Int64)

    def frontier(self) -> int:
        """Return the last epoch that is complete, and of which everything is read."""
        if self._inner is None:
            return self.done
        epoch, _ = self.view.complete(self.arc.name, self.place.partition)
        reached, pairs = self._inner.frontier(), self._pairs
        behind = bisect_left(pairs, reached + 1, key=lambda pair: pair[1])
        if behind < len(pairs):
            epoch = min(epoch, pairs[behind][0] - 1)
        return max(epoch, self.done) if epoch >= self.floor else self.done

    def epochs(self, upto: int) -> list[int]:
        """Return the epochs up to `upto` in which the partition changed, oldest first."""
        epochs = set[int]()
        if self._inner is not None and (known := self._inner.epochs(self._upstream_of(upto))):
            epochs.update(by_column.distinct(self._own(pl.Series(known, dtype=pl.Int64))))
        if self.done < self._changed <= upto:
            epochs.add(self._changed)
        return sorted(epochs)

    def take(self, upto: int) -> pl.DataFrame:
        """Return the revisions of the epochs up to `upto`, of each tuple one an epoch."""
        if self._inner is None:
            return self._frame(frames.none(self.arc.fields), NOTHING_YET)
        taken, names = self._inner.take(self._upstream_of(upto)), list(self.arc.fields)
        own, parts = self._own(taken["epoch"]), list[pl.DataFrame]()
        for epoch in by_column.distinct(own):
            revisions = by_column.kept(taken, own == epoch)
            if self.done < 0 and epoch == own.min():
                revisions = _content(revisions, self.arc)  # of what was before no more may be left
            elif revisions["epoch"].n_unique() > 1:
                revisions = frames.coalesced(revisions, self.arc.identity, names)
            if self._is_narrower:
                revisions = _changes(revisions, names)
            parts.append(self._frame(revisions, epoch))
        return pl.concat([self._frame(frames.none(self.arc.fields), NOTHING_YET), *parts])

    def _frame(self, revisions: pl.DataFrame, epoch: int) -> pl.DataFrame:
        """Return revisions of an epoch with the columns of `ArcInput.take`."""
        height = revisions.height
        written = {"attempt": 0, "epoch": epoch, "offset": 0}
        return by_column.beside(
            by_column.pick(revisions, list(frames.schema(self.arc.fields))),
            by_column.constant("", height, pl.String).alias("task"),
            *(by_column.constant(n, height, pl.Int64).alias(name) for name, n in written.items()),
        )

    def drop(self, done: int) -> int:
        """Forget epochs up to `done`; return the offset at which a new attempt must resume."""
        self.done = done
        if self._inner is not None:
            self._resume = self._inner.drop(self._upstream_of(done))
        return self._resume

    def close(self) -> None:
        """Stop reading; safe to call twice."""
        if self._inner is not None:
            self._inner.close()


def _content(revisions: pl.DataFrame, arc: Arc) -> pl.DataFrame:
    """Return an insert of each tuple that remains after the revisions."""
    tuples = frames.fold(revisions, arc.identity, list(arc.fields))
    no, yes = (by_column.constant(is_, tuples.height, pl.Boolean) for is_ in (False, True))
    return frames.between(tuples, no, tuples, yes)


def _changes(revisions: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the revisions that change one of some fields."""
    before, after = (frames.side(revisions, side, names) for side in (frames.BEFORE, frames.AFTER))
    op = revisions["op"]
    return frames.between(before, op != frames.INSERT, after, op != frames.DELETE)

"""Why a result has its values: the revisions of sources that changed it, and what it is made of.

A revision of a result is explained by recomputing it. Its *causes* are the revisions of sources
since then without which it would have another value: each is left out by itself. A result may also
have waited for the watermark. What sources and boxes held is read from their arcs. Where that is
gone, the recomputed values differ from those that were emitted, and nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import polars as pl

from errata.client.in_memory import Consequences, InMemory, Watermark
from errata.processors.boxes.lineage import traced
from errata.processors.boxes.matching import among, with_identities
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.wire.report import NEVER
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc, visible

History = Callable[[str, pl.DataFrame | None], pl.DataFrame]
"""Returns the revisions of an arc: of all tuples, or of those with some values."""
Changes = Mapping[str, pl.DataFrame]
"""Revisions by source."""
FEW, MOST_TRIED = 50, 200
"""Up to `FEW` revisions of sources are left out one by one to see which are causes; of more, those
are that concern tuples on which the result depends, up to `MOST_TRIED`."""


@dataclass(frozen=True)
class Explanation:
    """Why a result was revised.

    Args:
        revision: The revision of the result, with its epoch.
        since, upto: By source: the causes are in epochs after the one, up to the other.
        causes: By source: the revisions without which the result would have another value, one for
            each identity, with the task and the epoch of the last one.
        not_tried: How many more revisions may be causes; they were too many to try each.
        are_enough: Whether there is no such revision, since some would do without others: then the
            causes are some that suffice together, and none of them can be left out.
        closed: The watermark before and after, in ms, if the result would have another value had it
            not moved; else None.
        moved_by: By source: the tuples, as revisions, that moved it. None, if a source had ended or
            a partition was idle.
        between: By arc from the sources to the result, in order: the revisions on the way.
        ways: By box that had to look back for it: the numbers of tuples ``replayed``, of results
            ``fetched`` and of revisions ``kept_back``. Empty for a first value, and if the causes
            are of several epochs.
        inputs: By source: the tuples that the result was computed from before, and after.
        is_recomputed: Whether recomputing gives the values before and after. If it does not, what
            was there is gone, and nothing else is told.
    """

    revision: pl.DataFrame
    since: Mapping[str, int] = field(default_factory=dict)
    upto: Mapping[str, int] = field(default_factory=dict)
    causes: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    not_tried: int = 0
    are_enough: bool = False
    closed: tuple[int, int] | None = None
    moved_by: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    between: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    ways: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    inputs: Mapping[str, tuple[pl.DataFrame, pl.DataFrame]] = field(default_factory=dict)
    is_recomputed: bool = True


@dataclass(frozen=True)
class Moment:
    """How far the input of a network counts for what an arc holds in an epoch.

    A job on Spark takes several epochs as one. So behind it, its input counts up to the end of its
    last batch.

    Args:
        epoch: The epoch.
        sources: The last epoch that counts, by source.
        scopes: The last epoch that a scope had processed, by name.
    """

    epoch: int
    sources: dict[str, int] = field(default_factory=dict)
    scopes: dict[str, int] = field(default_factory=dict)


class Why:
    """Explains the revisions of an arc's tuples.

    Args:
        plan: The plan of the network.
        arc: Name of the arc.
        wanted: Values of fields of the arc's identity: the tuples to explain; None for all.
        history: Returns the committed revisions of an arc that has a topic, with ``epoch`` and
            ``task``, in the order of epochs: all, or those of some tuples, given by `wanted`.
        watermark: Returns the watermark of a scope now.
    """

    def __init__(
        self,
        plan: CompiledPlan,
        arc: str,
        wanted: pl.DataFrame | None,
        history: History,
        *,
        watermark: Watermark,
    ) -> None:
        self.plan, self.arc, self._history = plan, plan.topology.arcs[arc], history
        self._watermark_now = watermark
        self._wanted, self._read = wanted, dict[str, pl.DataFrame]()
        above = self.plan.topology.boxes_above(arc)
        self._boxes = [box for name, box in self.plan.boxes.items() if name in above]
        self._sources = self.plan.topology.sources_of[arc]

    def revisions(self) -> pl.DataFrame:
        """Return the revisions of the wanted tuples that change a visible field, in order."""
        arc, own = self.arc, self._history(self.arc.name, self._wanted)
        # a tuple that moves between partitions is deleted and inserted
        found = [_net(arc, part) for part in own.partition_by("epoch")]
        revised = pl.concat([_net(arc, own.clear()), *found])
        return revised[visible(arc, revised.with_row_index("@row"))["@row"]]

    def explanations(self, revisions: pl.DataFrame) -> Iterator[Explanation]:
        """Explain revisions of one tuple, from the last to the first.

        Args:
            revisions: All of them, in order.
        """
        epochs = [-1, *revisions["epoch"].to_list()]
        for row in reversed(range(revisions.height)):
            yield self._explained(revisions[row], previous=epochs[row])

    # ---------------------------------------------------------------- one revision

    def _explained(self, revision: pl.DataFrame, *, previous: int) -> Explanation:
        """Explain a revision, of which the one before is in the epoch `previous`."""
        epoch, names = int(revision["epoch"][0]), self.arc.visible
        identity = frames.identities(revision, self.arc.identity)
        now = self._moment(epoch)
        for reached in (self._brought, self._passed, self._now):
            after = self._network(now, partial(reached, now))
            if not self._is_there(after, identity, frames.entering(revision, names)):
                continue
            for then, before in self._before(after, epoch, previous):
                if self._is_there(before, identity, frames.leaving(revision, names)):
                    found = self._between(before, after, then, now, identity)
                    is_one_epoch = then.epoch == epoch - 1 and previous >= 0
                    return replace(
                        found, revision=revision, ways=found.ways if is_one_epoch else {}
                    )
        return Explanation(revision, is_recomputed=False)

    def _before(
        self, after: InMemory, epoch: int, previous: int
    ) -> Iterator[tuple[Moment, InMemory]]:
        """Yield what there may have been before a revision: all that it changes came after.

        That is in its epoch; but a job takes several epochs as one, and a result may have waited
        for the watermark, which then has moved.
        """
        for since in dict.fromkeys((epoch - 1, previous)):
            then = self._moment(since)
            yield then, self._network(then, after.watermark)
            for reached in (self._brought, self._passed):
                yield then, self._network(then, partial(reached, then))

    def _is_there(self, network: InMemory, identity: pl.DataFrame, told: pl.DataFrame) -> bool:
        """Whether a network holds a result as its revision tells it."""
        found = among(network.contents[self.arc.name], identity, _same(self.arc.identity))
        return found.select(told.columns).equals(told)

    def _between(
        self,
        before: InMemory,
        after: InMemory,
        then: Moment,
        now: Moment,
        identity: pl.DataFrame,
    ) -> Explanation:
        """Explain a result by what has changed from one moment to another."""
        arcs = self.plan.topology.arcs
        changes = {
            name: self._changes(name, then.sources[name], now.sources[name])
            for name in self._sources
        }
        near = self._traced(identity, before, after, widely=True)
        if sum(frame.height for frame in changes.values()) > FEW:
            changes = {n: _touched(arcs[n], frame, near) for n, frame in changes.items()}
        found = self._caused(before, changes, after)
        between = {
            name: _touched(arcs[name], frame, near)
            for name, frame in found.revisions.items()
            if name not in self._sources and name != self.arc.name
        }

        def is_same(some: Changes, watermark_of: InMemory) -> bool:
            caused = self._caused(before, some, watermark_of)
            return self._same_result(found, caused, identity)

        causes, not_tried = _causes(changes, lambda some: is_same(some, after))
        waited = [
            (before.watermark(scope), after.watermark(scope))
            for scope in now.scopes
            if before.watermark(scope) < after.watermark(scope)
        ]
        has_closed = bool(waited) and not is_same(changes, before)
        are_enough = not has_closed and not any(frame.height for frame in causes.values())
        if are_enough:
            causes = _enough(changes, lambda some: is_same(some, after))
        lineage = [self._traced(identity, network) for network in (before, after)]
        return Explanation(
            identity,
            then.sources,
            now.sources,
            {name: frame for name, frame in causes.items() if frame.height},
            not_tried,
            are_enough,
            waited[0] if has_closed else None,
            self._moved_by(then, now) if has_closed else {},
            {name: frame for name, frame in between.items() if frame.height},
            {box.arc.name: ways for box in self._boxes if (ways := found.ways.get(box.arc.name))},
            {name: (lineage[0][name], lineage[1][name]) for name in self._sources},
        )

    def _caused(self, before: InMemory, changes: Changes, after: InMemory) -> Consequences:
        """Return what revisions of the sources cause, and the watermark of another moment."""
        arcs = self.plan.topology.arcs
        plain = {name: _plain(arcs[name], f) for name, f in changes.items() if f.height}
        return before.consequences(plain, watermark=after.watermark)

    def _same_result(self, one: Consequences, other: Consequences, identity: pl.DataFrame) -> bool:
        """Whether a result has the same visible values after one or other revisions."""
        sides: list[pl.DataFrame | None] = []
        for caused in (one, other):
            revised = caused.revisions.get(self.arc.name)
            if revised is None:
                sides.append(None)
                continue
            own = with_identities(self.arc, visible(self.arc, revised), identity)
            sides.append(frames.side(own, frames.AFTER, self.arc.visible) if own.height else None)
        first, second = sides
        return first is second if first is None or second is None else first.equals(second)

    def _traced(
        self, identity: pl.DataFrame, *networks: InMemory, widely: bool = False
    ) -> dict[str, pl.DataFrame]:
        """Return by arc the tuples that a result comes from, or that may matter for it."""
        contents = [network.contents for network in networks]
        own = [among(each[self.arc.name], identity, _same(identity.columns)) for each in contents]
        nothing = {name: contents[0][name].clear() for name in self._sources}
        found = traced(self._boxes, contents, {self.arc.name: identity}, widely=widely)
        return {**nothing, self.arc.name: pl.concat(own), **found}

    # ---------------------------------------------------------------- what there was

    def _revisions_of(self, name: str) -> pl.DataFrame:
        if name not in self._read:
            self._read[name] = self._history(name, None)
        return self._read[name]

    def _until(self, name: str, epoch: int) -> pl.DataFrame:
        return self._revisions_of(name).filter(pl.col("epoch") <= epoch)

    def _changes(self, name: str, since: int, epoch: int) -> pl.DataFrame:
        """Return the net revisions of a source in the epochs after one, up to another."""
        arc = self.plan.topology.arcs[name]
        made = self._until(name, epoch).filter(pl.col("epoch") > since)
        return _net(arc, made)

    def _moment(self, epoch: int) -> Moment:
        """Return up to which epochs its scopes and sources count for the arc in an epoch."""
        topology, found = self.plan.topology, Moment(epoch)

        def walk(name: str, epoch: int) -> None:
            if name in topology.sources:
                found.sources[name] = min(epoch, found.sources.get(name, epoch))
                return
            scope = topology.scope_of(name)
            if scope in topology.jobs:  # its batches end where it emits, or later to no effect
                epoch = cast("int | None", self._until(name, epoch)["epoch"].max()) or NEVER
            found.scopes[scope] = min(epoch, found.scopes.get(scope, epoch))
            for above in topology.scopes[scope].inputs:
                walk(above, epoch)

        walk(self.arc.name, epoch)
        return found

    def _network(self, at: Moment, watermark: Watermark) -> InMemory:
        """Return the network with what its sources held at a moment."""
        epochs = dict(at.sources)
        for box in self._boxes:
            if box.reads_back:  # what it keeps back
                epochs[box.arc.name] = at.scopes[self.plan.topology.scope_of(box.arc.name)]
        return InMemory(
            self.plan,
            {
                name: frames.fold(self._until(name, epoch), arc.identity, list(arc.fields))
                for name, epoch in epochs.items()
                for arc in [self.plan.topology.arcs[name]]
            },
            epoch=max(epochs.values()),
            watermark=watermark,
            arcs=[self.arc.name],
        )

    # ---------------------------------------------------------------- watermarks

    # Reports tell watermarks only until their readers have passed them. Three guesses stand for one
    # of the past; recomputing shows which one is right enough.

    def _brought(self, at: Moment, scope: str) -> int:
        """Return the watermark by what the sources had brought: silent partitions count as idle."""
        epoch = at.scopes.get(scope, at.epoch)
        sources = self.plan.topology.sources_behind(scope)
        brought = [min(self._levels(name, epoch).values(), default=NEVER) for name in sources]
        return max(min(brought), self._passed(at, scope))

    def _passed(self, at: Moment, scope: str) -> int:
        """Return a watermark that has just passed what boxes over its sources emit when it does."""
        topology, sources = self.plan.topology, set(self.plan.topology.sources_behind(scope))
        emitted = [
            box.arc
            for box in self._boxes
            if box.emits_on_close and box.arc.name in topology.topics
            if sources <= set(topology.sources_of[box.arc.name])
        ]
        epochs = (at.scopes[topology.scope_of(arc.name)] for arc in emitted)
        newest = (self._newest(arc, epoch) + 1 for arc, epoch in zip(emitted, epochs, strict=True))
        return max(newest, default=NEVER)

    def _now(self, at: Moment, scope: str) -> int:
        """Return the watermark of now, which may be that of the past: a source has ended."""
        return self._watermark_now(scope)

    def _levels(self, source: str, epoch: int) -> dict[str, int]:
        """Return by ingest task the event time that it has brought, less the lateness."""
        arc, lateness = (
            self.plan.topology.arcs[source],
            self.plan.topology.sources[source].lateness_ms,
        )
        brought = self._until(source, epoch).filter(pl.col("op") != frames.DELETE)
        at = arc.event_times(frames.side(brought, frames.AFTER, [arc.event_time])).alias("at")
        newest = by_column.beside(brought.select("task"), at).group_by("task").max()
        return {task: level - lateness for task, level in newest.iter_rows()}

    def _newest(self, arc: Arc, epoch: int) -> int:
        tuples = frames.entering(self._until(arc.name, epoch), [arc.event_time])
        newest = cast("int | None", arc.event_times(tuples).max())
        return NEVER if newest is None else newest

    def _moved_by(self, then: Moment, now: Moment) -> dict[str, pl.DataFrame]:
        """Return the tuples with which the partitions that held the watermark went on."""
        found = {}
        for name, since in then.sources.items():
            arc, levels = self.plan.topology.arcs[name], self._levels(name, since)
            least = min(levels.values(), default=NEVER)
            made = self._changes(name, since, now.sources[name])
            made = made.filter(pl.col("op") != frames.DELETE)
            at = arc.event_times(frames.side(made, frames.AFTER, [arc.event_time]))
            held = pl.Series(
                [levels.get(task, NEVER) <= least for task in made["task"]], dtype=pl.Boolean
            )
            is_later = held & (at - self.plan.topology.sources[name].lateness_ms > least)
            if is_later.any():
                found[name] = made.filter(is_later)[at.filter(is_later).arg_sort()[-1:]]
        return found


def _same(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in names}


def _plain(arc: Arc, revisions: pl.DataFrame) -> pl.DataFrame:
    """Return revisions without who wrote them, and when."""
    return by_column.pick(revisions, list(frames.schema(arc.fields)))


def _net(arc: Arc, revisions: pl.DataFrame) -> pl.DataFrame:
    """Return one net revision for each identity, with the task and the epoch of the last one."""
    identity = list(arc.identity)
    net = frames.coalesced(revisions, identity, list(arc.fields))
    last = frames.last(revisions, identity)
    told = by_column.beside(frames.identities(last, identity), last["task"], last["epoch"])
    found = frames.identities(net, identity).join(
        told, on=identity, how="left", nulls_equal=True, maintain_order="left"
    )
    return by_column.beside(net, found["task"], found["epoch"])


def _touched(arc: Arc, revisions: pl.DataFrame, tuples: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the revisions of tuples that are among some, by arc."""
    if arc.name not in tuples:
        return revisions.clear()
    return with_identities(arc, revisions, tuples[arc.name].select(arc.identity))


def _causes(changes: Changes, is_same: Callable[[Changes], bool]) -> tuple[Changes, int]:
    """Return the revisions without which a result is not the same, and how many were not tried."""
    found, left = dict[str, pl.DataFrame](), MOST_TRIED
    for name, frame in changes.items():
        tried = range(min(left, frame.height))
        left -= len(tried)
        found[name] = frame[[row for row in tried if not is_same(_without(changes, name, row))]]
    return found, sum(frame.height for frame in changes.values()) - (MOST_TRIED - left)


def _enough(changes: Changes, is_same: Callable[[Changes], bool]) -> Changes:
    """Return some revisions that suffice for the same result; none of them can be left out."""
    for name, frame in changes.items():
        for row in reversed(range(min(MOST_TRIED, frame.height))):
            rest = _without(changes, name, row)
            changes = rest if is_same(rest) else changes
    return changes


def _without(changes: Changes, name: str, row: int) -> Changes:
    """Return the revisions but one."""
    frame = changes[name]
    return {**changes, name: pl.concat([frame[:row], frame[row + 1 :]])}

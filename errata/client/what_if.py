"""Computes what a revision of a source would change, from the content of the topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import polars as pl

from errata.client.reading import Tail
from errata.observe.network_progress import Progress
from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.boxes.replay import ReplayQuery, merged, overlay
from errata.processors.boxes.sharing import Part
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.topology import Scope
from errata.processors.tasks.rebuild import recompute
from errata.processors.tasks.scope_run import EpochResult, EpochSteps, Memory, ScopeRun
from errata.processors.wire.report import CountKey
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


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
                named = frames.identities(revisions, identity).with_row_index("@row")
                wanted = named.join(identities, on=identity, how="semi", nulls_equal=True)
                revisions = revisions[wanted["@row"]]
            last = frames.last(pl.concat([last, revisions.select(last.columns)]), identity)
    finally:
        reading.close()
    return Content(last, read)


class Consequences(NamedTuple):
    """What a revision of a source would cause.

    Args:
        revisions: By arc that changes, in topological order: its revisions.
        counts: By box that it reaches, in that order: what is counted of an epoch, by name (such as
            ``replayed``, ``fetched`` and ``kept_back``), without zeros.
    """

    revisions: dict[str, pl.DataFrame]
    counts: dict[str, dict[str, int]]


def consequences(
    progress: Progress, contents: Mapping[str, pl.DataFrame], *, source: str, revision: pl.DataFrame
) -> Consequences:
    """Return what a revision of a source would cause.

    The boxes process it as an epoch of its own, at the current watermark. What they ask for comes
    from contents that are computed from scratch from the sources' tuples.

    Args:
        progress: The plan that runs, and its watermarks.
        contents: Tuples by source, and of the arcs of what boxes keep back.
        source: The source that is revised.
        revision: One revision of its arc, which matches its content.
    """
    plan, epoch = progress.plan.alone(), progress.newest_epoch()
    before, memories = dict(contents), dict[str, Memory]()
    changes, counts = {source: revision}, dict[str, dict[str, int]]()
    for scope in _in_order(plan):
        task = progress.tasks(scope.name)[0]
        watermark = progress.watermark(task, upto=epoch)
        inputs = {arc: before[arc] for arc in scope.inputs}
        found, result = recompute(
            plan, scope, inputs, epoch=epoch, watermark=watermark, known=contents
        )
        before |= found
        memories[scope.name] = _with_kept_back(result.memory, plan, contents)
    for scope in _in_order(plan):
        if changes.keys().isdisjoint(scope.inputs):
            continue
        run, memory = ScopeRun(plan, scope, partition=0), memories[scope.name]
        steps = run.epoch(
            epoch + 1,
            {arc: changes.get(arc, run.nothing[arc]) for arc in scope.inputs},
            memory=memory,
            watermark=memory.watermark,
            uncommitted={},
            committed=epoch,
        )
        result = _answered(steps, plan, before, changes, epoch)
        changes |= result.revisions
        for text, count in result.counts.items():
            key = CountKey.parse(text)
            if count and key.box:
                counts.setdefault(key.box, {})[key.what] = count
    names = [n for n in plan.topology.arcs if n in changes and not plan.topology.arcs[n].exchange]
    return Consequences({name: changes[name] for name in names}, counts)


def _in_order(plan: CompiledPlan) -> Iterator[Scope]:
    """Yield the scopes of boxes, each after those that it reads from."""
    known = {*plan.topology.sources}
    left = [scope for scope in plan.topology.scopes.values() if scope.boxes]
    while left:  # scopes never form a cycle
        scope = next(s for s in left if known.issuperset(s.inputs))
        left.remove(scope)
        known.update(scope.boxes)
        yield scope


def _with_kept_back(
    memory: Memory, plan: CompiledPlan, contents: Mapping[str, pl.DataFrame]
) -> Memory:
    """Return a memory that knows how many results boxes keep back."""
    live = {
        name: replace(each, kept_back=contents[name].height)
        if plan.boxes[name].reads_back and name in contents
        else each
        for name, each in memory.live.items()
    }
    return replace(memory, live=live)


def _answered(
    steps: EpochSteps,
    plan: CompiledPlan,
    before: Mapping[str, pl.DataFrame],
    changes: Mapping[str, pl.DataFrame],
    epoch: int,
) -> EpochResult:
    """Take an epoch's steps, and answer its requests for history.

    Args:
        steps: The steps.
        plan: The plan.
        before: The content of all arcs after an epoch.
        changes: The revisions of the next one so far, by arc.
        epoch: The epoch.
    """

    def answer(query: ReplayQuery) -> pl.DataFrame:
        arc, content = plan.topology.arcs[query.arc], before[query.arc]
        if query.as_of > epoch:
            content = overlay(content, arc, [changes[arc.name]] if arc.name in changes else [])
        found = Part(arc, merged(query.ranges)).of(content)
        if query.take is None:
            return found
        query.take(found)
        return found.clear()

    try:
        queries = next(steps)
        while True:
            queries = steps.send([answer(query) for query in queries])
    except StopIteration as stop:
        result: EpochResult = stop.value
        return result

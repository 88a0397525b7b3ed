"""Computes what a revision of a source would change, from the content of the topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from errata.client.reading import Tail
from errata.observe.network_progress import Progress
from errata.processors.arcs.arc_topic import ArcCodec
from errata.processors.boxes.base import difference
from errata.processors.tasks.rebuild import recompute
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


def consequences(
    progress: Progress, contents: Mapping[str, pl.DataFrame], *, source: str, revision: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """Return the revisions of every arc that a revision of a source would cause.

    All boxes are computed from scratch, at the current watermark, over the sources' tuples with the
    revision and without it.

    Args:
        progress: The plan that runs, and its watermarks.
        contents: Tuples by source.
        source: The source that is revised.
        revision: One revision of its arc, which matches its content.
    """
    arc = progress.plan.topology.arcs[source]
    held, identity = contents[source], list(arc.identity)
    named = frames.identities(revision, identity)
    left = held.join(named, on=identity, how="anti", nulls_equal=True)
    entering = frames.entering(revision, held.columns)
    before = _compute(progress, contents)
    after = _compute(progress, {**contents, source: pl.concat([left, entering])})
    plan = progress.plan
    names = [
        name
        for name in plan.topology.arcs
        if name in before and not plan.topology.arcs[name].exchange
    ]
    changed = {
        name: difference(plan.topology.arcs[name], before[name], after[name]) for name in names
    }
    return {name: revisions for name, revisions in changed.items() if revisions.height}


def _compute(
    progress: Progress, contents: Mapping[str, pl.DataFrame]
) -> Mapping[str, pl.DataFrame]:
    """Return the content of every arc."""
    by_arc = dict(contents)
    left = [scope for scope in progress.plan.topology.scopes.values() if scope.boxes]
    while left:  # scopes never form a cycle
        scope = next(s for s in left if all(arc in by_arc for arc in s.inputs))
        left.remove(scope)
        inputs = {arc: by_arc[arc] for arc in scope.inputs}
        task = progress.tasks(scope.name)[0]
        epoch = progress.newest_epoch()
        watermark = progress.watermark(task, upto=epoch)
        results, _ = recompute(progress.plan, scope, inputs, epoch=epoch, watermark=watermark)
        by_arc |= results
    return by_arc

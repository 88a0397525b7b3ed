"""Translates a box's need into replay requests to its anchors, and their answers into inputs.

Upstream processing replays "from the nearest upstream connection point" (Borealis 3.2). Between
that anchor and the box there may be filters, maps, unions, exchanges and aggregates; each is
recomputed from scratch over the replayed tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from errata.processors.boxes.base import Box
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class ReplayQuery:
    """A replay request to the sweepers of an arc: tuples of some groups in some event times.

    Args:
        arc: Name of the connection point.
        as_of: The epoch after which the content is requested.
        ranges: ``from_ms``, ``to_ms`` (half-open event times) and fields that must be equal.
        everywhere: Whether it goes to all partitions, not only to that of the requesting task.
        take: Is given the parts of the answers as they arrive, each tuple once; the answer is empty
            then. None: the answer holds all tuples.
    """

    arc: str
    as_of: int
    ranges: pl.DataFrame
    everywhere: bool = False
    take: Callable[[pl.DataFrame], None] | None = None


@dataclass(frozen=True)
class Anchor:
    """A connection point that is replayed, and how far.

    Args:
        arc: The connection point.
        pushed: Group fields that no box in between computes, so that only their values are
            requested: the field of the need, by field of the arc.
        extent_ms: Sum of the window extents in between: how much further back to replay.
        everywhere: Whether there is an exchange in between, so that all partitions are needed.
        ahead: Whether all later tuples are needed too, because the result of a box in between may
            depend on them.
    """

    arc: Arc
    pushed: Mapping[str, str]
    extent_ms: int
    everywhere: bool
    ahead: bool = False

    def ranges(self, needed: pl.DataFrame) -> pl.DataFrame:
        """Return the ranges to request so that a box's inputs are complete for what it needs."""
        extent_ms = min(self.extent_ms, FOREVER_MS)
        from_ms = pl.col("from_ms").clip(lower_bound=extent_ms - FOREVER_MS) - extent_ms
        groups = (pl.col(field).alias(name) for name, field in self.pushed.items())
        to_ms = pl.lit(FOREVER_MS, pl.Int64).alias("to_ms") if self.ahead else pl.col("to_ms")
        return needed.select(*groups, from_ms, to_ms).unique()

    def ranges_from(self, event_time_ms: int) -> pl.DataFrame:
        """Return the ranges to request for all inputs from an event time on."""
        from_ms = max(event_time_ms - self.extent_ms, -FOREVER_MS)
        return pl.DataFrame(
            {"from_ms": [from_ms], "to_ms": [FOREVER_MS]},
            schema={"from_ms": pl.Int64, "to_ms": pl.Int64},
        )


@dataclass(frozen=True)
class ReplayPath:
    """How the inputs of a box that requests history are recomputed from its anchors.

    There is one anchor, or one for each arc where several arcs meet.

    Args:
        anchors: The connection points that are replayed, in order.
        between: The boxes from the anchors to the box's inputs, in topological order.
        box: The box.
    """

    anchors: tuple[Anchor, ...]
    between: tuple[Box, ...]
    box: Box

    @property
    def everywhere(self) -> bool:
        """Whether more than the requesting task's own partition is replayed."""
        return any(anchor.everywhere for anchor in self.anchors)

    @property
    def is_linear(self) -> bool:
        """Whether it processes each replayed tuple independently of the others.

        Then the inputs of the box come from parts of what is replayed, one by one.
        """
        linear = {anchor.arc.name for anchor in self.anchors}
        known = set(linear)
        for box in self.between:
            known.add(box.arc.name)
            if box.is_linear(linear, known):
                linear.add(box.arc.name)
        return {arc.name for arc in self.targets} <= linear

    @property
    def targets(self) -> list[Arc]:
        """The arcs whose tuples the box requests: its inputs."""
        return [read.arc for read in self.box.history_inputs]

    def radius_ms(self, arc: str) -> int:
        """Return the event time that an anchor must replay for one revision (Borealis 3.2)."""
        return max(
            (
                min(a.extent_ms + self.box.extent_ms, FOREVER_MS)
                for a in self.anchors
                if a.arc.name == arc
            ),
            default=0,
        )

    def inputs(self, replayed: Sequence[pl.DataFrame], *, wm: int) -> list[pl.DataFrame]:
        """Return at least the requested tuples of `targets`, from the anchors' tuples and wm(e)."""
        contents = {a.arc.name: tuples for a, tuples in zip(self.anchors, replayed, strict=True)}
        for box in self.between:
            contents[box.arc.name] = box.recompute(*(contents[name] for name in box.inputs), wm=wm)
        return [contents[arc.name] for arc in self.targets]


def merged(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the same ranges of each group, without overlaps, sorted by group and start.

    Args:
        ranges: ``from_ms``, ``to_ms``, and the fields of the group.
    """
    if ranges.height < 2:
        return ranges
    group = [name for name in ranges.columns if name not in ("from_ms", "to_ms")]
    first = pl.col("@group").min()
    reach = pl.col("to_ms").cum_max().shift().over("@group")
    apart = (pl.col("from_ms") > reach).fill_null(True)
    return (
        ranges.with_row_index("@group")
        .with_columns(first.over(group) if group else first)
        .sort("@group", "from_ms")
        .with_columns(apart.cum_sum().alias("@run"))
        .group_by("@group", "@run", maintain_order=True)
        .agg(pl.col("from_ms").min(), pl.col("to_ms").max(), pl.col(group).first())
        .select(ranges.columns)
    )


def overlay(content: pl.DataFrame, arc: Arc, uncommitted: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the content after the requesting task's own revisions that are not committed yet.

    Args:
        content: Tuples as of the task's last committed epoch, with at least the arc's fields.
        arc: The arc, which the task itself writes.
        uncommitted: Frames of revisions in the order of their epochs.
    """
    remaining = without_revised(content, arc, uncommitted)
    if not uncommitted:
        return remaining
    return pl.concat([remaining, frames.entering(_last(arc, uncommitted), list(arc.fields))])


def without_revised(
    content: pl.DataFrame, arc: Arc, uncommitted: Sequence[pl.DataFrame]
) -> pl.DataFrame:
    """Return the tuples that no uncommitted revision has replaced or deleted; see `overlay`."""
    content = by_column.pick(content, arc.fields)
    if not uncommitted:
        return content
    revised = frames.identities(_last(arc, uncommitted), list(arc.identity))
    return content.join(revised, on=list(arc.identity), how="anti", nulls_equal=True)


def _last(arc: Arc, uncommitted: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the last revision of each identity."""
    ordered = (frame.with_columns(epoch=pl.lit(epoch)) for epoch, frame in enumerate(uncommitted))
    return frames.last(pl.concat(ordered), list(arc.identity))

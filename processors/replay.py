"""From what a box needs to what its anchor is asked, and back through the boxes in between.

Upstream processing replays "from the nearest upstream connection point" (Borealis 3.2). Between
that anchor and the box there may be filters, maps and aggregates; each is recomputed from scratch
over the replayed tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from processors.boxes.aggregate import Aggregate
from processors.boxes.map import Map
from processors.boxes.states import START
from processors.boxes.where import Where
from schemas import revisions as frames
from schemas.arc import Arc

FOREVER_MS = 2**62
"""Beyond every event time."""

Box = Where | Map | Aggregate


@dataclass(frozen=True)
class Ask:
    """A question to the sweeper of an arc: tuples of these groups in these event times.

    Args:
        arc: Name of the connection point.
        as_of: The epoch after which the content is wanted.
        ranges: ``from_ms``, ``to_ms`` (half-open event times) and fields that must be equal.
    """

    arc: str
    as_of: int
    ranges: pl.DataFrame


@dataclass(frozen=True)
class ReplayPath:
    """How the inputs of an aggregate are recomputed from its anchor.

    Args:
        anchor: The connection point that is replayed.
        between: The boxes from the anchor to the aggregate's input, in order.
        box: The aggregate.
        pushed: Group fields that no box in between computes: only their values are asked for.
    """

    anchor: Arc
    between: tuple[Box, ...]
    box: Aggregate
    pushed: tuple[str, ...]

    @property
    def extent_ms(self) -> int:
        """Sum of the window extents in between: how much further back the anchor has to go."""
        return sum(b.window.size_ms for b in self.between if isinstance(b, Aggregate))

    @property
    def radius_ms(self) -> int:
        """Event time that the anchor must replay for one revision (Borealis 3.2)."""
        return self.extent_ms + self.box.window.size_ms

    def ranges(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return what to ask the anchor so that the inputs of these windows are complete."""
        return keys.select(
            *self.pushed,
            (pl.col(START) - self.extent_ms).alias("from_ms"),
            (pl.col(START) + self.box.window.size_ms).alias("to_ms"),
        ).unique()

    def ranges_from(self, event_time_ms: int) -> pl.DataFrame:
        """Return what to ask the anchor for all inputs from an event time on."""
        return pl.DataFrame(
            {"from_ms": [event_time_ms - self.extent_ms], "to_ms": [FOREVER_MS]},
            schema={"from_ms": pl.Int64, "to_ms": pl.Int64},
        )

    def inputs(self, replayed: pl.DataFrame, *, wm: int) -> pl.DataFrame:
        """Return the box's inputs, at least those asked for, from the anchor's tuples and wm(e)."""
        return recompute(self.between, replayed, wm=wm)


def recompute(boxes: Sequence[Box], tuples: pl.DataFrame, *, wm: int) -> pl.DataFrame:
    """Return what a chain of boxes makes of a whole collection at watermark `wm`."""
    for box in boxes:
        tuples = box.recompute(tuples, wm)
    return tuples


def overlay(content: pl.DataFrame, arc: Arc, own: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the content after revisions that the asker made since and nobody else has seen yet.

    Args:
        content: Tuples as of the asker's last committed epoch, with the arc's fields at least.
        arc: The arc, which the asker itself writes.
        own: Frames of revisions in the order of their epochs.
    """
    names, identity = list(arc.fields), list(arc.identity)
    content = content.select(names)
    if not own:
        return content
    ordered = (made.with_columns(epoch=pl.lit(number)) for number, made in enumerate(own))
    last = frames.last(pl.concat(ordered), identity)
    left = content.join(
        frames.identities(last, identity), on=identity, how="anti", nulls_equal=True
    )
    return pl.concat([left, frames.entering(last, names)])

"""Union: all tuples of several arcs together.

Inputs that are not known to be disjoint (outputs of one route are) get a tag that is part of the
identity: which arc a tuple comes from. What comes out is net: a tuple that left one output of a
route for another in the same epoch is replaced, not deleted and inserted.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Union:
    """A union box.

    Args:
        arc: The arc it writes; the fields of its inputs, and the tag if there is one.
        inputs: Names of the arcs it reads.
        tag: Field that says which arc a tuple comes from; None if the inputs are disjoint.
    """

    arc: Arc
    inputs: tuple[str, ...]
    tag: str | None

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what the box makes of whole collections, in the order of `inputs`."""
        names = list(self.arc.fields)
        return pl.concat(
            (t if self.tag is None else t.with_columns(pl.lit(name).alias(self.tag))).select(names)
            for name, t in zip(self.inputs, inputs, strict=True)
        )

    def revise(self, *inputs: pl.DataFrame) -> pl.DataFrame:
        """Return the net revisions of the output, from those of every input, in order."""
        columns = list(frames.schema(self.arc.fields))
        found = [
            self._tagged(frame, name).select(columns)
            for name, frame in zip(self.inputs, inputs, strict=True)
            if frame.height
        ]
        if len(found) < 2:
            return found[0] if found else frames.none(self.arc.fields)
        return frames.net(pl.concat(found), self.arc.identity, list(self.arc.fields))

    def _tagged(self, revisions: pl.DataFrame, name: str) -> pl.DataFrame:
        if self.tag is None:
            return revisions
        op, tag = pl.col("op"), pl.lit(name)
        return revisions.with_columns(
            pl.when(op != frames.INSERT).then(tag).alias(frames.BEFORE + self.tag),
            pl.when(op != frames.DELETE).then(tag).alias(frames.AFTER + self.tag),
        )

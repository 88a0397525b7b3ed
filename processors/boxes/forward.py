"""Forward: the same tuples, on the other side of an exchange (``docs/protocol.md#2-revisions``).

Where tasks repartition, each writes what it has into the exchange of the partition that a tuple
belongs to. The task that owns the partition nets it by identity per epoch and alone writes the arc.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Forward:
    """A box that changes nothing.

    Args:
        arc: The arc it writes: its input's tuples, partitioned by other fields.
        input: Name of the arc it reads.
    """

    arc: Arc
    input: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads."""
        return (self.input,)

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what the box makes of a whole collection."""
        return inputs[0]

    def revise(self, *inputs: pl.DataFrame) -> pl.DataFrame:
        """Return the revisions of the output that a frame of revisions of the input causes."""
        return inputs[0]

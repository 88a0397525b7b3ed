"""Union: all tuples of several arcs together.

Outputs of one route are known to be disjoint. Tuples of other inputs get a tag that names their arc
and is part of the identity. The output is net: a tuple that moves from one output of a route to
another in the same epoch is replaced, not deleted and inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from errata.processors.boxes.base import Live, Outcome, Refused, Stateless
from errata.processors.boxes.bounds import Bounds, either
from errata.processors.boxes.matching import among
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Union(Stateless):
    """A union box.

    Args:
        arc: The arc it writes; the fields of its inputs, and the tag if there is one.
        united: Names of the arcs it reads.
        tag: Field that says which arc a tuple comes from; None if the inputs are disjoint.
    """

    arc: Arc
    united: tuple[str, ...]
    tag: str | None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads."""
        return self.united

    @property
    def computed(self) -> frozenset[str]:
        """The tag, if there is one."""
        return frozenset() if self.tag is None else frozenset((self.tag,))

    @property
    def disjoint(self) -> tuple[str, ...]:
        """All inputs, if no tag tells their tuples apart."""
        return self.inputs if self.tag is None else ()

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {"union": list(self.inputs), "tag": self.tag}

    def of_input(self, name: str) -> Union:
        """Return the union restricted to one of its inputs."""
        return replace(self, united=(name,))

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return the output for whole collections; it refuses nothing."""
        names = list(self.arc.fields)
        united = pl.concat(
            (
                tuples if self.tag is None else tuples.with_columns(pl.lit(name).alias(self.tag))
            ).select(names)
            for name, tuples in zip(self.inputs, inputs, strict=True)
        )
        return united, ()

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return for each input the tuples of the same identities; the tag tells which input."""
        if self.tag is None:
            return super().dependencies(results, *inputs)
        names = {name: name for name in self.arc.identity if name != self.tag}
        return [
            among(tuples, results.filter(pl.col(self.tag) == name), names)
            for name, tuples in zip(self.inputs, inputs, strict=True)
        ]

    def _bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc: the wider ones of its inputs."""
        return either(above)

    def revise(self, *revisions: pl.DataFrame) -> Outcome:
        """Return the net revisions of the output, from those of all inputs in order."""
        columns = list(frames.schema(self.arc.fields))
        changed = [
            by_column.pick(self._tagged(frame, name), columns)
            for name, frame in zip(self.inputs, revisions, strict=True)
            if frame.height
        ]
        if len(changed) < 2:
            return Outcome(Live(), changed[0] if changed else frames.none(self.arc.fields))
        net = frames.net(pl.concat(changed), self.arc.identity, list(self.arc.fields))
        return Outcome(Live(), net)

    def _tagged(self, revisions: pl.DataFrame, name: str) -> pl.DataFrame:
        if self.tag is None:
            return revisions
        op, tag = pl.col("op"), pl.lit(name)
        return revisions.with_columns(
            pl.when(op != frames.INSERT).then(tag).alias(frames.BEFORE + self.tag),
            pl.when(op != frames.DELETE).then(tag).alias(frames.AFTER + self.tag),
        )

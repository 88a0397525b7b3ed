"""What users' functions in a loop's body fail for, in all rounds, and how it is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import polars as pl

from errata.processors.boxes.base import FUNCTION_RAISED, WHY, Refused
from errata.processors.boxes.body import Body
from errata.schemas.arc import Arc


@dataclass(frozen=True)
class Raised:
    """What the functions in a body fail for.

    Args:
        body: The body.
        entering: The arcs that enter the loop, by the names that they have in it.
        tuples: By box and arc, each once, as they were when the box first failed for them.
    """

    body: Body
    entering: Mapping[str, Arc]
    tuples: Mapping[tuple[str, str], pl.DataFrame]

    @classmethod
    def of(
        cls, body: Body, entering: Mapping[str, Arc], told: Iterable[tuple[str, Refused]]
    ) -> Raised:
        """Return what is told of the rounds of a loop, in their order, by box."""
        found: dict[tuple[str, str], list[pl.DataFrame]] = {}
        for box, some in told:
            why = pl.Series(WHY, some.reasons, pl.String)
            found.setdefault((box, some.arc), []).append(some.tuples.with_columns(why))
        arcs = {arc.name: arc for arc in (body.variable, *(box.arc for box in body.boxes))}
        arcs |= entering
        once = {
            place: pl.concat(parts).unique(arcs[place[1]].identity, keep="first")
            for place, parts in found.items()
        }
        return cls(body, entering, once)

    def without(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return those tuples that go round for which no function failed on their way."""
        identity = list(self.body.variable.identity)
        for (_, arc), failed in self.tuples.items():
            if arc not in self.entering and set(identity) <= set(failed.columns):
                tuples = tuples.join(failed, on=identity, how="anti", nulls_equal=True)
        return tuples

    def beyond(self, before: Raised) -> Raised:
        """Return what was not there, or not the same, in what functions failed for before."""
        fresh = dict(self.tuples)
        for place in fresh.keys() & before.tuples.keys():
            names = fresh[place].drop(WHY).columns
            was = before.tuples[place]
            fresh[place] = fresh[place].join(was, on=names, how="anti", nulls_equal=True)
        return replace(self, tuples=fresh)

    def refused(self) -> Iterator[Refused]:
        """Yield it as what is seen of it outside: tuples of arcs of the body as the loop's.

        Of these there is what the arc of the loop has too.
        """
        for (box, arc), tuples in self.tuples.items():
            seen = self.entering.get(arc, self.body.variable)
            names = [n for n, kind in seen.fields.items() if tuples.schema.get(n) == kind.dtype]
            reasons = [f"in box {box!r} of the loop: {why}" for why in tuples[WHY]]
            if reasons:
                yield Refused(seen.name, tuples.select(names), reasons, FUNCTION_RAISED)

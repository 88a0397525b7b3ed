"""Iterate: what an arc comes to when a body of boxes is applied to it until nothing changes.

X(0) is what the loop starts with, X(k + 1) what the body makes of X(k) and of what enters from
outside; the loop's arc holds the X that is its own successor. In Timely's terms the loop is a
nested scope: its times are (epoch, round) (`progress.timestamp.Product`); what enters is there from
round 0 on; feedback leads from (e, k) to (e, k + 1), and lets nothing through beyond the bound
(`progress.summary.Advance`), so that the cycle advances; what leaves loses its round. Since an
epoch is processed as one batch its rounds run one after the other, and nobody outside sees them.

A linear body is evaluated semi-naively: only what changed in a round goes on to the next one.
Others are evaluated whole. Nothing is kept between epochs: the content of all inputs is had as of
the epoch; the epoch's own revisions undone give it as it was; what leads from the one fixpoint to
the other is the revision.

Not every body comes to an end. A tuple that would change again after the last round is left out,
and refused with its last values (`Unsettled`); so is one for which a user's function in the body
fails in any round (`Raised`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

import polars as pl

from errata.processors.boxes.base import (
    FUNCTION_RAISED,
    INPUTS,
    WHY,
    Above,
    Answers,
    Box,
    Live,
    Need,
    Outcome,
    Refused,
)
from errata.processors.boxes.body import Body, Contents
from errata.processors.boxes.difference import difference, undone
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType


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


SHOWN_ROUNDS = 3
"""So many of the last values are told."""
_SHOWN_CHARS = 60
_EXACT = Context(prec=60)


@dataclass(frozen=True)
class Unsettled:
    """Tuples that still change after the last round.

    Args:
        tuples: As they entered the loop; those that came up in it, as they are in the last round.
        trail: All tuples of the last rounds, the newest one last; in a linear loop those that still
            moved.
    """

    tuples: pl.DataFrame
    trail: Sequence[pl.DataFrame]

    def beyond(self, before: Unsettled) -> pl.DataFrame:
        """Return the tuples that were not there, or not the same, in what was unsettled before."""
        names = self.tuples.columns
        return self.tuples.join(before.tuples, on=names, how="anti", nulls_equal=True)

    def refused(self, tuples: pl.DataFrame, *, arc: Arc, rounds: int) -> Refused:
        """Return tuples as what goes to the dead letters, each with its last values."""
        identity = list(arc.identity)
        values = [
            tuples.select(identity).join(
                seen.with_columns(pl.lit(True).alias("@there")),
                on=identity,
                how="left",
                nulls_equal=True,
                maintain_order="left",
            )
            for seen in self.trail
        ]
        rows = [side.to_dicts() for side in values]
        told = [_told(arc, states) for states in zip(*rows, strict=True)]
        reasons = [f"still changes after {rounds} rounds of loop {arc.name!r}: {t}" for t in told]
        return Refused(arc.name, tuples, reasons)


def _told(arc: Arc, states: Sequence[dict[str, Any]]) -> str:
    """Return the values of one tuple that changed, round by round."""
    changed = [n for n in arc.fields if any(state[n] != states[0][n] for state in states[1:])]
    return "; ".join(
        f"{name} " + ", ".join(_shown(state, name, arc.fields[name]) for state in states)
        for name in changed
    )


def _shown(state: dict[str, Any], name: str, kind: FieldType) -> str:
    """Return a value as people write it; "gone" of a tuple that isn't there."""
    value = state[name]
    if not state["@there"]:
        return "gone"
    if value is not None and kind.kind == "decimal":
        value = _EXACT.scaleb(Decimal(value), -kind.scale)
    return "null" if value is None else str(value)[:_SHOWN_CHARS]


FIRST_MARK = 8
"""The round from which on circles are looked for."""


@dataclass(frozen=True)
class Iterate(Box):
    """A loop, seen from outside: a box.

    Args:
        arc: The arc it writes, which is the variable of its body too.
        start: Name of the arc that it starts with.
        entering: The arcs that enter it, by name: what it starts with and what its body reads.
        body: What it does in a round.
        rounds: How often the body may change a tuple.
    """

    arc: Arc
    start: str
    entering: Mapping[str, Arc]
    body: Body
    rounds: int

    @property
    def above(self) -> list[Above]:
        """All that enters, as a whole: a chain may pass through any key."""
        return [Above(arc, (), list(arc.fields)) for arc in self.entering.values()]

    @property
    def kind(self) -> str:
        """What `errata explain` calls it."""
        return "iterate"

    @property
    def asks(self) -> bool:
        """Whether it ever needs history: not where each tuple goes round all by itself."""
        return bool(self.body.enters) or not self.body.is_linear

    @property
    def extent_ms(self) -> int:
        """How far back in event time it asks: a link of a chain may be as old as it likes."""
        return FOREVER_MS

    @property
    def looks_ahead(self) -> bool:
        """Whether what it gives may come of tuples that happened later."""
        return self.asks

    def describe(self) -> dict[str, object]:
        """Return what defines it, as plain data."""
        return {
            "iterate": self.start,
            "body": self.body.describe(),
            "gives": self.body.gives,
            "rounds": self.rounds,
            "inputs": list(self.inputs),
        }

    # ---------------------------------------------------------------- whole collections

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return the fixpoint over whole collections, and what is refused."""
        made, unsettled, raised = self._settled(dict(zip(self.entering, inputs, strict=True)))
        return made, [*raised.refused(), *self._refused(unsettled, unsettled.tuples)]

    def _refused(self, unsettled: Unsettled, tuples: pl.DataFrame) -> list[Refused]:
        """Return some of what is unsettled as what goes to the dead letters."""
        rounds = self.rounds
        return [unsettled.refused(tuples, arc=self.arc, rounds=rounds)] if tuples.height else []

    def _settled(self, contents: Contents) -> tuple[pl.DataFrame, Unsettled, Raised]:
        """Return what the loop comes to, what it does not settle, and what functions fail for.

        A round that gives what an earlier one gave closes a circle: what follows has been seen, and
        is passed over (Brent's search for one: the earlier round is 8, 16, 32, ...).
        """
        identity = list(self.arc.identity)
        start = contents[self.start].select(list(self.arc.fields))
        entered, failing = self.body.entered({name: contents[name] for name in self.body.enters})
        settled, trail = [start.clear()], [start]
        done, left = 0, self.rounds + 1  # the last one only tells what would go on
        marked, mark = 0, start
        while left:
            moving = trail[-1]
            made, failing_now = self.body.turned(moving, entered)
            failing = [*failing, *failing_now]
            changed = frames.identities(difference(self.arc, moving, made), identity)
            rest = moving.join(changed, on=identity, how="anti", nulls_equal=True)
            if self.body.is_linear:  # what a round leaves as it is stays so
                settled.append(rest)
                made = made.join(changed, on=identity, how="semi", nulls_equal=True)
            else:
                settled = [rest]
            trail = [*trail[1 - SHOWN_ROUNDS :], made]
            done, left = done + 1, left - 1
            if changed.is_empty():
                break
            if marked and difference(self.arc, mark, made).is_empty():
                left %= done - marked
            elif done >= FIRST_MARK and done.bit_count() == 1:
                marked, mark = done, made
        known = pl.concat([start, *trail[-2:]]).unique(identity, keep="first", maintain_order=True)
        unsettled = known.join(changed, on=identity, how="semi", nulls_equal=True)
        raised = Raised.of(self.body, self.entering, failing)
        return pl.concat(settled), Unsettled(raised.without(unsettled), trail), raised

    # ---------------------------------------------------------------- revisions

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> Answers:
        """Take one epoch's revisions; yields what it needs and is sent a frame for each input."""
        if not any(some.height for some in revisions):
            return Outcome(live, frames.none(self.arc.fields))
        given = dict(zip(self.entering, revisions, strict=True))
        now, counts = {}, {}
        if self.asks:
            ends = {"from_ms": [-FOREVER_MS], "to_ms": [FOREVER_MS]}
            answers = yield Need(INPUTS, pl.DataFrame(ends, schema=dict.fromkeys(ends, pl.Int64)))
            now = {
                name: tuples.select(list(arc.fields))
                for (name, arc), tuples in zip(self.entering.items(), answers, strict=True)
            }
            counts = {"replayed": sum(tuples.height for tuples in answers)}
        then = {name: undone(self.entering[name], now[name], given[name]) for name in now}
        if self.body.is_linear and not any(given[name].height for name in self.body.enters):
            fields = list(self.entering[self.start].fields)  # the others are where they were
            now[self.start] = frames.entering(given[self.start], fields)
            then[self.start] = frames.leaving(given[self.start], fields)
        before, was_unsettled, had_raised = self._settled(then)
        after, unsettled, raised = self._settled(now)
        revised = difference(self.arc, before, after)
        fresh = unsettled.beyond(was_unsettled)
        refused = [*raised.beyond(had_raised).refused(), *self._refused(unsettled, fresh)]
        return Outcome(live, revised, counts, refused)

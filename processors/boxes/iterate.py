"""Iterate: applies a body of boxes to an arc until nothing changes.

X(0) is the arc that the loop starts with. X(k + 1) is the body's output for X(k) and for the arcs
that enter from outside. The loop's arc holds the fixpoint: the X that equals its successor. Arcs
from outside are present from round 0 on, and no round comes after the bound. Since an epoch is
processed as one batch, its rounds run one after the other and are not visible outside: unlike the
nested scopes of Timely, a loop has no times of its own, and no frontier tracks its rounds.

A linear body is evaluated semi-naively: only tuples that changed in a round enter the next one.
Other bodies are evaluated on the whole content. The box keeps nothing between epochs. It requests
the content of all inputs as of the epoch, undoes the epoch's own revisions to get the content
before, and emits the difference of the two fixpoints.

Not every body terminates. A tuple that would still change after the last round is left out and
goes to the dead letters with its last values (`Unsettled`). So does a tuple for which a user's
function in the body fails in any round (`FunctionFailures`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

import polars as pl

from errata.processors.boxes.base import (
    FUNCTION_RAISED,
    INPUTS,
    WHY,
    Box,
    BoxSteps,
    HistoryInput,
    Live,
    Need,
    Outcome,
    Refused,
    difference,
    undo_revisions,
)
from errata.processors.boxes.lineage import traced
from errata.processors.boxes.matching import among
from errata.processors.windows.time_windows import FOREVER_MS
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType

Contents = Mapping[str, pl.DataFrame]
"""Tuples by arc."""

BoxRefusals = Sequence[tuple[str, Refused]]
"""The tuples for which users' functions failed, each with the name of the calling box."""


@dataclass(frozen=True)
class Body:
    """What a loop does in a round.

    Args:
        variable: The arc that the loop iterates on.
        boxes: In topological order; they read the variable, one another, and arcs from outside.
        gives: Name of the arc that becomes the variable in the next round.
    """

    variable: Arc
    boxes: tuple[Box, ...]
    gives: str

    @property
    def enters(self) -> tuple[str, ...]:
        """Names of the arcs outside the loop that it reads, each once."""
        inside = {self.variable.name, *(box.arc.name for box in self.boxes)}
        read = [name for box in self.boxes for name in box.inputs if name not in inside]
        return tuple(dict.fromkeys(read))

    @cached_property
    def _changing(self) -> frozenset[str]:
        """The arcs that change from round to round: the variable, and those derived from it."""
        names = {self.variable.name}
        for box in self.boxes:
            if names & set(box.inputs):
                names.add(box.arc.name)
        return frozenset(names)

    @cached_property
    def is_linear(self) -> bool:
        """Whether each tuple is processed independently of the others.

        This holds if every box on the path processes one tuple of the variable at a time and keeps
        its identity. The result for a tuple in one round is then the same in every round.
        """
        linear = {self.variable.name}
        for box in self.boxes:
            keeps_identity = box.arc.identity == self.variable.identity
            if keeps_identity and box.is_linear(linear, self._changing):
                linear.add(box.arc.name)
        return self.gives in linear

    def constants(self, entering: Contents) -> tuple[Contents, BoxRefusals]:
        """Return the entering arcs and the arcs derived from them alone: constant over rounds."""
        contents = dict(entering)
        return contents, self._fill(contents, changing=False)

    def lineage(
        self, results: pl.DataFrame, tuples: pl.DataFrame, constants: Contents
    ) -> Mapping[str, pl.DataFrame]:
        """Return by arc the tuples that some results of one round are computed from.

        Args:
            results: Their identities.
            tuples: All tuples of the variable before the round.
            constants: What the method `constants` returned.
        """
        contents = {**constants, self.variable.name: tuples}
        self._fill(contents, changing=True)
        return traced(self.boxes, [contents], {self.gives: results})

    def run_round(
        self, tuples: pl.DataFrame, constants: Contents
    ) -> tuple[pl.DataFrame, BoxRefusals]:
        """Return the variable after one round.

        Args:
            tuples: All tuples of the variable; any subset if the body is linear.
            constants: What the method `constants` returned.
        """
        contents = {**constants, self.variable.name: tuples}
        refusals = self._fill(contents, changing=True)
        return contents[self.gives].select(list(self.variable.fields)), refusals

    def _fill(self, contents: dict[str, pl.DataFrame], *, changing: bool) -> BoxRefusals:
        """Add the output of the boxes that change from round to round, or of those that don't."""
        refusals: list[tuple[str, Refused]] = []
        for box in self.boxes:
            if (box.arc.name in self._changing) == changing:
                inputs = [contents[name] for name in box.inputs]
                contents[box.arc.name], refused = box.applied(*inputs)
                refusals += [(box.arc.name, refusal) for refusal in refused]
        return refusals

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {box.arc.name: box.describe() for box in self.boxes}


@dataclass(frozen=True)
class FunctionFailures:
    """The tuples for which users' functions in a body fail.

    Args:
        body: The body.
        entering: The arcs that enter the loop, by their names in it.
        tuples: The tuples by box and arc, each once, as they were at the first failure of the box.
    """

    body: Body
    entering: Mapping[str, Arc]
    tuples: Mapping[tuple[str, str], pl.DataFrame]

    @classmethod
    def of(
        cls, body: Body, entering: Mapping[str, Arc], refusals: Iterable[tuple[str, Refused]]
    ) -> FunctionFailures:
        """Collect the failures of a loop's rounds, given in order, each with its box."""
        by_place: dict[tuple[str, str], list[pl.DataFrame]] = {}
        for box, refusal in refusals:
            why = pl.Series(WHY, refusal.reasons, pl.String)
            by_place.setdefault((box, refusal.arc), []).append(refusal.tuples.with_columns(why))
        arcs = {arc.name: arc for arc in (body.variable, *(box.arc for box in body.boxes))}
        arcs |= entering
        first_failures = {
            place: pl.concat(parts).unique(arcs[place[1]].identity, keep="first")
            for place, parts in by_place.items()
        }
        return cls(body, entering, first_failures)

    def without(self, tuples: pl.DataFrame) -> pl.DataFrame:
        """Return those tuples of the variable for which no function failed."""
        identity = list(self.body.variable.identity)
        for (_, arc), failed in self.tuples.items():
            if arc not in self.entering and set(identity) <= set(failed.columns):
                tuples = tuples.join(failed, on=identity, how="anti", nulls_equal=True)
        return tuples

    def new_since(self, before: FunctionFailures) -> FunctionFailures:
        """Return the failing tuples that did not fail before, or not with the same values."""
        remaining = dict(self.tuples)
        for place in remaining.keys() & before.tuples.keys():
            names = remaining[place].drop(WHY).columns
            earlier = before.tuples[place]
            remaining[place] = remaining[place].join(
                earlier, on=names, how="anti", nulls_equal=True
            )
        return replace(self, tuples=remaining)

    def refused(self) -> Iterator[Refused]:
        """Yield the dead letters. Tuples of arcs inside the loop are shown as the loop's own.

        These keep only the fields that the arc of the loop has too.
        """
        for (box, arc), tuples in self.tuples.items():
            shown_arc = self.entering.get(arc, self.body.variable)
            names = [
                n for n, kind in shown_arc.fields.items() if tuples.schema.get(n) == kind.dtype
            ]
            reasons = [f"in box {box!r} of the loop: {why}" for why in tuples[WHY]]
            if reasons:
                yield Refused(shown_arc.name, tuples.select(names), reasons, FUNCTION_RAISED)


SHOWN_ROUNDS = 3
"""The number of last values that a dead letter shows."""
_SHOWN_CHARS = 60
_EXACT = Context(prec=60)


@dataclass(frozen=True)
class Unsettled:
    """Tuples that still change after the last round.

    Args:
        tuples: As they entered the loop; those created in it, as they are in the last round.
        last_rounds: All tuples of the last rounds, newest last; in a linear loop those that still
            changed.
    """

    tuples: pl.DataFrame
    last_rounds: Sequence[pl.DataFrame]

    def new_since(self, before: Unsettled) -> pl.DataFrame:
        """Return the tuples that were not unsettled before, or not with the same values."""
        names = self.tuples.columns
        return self.tuples.join(before.tuples, on=names, how="anti", nulls_equal=True)

    def refused(self, tuples: pl.DataFrame, *, arc: Arc, rounds: int) -> Refused:
        """Return the dead letters for some tuples, each with its last values."""
        identity = list(arc.identity)
        by_round = [
            tuples.select(identity).join(
                round_tuples.with_columns(pl.lit(True).alias("@present")),
                on=identity,
                how="left",
                nulls_equal=True,
                maintain_order="left",
            )
            for round_tuples in self.last_rounds
        ]
        rows = [round_rows.to_dicts() for round_rows in by_round]
        histories = [_history(arc, states) for states in zip(*rows, strict=True)]
        reasons = [
            f"still changes after {rounds} rounds of loop {arc.name!r}: {history}"
            for history in histories
        ]
        return Refused(arc.name, tuples, reasons)


def _history(arc: Arc, states: Sequence[dict[str, Any]]) -> str:
    """Return the values of one tuple's changed fields, round by round."""
    changed = [n for n in arc.fields if any(state[n] != states[0][n] for state in states[1:])]
    return "; ".join(
        f"{name} " + ", ".join(_shown(state, name, arc.fields[name]) for state in states)
        for name in changed
    )


def _shown(state: dict[str, Any], name: str, kind: FieldType) -> str:
    """Return a value in readable form; "absent" if the tuple does not exist."""
    value = state[name]
    if not state["@present"]:
        return "absent"
    if value is not None and kind.kind == "decimal":
        value = _EXACT.scaleb(Decimal(value), -kind.scale)
    return "null" if value is None else str(value)[:_SHOWN_CHARS]


FIRST_CYCLE_CHECK = 8
"""The first round from which cycles are detected."""


@dataclass(frozen=True)
class Iterate(Box):
    """A loop as a box.

    Args:
        arc: The arc it writes, which is also the variable of its body.
        start: Name of the arc that it starts with.
        entering: The arcs that enter it, by name: the one it starts with and those its body reads.
        body: The boxes of one round.
        rounds: How often the body may change a tuple.
    """

    arc: Arc
    start: str
    entering: Mapping[str, Arc]
    body: Body
    rounds: int

    @property
    def history_inputs(self) -> list[HistoryInput]:
        """All arcs that enter, unpartitioned: a chain may pass through any key."""
        return [HistoryInput(arc, (), list(arc.fields)) for arc in self.entering.values()]

    @property
    def kind(self) -> str:
        """Its name in `errata explain`."""
        return "iterate"

    @property
    def requests_history(self) -> bool:
        """Whether it can need history: no if its body is linear and reads no arc from outside."""
        return bool(self.body.enters) or not self.body.is_linear

    @property
    def extent_ms(self) -> int:
        """How far back in event time it requests history: a link of a chain may have any age."""
        return FOREVER_MS

    @property
    def looks_ahead(self) -> bool:
        """Whether a result may depend on tuples with a later event time."""
        return self.requests_history

    def describe(self) -> dict[str, object]:
        """Return its definition as plain data."""
        return {
            "iterate": self.start,
            "body": self.body.describe(),
            "gives": self.body.gives,
            "rounds": self.rounds,
            "inputs": list(self.inputs),
        }

    # ---------------------------------------------------------------- whole collections

    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, list[Refused]]:
        """Return the fixpoint over whole collections, and the refused tuples."""
        fixpoint, unsettled, raised = self._fixpoint(dict(zip(self.entering, inputs, strict=True)))
        return fixpoint, [*raised.refused(), *self._refused(unsettled, unsettled.tuples)]

    def _refused(self, unsettled: Unsettled, tuples: pl.DataFrame) -> list[Refused]:
        """Return the dead letters for some of the unsettled tuples."""
        rounds = self.rounds
        return [unsettled.refused(tuples, arc=self.arc, rounds=rounds)] if tuples.height else []

    def _fixpoint(self, contents: Contents) -> tuple[pl.DataFrame, Unsettled, FunctionFailures]:
        """Return the fixpoint, the unsettled tuples, and those for which functions fail.

        A round that repeats an earlier round closes a cycle. Whole cycles are then skipped (Brent's
        cycle detection: the earlier round is 8, 16, 32, ...).
        """
        identity = list(self.arc.identity)
        start = contents[self.start].select(list(self.arc.fields))
        constants, refusals = self.body.constants(
            {name: contents[name] for name in self.body.enters}
        )
        settled, last_rounds = [start.clear()], [start]
        rounds_done = 0
        rounds_left = self.rounds + 1  # the extra round finds the tuples that still change
        marked_round, marked_tuples = 0, start
        while rounds_left:
            current = last_rounds[-1]
            result, new_refusals = self.body.run_round(current, constants)
            refusals = [*refusals, *new_refusals]
            changed = frames.identities(difference(self.arc, current, result), identity)
            unchanged = current.join(changed, on=identity, how="anti", nulls_equal=True)
            if self.body.is_linear:  # a tuple that a round leaves unchanged is settled
                settled.append(unchanged)
                result = result.join(changed, on=identity, how="semi", nulls_equal=True)
            else:
                settled = [unchanged]
            last_rounds = [*last_rounds[1 - SHOWN_ROUNDS :], result]
            rounds_done, rounds_left = rounds_done + 1, rounds_left - 1
            if changed.is_empty():
                break
            if marked_round and difference(self.arc, marked_tuples, result).is_empty():
                rounds_left %= rounds_done - marked_round
            elif rounds_done >= FIRST_CYCLE_CHECK and rounds_done.bit_count() == 1:
                marked_round, marked_tuples = rounds_done, result
        known = pl.concat([start, *last_rounds[-2:]]).unique(
            identity, keep="first", maintain_order=True
        )
        unsettled = known.join(changed, on=identity, how="semi", nulls_equal=True)
        raised = FunctionFailures.of(self.body, self.entering, refusals)
        return pl.concat(settled), Unsettled(raised.without(unsettled), last_rounds), raised

    # ---------------------------------------------------------------- lineage

    def lineage(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the tuples that some results are computed from, in all rounds."""
        contents = dict(zip(self.entering, inputs, strict=True))
        identity, tuples = list(self.arc.identity), contents[self.start]
        found = {name: [content.clear()] for name, content in contents.items()}
        constants, _ = self.body.constants({name: contents[name] for name in self.body.enters})
        rounds = [tuples.select(list(self.arc.fields))]
        for _ in range(self.rounds):
            result, _ = self.body.run_round(rounds[-1], constants)
            if difference(self.arc, rounds[-1], result).is_empty():
                break
            rounds.append(result)
        for before in reversed(rounds):
            read = dict(self.body.lineage(results, before, constants))
            own = read.pop(self.body.variable.name, before.clear())
            results = by_column.pick(own, identity)
            for name in found.keys() & read.keys():
                found[name].append(read[name])
        found[self.start].append(among(tuples, results, {name: name for name in identity}))
        return [pl.concat(parts).unique(maintain_order=True) for parts in found.values()]

    # ---------------------------------------------------------------- revisions

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Process one epoch's revisions; yields a need and is sent a frame for each input."""
        if not any(frame.height for frame in revisions):
            return Outcome(live, frames.none(self.arc.fields))
        changes = dict(zip(self.entering, revisions, strict=True))
        current, counts = {}, {}
        if self.requests_history:
            ends = {"from_ms": [-FOREVER_MS], "to_ms": [FOREVER_MS]}
            answers = yield Need(INPUTS, pl.DataFrame(ends, schema=dict.fromkeys(ends, pl.Int64)))
            current = {
                name: tuples.select(list(arc.fields))
                for (name, arc), tuples in zip(self.entering.items(), answers, strict=True)
            }
            counts = {"replayed": sum(tuples.height for tuples in answers)}
        previous = {n: undo_revisions(self.entering[n], current[n], changes[n]) for n in current}
        if self.body.is_linear and not any(changes[name].height for name in self.body.enters):
            fields = list(self.entering[self.start].fields)  # the others don't change
            current[self.start] = frames.entering(changes[self.start], fields)
            previous[self.start] = frames.leaving(changes[self.start], fields)
        before, unsettled_before, raised_before = self._fixpoint(previous)
        after, unsettled, raised = self._fixpoint(current)
        revised = difference(self.arc, before, after)
        new_unsettled = unsettled.new_since(unsettled_before)
        refused = [
            *raised.new_since(raised_before).refused(),
            *self._refused(unsettled, new_unsettled),
        ]
        return Outcome(live, revised, counts, refused)

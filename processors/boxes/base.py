"""The interface of a box: all that compiling, running, replaying and explaining ask of it.

Nobody else asks what kind of box it is. A new kind implements `Box`, or `Stateless` if it looks at
the revisions of an epoch alone, and declares what differs from the defaults here.

A box is a pure function on collections with an incremental form. `applied` is the function: it
makes of whole inputs the whole output. `process` is the incremental form: it makes of one epoch's
revisions of the inputs the revisions of the output. The laws hold one against the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import polars as pl

from errata.schemas.arc import Arc

if TYPE_CHECKING:
    from errata.processors.boxes.modes import Choice, ModeRequest
    from errata.processors.declare.faults import Fault

INPUTS, RESULTS = "inputs", "results"

REFUSED_BY_BOX, FUNCTION_RAISED = "refused by box", "function raised"
"""Kinds of refusal, for counting."""

Failures = Mapping[int, str]
"""Why a user's function failed, by the row that it failed for."""

WHY = "@why"
"""The column of that, beside tuples that are left out."""


@dataclass(frozen=True)
class Live:
    """What a box keeps between epochs.

    Args:
        states: Of the open windows of an aggregate; of all windows if it is resident.
        tuples: The whole input of an aggregate that is resident, else none.
    """

    states: pl.DataFrame = field(default_factory=pl.DataFrame)
    tuples: pl.DataFrame | None = None

    @property
    def height(self) -> int:
        """How many rows are kept."""
        return self.states.height + (0 if self.tuples is None else self.tuples.height)


@dataclass(frozen=True)
class Need:
    """What a box lacks: inputs, or results that it emitted.

    Args:
        kind: ``inputs`` (as of the epoch in hand) or ``results`` (as emitted before it).
        ranges: Group fields as the first input has them, ``from_ms`` and ``to_ms`` (half-open
            event times). The answers may hold more.
    """

    kind: str
    ranges: pl.DataFrame


@dataclass(frozen=True)
class Refused:
    """Tuples that entered a box in an epoch and that it can give nothing for.

    Args:
        arc: Name of the arc that they are tuples of.
        tuples: With the arc's fields, or its identity alone where there is no more.
        reasons: Why, for each of them.
        kind: What all of them have in common.
    """

    arc: str
    tuples: pl.DataFrame
    reasons: Sequence[str]
    kind: str = REFUSED_BY_BOX

    def only(self, rows: pl.Series) -> Refused:
        """Return some of the tuples, by index."""
        reasons = [self.reasons[row] for row in rows]
        return replace(self, tuples=self.tuples[rows], reasons=reasons)


def failed(arc: str, tuples: pl.DataFrame, failures: Failures) -> list[Refused]:
    """Return what goes to the dead letters of tuples that a user's function failed for."""
    rows = sorted(failures)
    if not rows:
        return []
    return [Refused(arc, tuples[rows], [failures[row] for row in rows], FUNCTION_RAISED)]


def without(failures: Failures, height: int) -> pl.Series:
    """Return for each row whether nothing failed for it."""
    there = pl.repeat(True, height, dtype=pl.Boolean, eager=True)
    return there.scatter(sorted(failures), False) if failures else there


@dataclass(frozen=True)
class Outcome:
    """What an epoch gave a box.

    Args:
        live: What to keep after it.
        revisions: Of the output, at most one per identity.
        counts: Running totals to add.
        refused: What goes to the dead letters.
    """

    live: Live
    revisions: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)
    refused: Sequence[Refused] = ()


Answers = Generator[Need, Sequence[pl.DataFrame], Outcome]
"""One epoch of a box: yields what it lacks and is sent it, a frame for each arc that it reads."""


@dataclass(frozen=True)
class Above:
    """An input of a box that needs history, as it is brought together where it is recomputed.

    Args:
        arc: The arc.
        by: Tuples that are equal in these fields are needed in one partition; field by field those
            of the first input, whose names ranges go by.
        columns: The fields that the box looks at.
    """

    arc: Arc
    by: tuple[str, ...]
    columns: Sequence[str]


class Filter(Protocol):
    """A box that passes some tuples and hides the others."""

    @property
    def columns(self) -> frozenset[str]:
        """The fields that it judges by."""

    @property
    def text(self) -> str:
        """Its predicate, as the user wrote it."""

    def passes(self, tuples: pl.DataFrame) -> pl.Series:
        """Return for each tuple whether it passes; never null."""


class Box(ABC):
    """A box.

    Attributes:
        arc: The arc it writes, whose name the box shares.
    """

    arc: Arc

    # ---------------------------------------------------------------- what it declares and reads

    @property
    def kind(self) -> str:
        """What `errata explain` calls boxes of its kind."""
        return type(self).__name__.lower()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads, each once."""
        return tuple(dict.fromkeys(above.arc.name for above in self.above))

    @property
    @abstractmethod
    def above(self) -> list[Above]:
        """Its inputs and what they are partitioned by; none of a box that needs no history.

        Of what it asks for, it looks only at tuples whose `by` is among the asked ranges.
        """

    @property
    def keyed(self) -> list[tuple[Arc, dict[str, str]]]:
        """The arcs of `above`, each with its `by`, by what the first one calls these fields."""
        first = self.above[0].by
        return [(above.arc, dict(zip(first, above.by, strict=True))) for above in self.above]

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Return what defines it, as plain data: part of a plan's fingerprint."""

    @property
    def filter(self) -> Filter | None:
        """Itself, if it is a filter."""
        return None

    @property
    def moves_event_time(self) -> bool:
        """Whether its tuples have another event time than those they are made of."""
        return False

    # ---------------------------------------------------------------- whole collections

    @abstractmethod
    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return what the box makes of whole collections at watermark `wm`, and what it refuses.

        Args:
            inputs: For each of `inputs` its tuples.
            wm: The watermark, ms.
        """

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return what the box makes of whole collections at watermark `wm`."""
        return self.applied(*inputs, wm=wm)[0]

    # ---------------------------------------------------------------- an epoch

    @abstractmethod
    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> Answers:
        """Take one epoch's revisions; yields what it needs and is sent the answers.

        Args:
            revisions: For each of `inputs` its revisions in this epoch, at most one per identity.
            live: What was kept after the epoch before.
            wm_before: Watermark of the epoch before.
            wm: Watermark of this epoch, never smaller.

        Returns:
            What to keep after the epoch, and the revisions of the output.
        """

    def kinds(self, revisions: pl.DataFrame, *, wm_before: int) -> dict[str, int]:
        """Return how many of its revisions are results that have closed, and that are revised.

        Nothing where results don't close.
        """
        return {}

    # ---------------------------------------------------------------- between epochs

    is_stateless: bool = False
    """Whether it looks at the revisions of an epoch alone: it keeps nothing and asks nobody."""

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        return Live()

    def live_from_ms(self, wm: int) -> int | None:
        """Return the event time from which on the inputs tell what is kept at watermark `wm`.

        None if nothing is kept.
        """
        return None

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Return what is kept at watermark `wm`, from the inputs since `live_from_ms`, or more."""
        return Live()

    def closes(self, live: Live, *, wm: int) -> int | None:
        """Return the watermark by which an epoch without input has work again; None: never.

        Args:
            live: What is kept at watermark `wm`.
            wm: The watermark of the last epoch that was processed.
        """
        return None

    @property
    def waits(self) -> bool:
        """Whether what it makes of tuples is emitted only once the watermark has passed it."""
        return False

    # ---------------------------------------------------------------- how far it replays

    @property
    def asks(self) -> bool:
        """Whether it ever needs history."""
        return True

    @property
    def need(self) -> str:
        """What it needs if it asks, for the message when there is no such thing."""
        return "a connection point upstream of each side, to look its tuples up in"

    @property
    def extent_ms(self) -> int:
        """How far back in event time it asks for one revision, in ms."""
        return 0

    @property
    def looks_ahead(self) -> bool:
        """Whether what it gives at some event time may depend on tuples that happened later."""
        return False

    @property
    def computed(self) -> frozenset[str]:
        """The fields of its arc that are not the first input's, though they have their names."""
        return frozenset()

    def replayed_from(self, pushed: Mapping[str, str]) -> Mapping[str, dict[str, str]] | None:
        """Return what its inputs are asked so that its own tuples can be recomputed from them.

        Args:
            pushed: Fields of its arc that only some values are needed of; the field of what is
                needed by each.

        Returns:
            The same by input; None if nothing says which event times of its inputs are needed.
        """
        pushed = without_fields(pushed, self.computed)
        return {
            arc.name: {by[name]: needed for name, needed in pushed.items() if name in by}
            for arc, by in self.keyed
        }

    @property
    def result_delay_ms(self) -> int | None:
        """How long before a result the tuples behind it may lie, in ms.

        None if its event time does not bound that, or where results are no windows.
        """
        return None

    @property
    def only_adds(self) -> bool:
        """Whether a tuple more in an input never takes a tuple of the output away."""
        return False

    # ---------------------------------------------------------------- modes

    def choose_mode(self, request: ModeRequest) -> Choice | Fault | None:
        """Return how it revises results that are out already; None if there is but one way.

        Args:
            request: What was asked for, and what is known of the boxes around it.
        """
        return None

    def in_mode(self, choice: Choice, filters: tuple[Filter, ...]) -> Box:
        """Return the box as it works in a mode.

        Args:
            choice: The mode.
            filters: Those between it and the connection point that its stored results are on.
        """
        return self

    def hides_results(self, identity: Collection[str]) -> str | None:
        """Return why results of an aggregate above can't be revised from what it lets through.

        None if it keeps identity and hidden part of each result that it lets through.

        Args:
            identity: The identity of these results.
        """
        return (
            f"{self.kind} {self.arc.name!r} below it does not carry the states behind its results"
        )

    @property
    def stored(self) -> Arc:
        """What of its results is fetched downstream: the identity and the hidden part."""
        return self.arc

    # ---------------------------------------------------------------- where it may run

    is_tuple_wise: bool = False
    """Whether it makes of each tuple of its one input at most one, of the same identity."""

    runs_before_spark: bool = False
    """Whether a job on Spark may run it, in front of the aggregate that is placed there."""

    def is_linear(self, linear: Collection[str], turning: Collection[str]) -> bool:
        """Whether, within a loop, it makes something of each tuple that goes round for itself.

        Args:
            linear: Arcs of which each tuple goes round for itself.
            turning: Arcs that change from round to round.
        """
        return False

    def of_input(self, name: str) -> Box:
        """Return what it does to one of its inputs alone; only of a stateless box."""
        return self


class Stateless(Box):
    """A box that looks at the revisions of an epoch alone: it revises from the record (3.2)."""

    is_stateless = True

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads, each once."""

    @property
    def above(self) -> list[Above]:
        """Nothing: it needs no history."""
        return []

    @property
    def asks(self) -> bool:
        """Whether it ever needs history: no."""
        return False

    def replayed_from(self, pushed: Mapping[str, str]) -> Mapping[str, dict[str, str]] | None:
        """Return what its inputs are asked: see `Box.replayed_from`."""
        passed = without_fields(pushed, self.computed)
        return None if self.moves_event_time else dict.fromkeys(self.inputs, passed)

    @abstractmethod
    def revise(self, *revisions: pl.DataFrame) -> Outcome:
        """Return what one epoch's revisions of the inputs cause.

        Args:
            revisions: For each of `inputs`, at most one per identity.
        """

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> Answers:
        """Take one epoch's revisions; yields nothing."""
        yield from ()
        return self.revise(*revisions)

    def is_linear(self, linear: Collection[str], turning: Collection[str]) -> bool:
        """Whether each tuple that goes round does so for itself: it looks at one at a time."""
        return set(self.inputs) <= set(linear)


def without_fields(pushed: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return what is pushed down, but for some fields."""
    return {name: needed for name, needed in pushed.items() if name not in names}

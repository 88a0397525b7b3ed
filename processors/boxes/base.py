"""The interface of a box: everything that compiling, running, replaying and explaining use of it.

No other module checks the kind of a box. A new kind implements `Box`, or `Stateless` if it needs
only the revisions of an epoch, and overrides the defaults declared here.

A box is a pure function on collections with an incremental form. `applied` is the function: it
computes the whole output from whole inputs. `process` is the incremental form: it computes the
revisions of the output from one epoch's revisions of the inputs. The laws compare the two.
`difference` turns two contents of an arc into the revisions between them; `undo_revisions` undoes
revisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from errata.processors.boxes.bounds import EXACT, Bounds
from errata.processors.boxes.costs import UNKNOWN, Cost, Sizes
from errata.processors.boxes.matching import of_identities
from errata.schemas import by_column
from errata.schemas import revisions as frames
from errata.schemas.arc import Arc

if TYPE_CHECKING:
    from errata.processors.boxes.modes import Choice, ModeRequest
    from errata.processors.declare.faults import Fault

INPUTS, RESULTS = "inputs", "results"

REFUSED_BY_BOX, FUNCTION_RAISED = "refused by box", "function raised"
"""Kinds of dead letters, for counting."""

Failures = Mapping[int, str]
"""Why a user's function failed, by row."""

WHY = "@why"
"""The column that holds this reason, in frames of tuples that are left out."""


@dataclass(frozen=True)
class Live:
    """What a box keeps between epochs.

    Args:
        states: States of the open windows of an aggregate; of all windows if it is resident.
        tuples: The whole input of a resident aggregate; None for any other box.
        sizes: How large the windows of an aggregate are.
        kept_back: How many results were emitted with another value than they have.
        settles: Whether these are emitted in this epoch, as they are.
    """

    states: pl.DataFrame = field(default_factory=pl.DataFrame)
    tuples: pl.DataFrame | None = None
    sizes: Sizes = UNKNOWN
    kept_back: int = 0
    settles: bool = False

    @property
    def height(self) -> int:
        """The number of rows kept."""
        return self.states.height + (0 if self.tuples is None else self.tuples.height)


@dataclass(frozen=True)
class Need:
    """A request of a box for history: inputs, or results that it emitted.

    Args:
        kind: ``inputs`` (as of the current epoch) or ``results`` (as emitted before it).
        ranges: Group fields under their names in the first input, ``from_ms`` and ``to_ms``
            (half-open event times). The answers may hold more.
        take: May be given parts of the answer as they arrive, each tuple once. The answer then
            holds only what is left. None: the answer holds all.
    """

    kind: str
    ranges: pl.DataFrame
    take: Callable[[pl.DataFrame], None] | None = None


@dataclass(frozen=True)
class Refused:
    """Tuples that entered a box in an epoch and for which it has no result.

    Args:
        arc: Name of the arc of the tuples.
        tuples: The tuples, with the arc's fields, or only its identity if no more is known.
        reasons: The reason for each tuple.
        kind: The kind of dead letter, the same for all of them.
    """

    arc: str
    tuples: pl.DataFrame
    reasons: Sequence[str]
    kind: str = REFUSED_BY_BOX

    def only(self, rows: pl.Series) -> Refused:
        """Return the tuples at some indexes."""
        reasons = [self.reasons[row] for row in rows]
        return replace(self, tuples=self.tuples[rows], reasons=reasons)


def dead_letters_for(arc: str, tuples: pl.DataFrame, failures: Failures) -> list[Refused]:
    """Return the dead letters for the tuples for which a user's function failed."""
    rows = sorted(failures)
    if not rows:
        return []
    return [Refused(arc, tuples[rows], [failures[row] for row in rows], FUNCTION_RAISED)]


def without_failures(failures: Failures, height: int) -> pl.Series:
    """Return for each row whether it has no failure."""
    succeeded = by_column.constant(True, height, pl.Boolean)
    return succeeded.scatter(sorted(failures), False) if failures else succeeded


@dataclass(frozen=True)
class Outcome:
    """What a box returns for an epoch.

    Args:
        live: What to keep after it.
        revisions: Revisions of the output, at most one per identity.
        counts: Amounts to add to running totals.
        refused: Tuples that go to the dead letters.
    """

    live: Live
    revisions: pl.DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)
    refused: Sequence[Refused] = ()


BoxSteps = Generator[Need, Sequence[pl.DataFrame], Outcome]
"""One epoch of a box: yields needs and is sent the answers, one frame for each arc it reads."""


@dataclass(frozen=True)
class HistoryInput:
    """An input of a box that needs history, and how that input must be partitioned.

    Args:
        arc: The arc.
        by: Tuples that are equal in these fields must be in one partition. The fields correspond
            one by one to those of the first input, whose names are used in ranges.
        columns: The fields that the box reads.
    """

    arc: Arc
    by: tuple[str, ...]
    columns: Sequence[str]


class Filter(Protocol):
    """A box that passes some tuples and drops the others."""

    @property
    def columns(self) -> frozenset[str]:
        """The fields that its predicate reads."""

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
        """The name of this kind of box in `errata explain`."""
        return type(self).__name__.lower()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads, each once."""
        return tuple(dict.fromkeys(read.arc.name for read in self.history_inputs))

    @property
    @abstractmethod
    def history_inputs(self) -> list[HistoryInput]:
        """Its inputs and their partitioning; empty for a box that needs no history.

        Of the answers to a need, it reads only tuples whose `by` is among the requested ranges.
        """

    @property
    def keyed(self) -> list[tuple[Arc, dict[str, str]]]:
        """The history inputs, each with its `by` fields by their names in the first input."""
        names = self.history_inputs[0].by
        return [(one.arc, dict(zip(names, one.by, strict=True))) for one in self.history_inputs]

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Return the box's definition as plain data: part of a plan's fingerprint.

        It names the arcs that the box reads, so that `described_inputs` returns its `inputs`.
        """

    @property
    def filter(self) -> Filter | None:
        """Itself, if it is a filter."""
        return None

    @property
    def moves_event_time(self) -> bool:
        """Whether its tuples have a different event time than the input tuples behind them."""
        return False

    # ---------------------------------------------------------------- whole collections

    @abstractmethod
    def applied(self, *inputs: pl.DataFrame, wm: int = 0) -> tuple[pl.DataFrame, Sequence[Refused]]:
        """Return the output for whole collections at watermark `wm`, and the refused tuples.

        Args:
            inputs: The tuples of each of `inputs`.
            wm: The watermark, ms.
        """

    def recompute(self, *inputs: pl.DataFrame, wm: int = 0) -> pl.DataFrame:
        """Return the output for whole collections at watermark `wm`."""
        return self.applied(*inputs, wm=wm)[0]

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return for each input the tuples that may matter for some results: by default all.

        If a tuple enters or leaves an input and this changes one of the results, it is among those
        of the contents before, or of the contents after.

        Args:
            results: Identities of tuples of its arc, which need not exist.
            inputs: The tuples of each of `inputs`.
        """
        return list(inputs)

    def lineage(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return for each input the tuples that some results are computed from.

        The results are the same if the inputs hold nothing else. Arguments as in `dependencies`,
        of which these are a part.
        """
        return self.dependencies(results, *inputs)

    # ---------------------------------------------------------------- an epoch

    @abstractmethod
    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Process one epoch's revisions; yields what it needs and is sent the answers.

        Args:
            revisions: The revisions of each of `inputs` in this epoch, at most one per identity.
            live: What was kept after the previous epoch.
            wm_before: Watermark of the previous epoch.
            wm: Watermark of this epoch, never smaller.

        Returns:
            What to keep after the epoch, and the revisions of the output.
        """

    def count_results(self, revisions: pl.DataFrame, *, wm_before: int) -> dict[str, int]:
        """Count its revisions: results that closed, and results that were revised.

        Empty if its results don't close.
        """
        return {}

    # ---------------------------------------------------------------- between epochs

    is_stateless: bool = False
    """Whether it needs only the revisions of an epoch: it keeps nothing and requests nothing."""

    def no_live(self) -> Live:
        """Return what is kept before the first epoch."""
        return Live()

    def live_from_ms(self, wm: int) -> int | None:
        """Return the event time from which the inputs determine what is kept at watermark `wm`.

        None if nothing is kept.
        """
        return None

    def restore(self, *inputs: pl.DataFrame, wm: int) -> Live:
        """Rebuild what is kept at `wm` from the inputs since `live_from_ms` or an earlier time."""
        return Live()

    def informed(self, live: Live, counts: Mapping[str, int]) -> Live:
        """Return what is kept, with what the running totals tell of the time before a restart.

        Args:
            live: What was restored from the inputs.
            counts: The box's running totals (`Outcome.counts`); those of 0 may be absent.
        """
        return live

    def closes(self, live: Live, *, wm: int) -> int | None:
        """Return the watermark at which an epoch without input has work again; None: never.

        Args:
            live: What is kept at watermark `wm`.
            wm: Watermark of the last processed epoch.
        """
        return None

    @property
    def emits_on_close(self) -> bool:
        """Whether results are emitted only once the watermark has passed them."""
        return False

    # ---------------------------------------------------------------- how far it replays

    @property
    def requests_history(self) -> bool:
        """Whether it can need history."""
        return True

    reads_back: bool = False
    """Whether it needs what it emitted before, from its own arc, which is a connection point."""

    @property
    def need(self) -> str:
        """What it needs if it can request history, for the message when that is missing."""
        return "a connection point upstream of each side, to look its tuples up in"

    @property
    def extent_ms(self) -> int:
        """How far back in event time it requests history for one revision, in ms."""
        return 0

    @property
    def looks_ahead(self) -> bool:
        """Whether a result may depend on tuples with a later event time."""
        return False

    @property
    def computed(self) -> frozenset[str]:
        """The fields of its arc that it computes, even if the first input has the same names."""
        return frozenset()

    def replayed_from(self, pushed: Mapping[str, str]) -> Mapping[str, dict[str, str]] | None:
        """Return the field restrictions to push to each input to recompute the box's own tuples.

        Args:
            pushed: Fields of its arc that are restricted to some values, each with the field of
                the need that holds these values.

        Returns:
            The same by input; None if the needed event times of its inputs can't be bounded.
        """
        pushed = without_fields(pushed, self.computed)
        return {
            arc.name: {by[name]: needed for name, needed in pushed.items() if name in by}
            for arc, by in self.keyed
        }

    @property
    def result_delay_ms(self) -> int | None:
        """How much earlier than a result its input tuples may be, in ms.

        None if a result's event time does not bound that, or if results are not windows.
        """
        return None

    @property
    def only_adds(self) -> bool:
        """Whether an additional input tuple never removes an output tuple."""
        return False

    def bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc, from those of its inputs: exact ones, or none, stay so."""
        if lost := next((each for each in above if each.why), None):
            return lost
        return EXACT if all(each.is_exact for each in above) else self._bounds(*above)

    def _bounds(self, *above: Bounds) -> Bounds:
        """Return the bounds of its arc, where some fields of its inputs are inexact."""
        return self._unbounded

    @property
    def _unbounded(self) -> Bounds:
        """That nothing has a bound, because of this box."""
        return Bounds(why=f"{self.kind} {self.arc.name!r} may have other tuples")

    # ---------------------------------------------------------------- modes

    def choose_mode(self, request: ModeRequest) -> Choice | Fault | None:
        """Return how it revises results that it has emitted; None if there is only one way.

        Args:
            request: The requested mode, and what is known of the boxes around it.
        """
        return None

    @property
    def cost(self) -> Cost | None:
        """What the revision of one tuple costs; None if its results are not windows."""
        return None

    def in_mode(self, choice: Choice, filters: tuple[Filter, ...]) -> Box:
        """Return the box configured for a mode.

        Args:
            choice: The mode.
            filters: The filters between it and the connection point that holds its results.
        """
        return self

    def hides_results(self, identity: Collection[str]) -> str | None:
        """Return why results of an upstream aggregate can't be revised from this box's output.

        None if it keeps the identity and the hidden fields of each result that it passes.

        Args:
            identity: The identity of these results.
        """
        return (
            f"{self.kind} {self.arc.name!r} below it does not carry the states behind its results"
        )

    @property
    def stored(self) -> Arc:
        """The fields of its results that downstream mode fetches: identity and hidden fields."""
        return self.arc

    @property
    def kept_back(self) -> Arc | None:
        """The arc of those of its results that are not as its own arc has them; None: all are."""
        return None

    def exact_results(self, stored: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
        """Return stored results as they are, if some are in `kept_back`."""
        return stored

    # ---------------------------------------------------------------- where it may run

    is_tuple_wise: bool = False
    """Whether each tuple of its one input has at most one output tuple, of the same identity."""

    @property
    def identities_of(self) -> str | None:
        """The input that holds the identity of each of its tuples; None if there is none."""
        return self.inputs[0] if self.is_tuple_wise else None

    @property
    def disjoint(self) -> tuple[str, ...]:
        """The inputs of which no two may hold one identity in one epoch."""
        return ()

    runs_before_spark: bool = False
    """Whether a Spark job may run it, before the box that is placed there."""

    is_grouped_on_spark: bool = False
    """Whether on Spark its groups are divided by Spark's shuffle, and not by partitions."""

    def is_linear(self, linear: Collection[str], changing: Collection[str]) -> bool:
        """Whether it is linear within a loop: it processes each tuple independently of the others.

        Args:
            linear: Arcs whose tuples are processed independently of one another.
            changing: Arcs that change from round to round.
        """
        return False

    def of_input(self, name: str) -> Box:
        """Return the box restricted to one of its inputs; only for a stateless box."""
        return self


class Stateless(Box):
    """A box that needs only an epoch's revisions: it revises from the record (Borealis 3.2)."""

    is_stateless = True

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of the arcs it reads, each once."""

    @property
    def history_inputs(self) -> list[HistoryInput]:
        """Empty: it needs no history."""
        return []

    @property
    def requests_history(self) -> bool:
        """Whether it can need history: no."""
        return False

    def replayed_from(self, pushed: Mapping[str, str]) -> Mapping[str, dict[str, str]] | None:
        """Return the field restrictions to push to each input; see `Box.replayed_from`."""
        unchanged = without_fields(pushed, self.computed)
        return None if self.moves_event_time else dict.fromkeys(self.inputs, unchanged)

    @abstractmethod
    def revise(self, *revisions: pl.DataFrame) -> Outcome:
        """Return the outcome of one epoch's revisions of the inputs.

        Args:
            revisions: For each of `inputs`, at most one per identity.
        """

    def process(self, *revisions: pl.DataFrame, live: Live, wm_before: int, wm: int) -> BoxSteps:
        """Process one epoch's revisions; yields nothing."""
        yield from ()
        return self.revise(*revisions)

    def dependencies(self, results: pl.DataFrame, *inputs: pl.DataFrame) -> list[pl.DataFrame]:
        """Return for each input the tuples of the same identities."""
        return of_identities(self.arc, results, inputs)

    def is_linear(self, linear: Collection[str], changing: Collection[str]) -> bool:
        """Whether it is linear within a loop: it processes one tuple at a time."""
        return set(self.inputs) <= set(linear)


def without_fields(pushed: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the pushed-down fields without some names."""
    return {name: needed for name, needed in pushed.items() if name not in names}


def difference(arc: Arc, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Return the revisions that turn one content of an arc into another, one per identity.

    Example:
        >>> from errata.schemas.fields import FieldType
        >>> fields = {"x": FieldType("long"), "y": FieldType("long")}
        >>> arc = Arc("a", fields, identity=("x",), event_time="x", partition_by=())
        >>> before = pl.DataFrame({"x": [1, 2], "y": [5, 6]})
        >>> difference(arc, before, pl.DataFrame({"x": [1], "y": [7]}))["op"].to_list()
        [2, 1]
    """
    identity = list(arc.identity)
    keys = pl.concat([by_column.pick(each, identity) for each in (before, after)])
    keys = keys.unique(maintain_order=True)

    def side(tuples: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        present = by_column.constant(True, tuples.height, pl.Boolean).alias("@present")
        joined = keys.join(
            by_column.beside(tuples, present),
            on=identity,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        return by_column.pick(joined, arc.fields), joined["@present"].fill_null(False)

    return frames.between(*side(before), *side(after))


def undo_revisions(arc: Arc, content: pl.DataFrame, revisions: pl.DataFrame) -> pl.DataFrame:
    """Return the tuples as they were before some revisions."""
    identity, names = list(arc.identity), list(arc.fields)
    touched = frames.identities(revisions, identity)
    remaining = content.join(touched, on=identity, how="anti", nulls_equal=True)
    return pl.concat([remaining, frames.leaving(revisions, names)])


def described_inputs(description: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arcs that a box reads, from its description (`Box.describe`).

    Example:
        >>> described_inputs({"input": "trades", "where": "size > 0"})
        ('trades',)
    """
    for several in ("union", "inputs"):
        if several in description:
            return tuple(description[several])
    return (description.get("forward") or description["input"],)

"""The boxes of a network as a user declares them: names and texts, not checked yet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from errata.processors.declare.faults import Place
from errata.processors.windows.time_windows import AnyWindow

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The form of names of boxes, arcs, fields and aliases."""
Duration = str | int
EARLIEST, LATEST = "earliest", "latest"
BOUND = "arc"
"""The envelope of a source that is the arc of another network: it is read where it is."""
MAX_AHEAD = "1h"
"""How far an event time may be ahead of the clock, by default."""
SPARK, PROCESS = "spark", "process"
"""Where a box runs."""
ON_CLOSE, ON_UPDATE = "on_close", "on_update"
REST = "rest"
"""The predicate of a route's last output: all tuples that no other output took."""


def names(values: Sequence[str]) -> tuple[str, ...]:
    """Return names as a tuple; a single name may be passed as text."""
    return (values,) if isinstance(values, str) else tuple(values)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The base of all boxes: a name, which its output arc shares, and the place of declaration."""

    name: str
    place: Place
    input: str | None = None
    scope: str | None = None
    place_of_work: str | None = None
    keep: Duration | None = None
    significance: Mapping[str, Any] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the arcs that the box reads."""
        return () if self.input is None else (self.input,)

    def grouped_by(self, arc: str) -> Sequence[str] | None:
        """Return the fields of an input by which the box needs equal tuples in one partition.

        None if it processes one tuple at a time, or always has an exchange of its own.
        """
        return None

    def keeps(self, arc: str, fields: frozenset[str]) -> frozenset[str] | None:
        """Return which of some fields of an input the box's arc has unchanged.

        None if nothing downstream depends on how the input is partitioned.
        """
        return fields

    allowed_in_loop: ClassVar[bool] = False
    """Whether a loop may contain it."""

    def loop_fault(self) -> tuple[str, str, str] | None:
        """Return why the box, as declared, can't be in a loop: need, found and remedy."""
        return None


@dataclass(frozen=True)
class Sink:
    """A user's topic to which an arc's revisions are written, without hidden fields."""

    arc: str
    topic: str
    envelope: str
    format: str
    place: Place | None = None


@dataclass(frozen=True, kw_only=True)
class Source(Declaration):
    """A user's topic that a network ingests."""

    topic: str
    envelope: str
    format: str
    fields: Mapping[str, Any] | None
    identity: Sequence[str] | None
    event_time: str | None
    partition_by: Sequence[str] | None
    partitions: int | None
    lateness: Duration
    idle_after: Duration | None
    max_ahead: Duration | None = MAX_AHEAD
    rekey: bool = False
    start: str | int = EARLIEST

    @property
    def is_complete(self) -> bool:
        """Whether it leaves nothing to a schema registry, or to the network that it is bound to."""
        is_timed = self.event_time is not None or self.envelope != BOUND
        return self.fields is not None and self.identity is not None and is_timed


@dataclass(frozen=True, kw_only=True)
class Where(Declaration):
    """Filter: passes the tuples for which a predicate is true.

    An output of a route passes them only if no earlier output of it does.
    """

    predicate: str
    earlier: Sequence[str] = ()
    is_route: bool = False

    allowed_in_loop: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Union(Declaration):
    """All tuples of several arcs with the same fields; `inputs` are their names."""

    inputs: tuple[str, ...]
    tag: str

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the arcs that the box reads."""
        return self.inputs

    allowed_in_loop: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Join(Declaration):
    """Pairs of tuples of two arcs that are equal in some fields; `aliases` name them."""

    inputs: tuple[str, ...]
    aliases: tuple[str, str]
    on: Sequence[str]
    how: str
    expressions: Mapping[str, Any]
    partitions: int | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the arcs that the box reads."""
        return tuple(dict.fromkeys(self.inputs))

    allowed_in_loop: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Lookup(Declaration):
    """Tuples of an arc, each with the tuple of the arc `other` whose identity it holds."""

    other: str
    alias: str
    on: Mapping[str, str]
    how: str
    expressions: Mapping[str, Any]
    partitions: int | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the arcs that the box reads."""
        return tuple(dict.fromkeys((self.input or "", self.other)))

    allowed_in_loop: ClassVar[bool] = True

    def grouped_by(self, arc: str) -> Sequence[str] | None:
        """Return the fields of an input that are matched."""
        return list(self.on) if arc == self.input else list(self.on.values())

    def keeps(self, arc: str, fields: frozenset[str]) -> frozenset[str]:
        """Return which fields of the left side pass unchanged; the right side passes none."""
        return fields - set(self.expressions) if arc == self.input else frozenset()


@dataclass(frozen=True, kw_only=True)
class Iterate(Declaration):
    """A loop; within its body, the loop's name is the arc that enters each round.

    Args:
        rounds: How often the body may change a tuple.
        body: Its boxes, in the order of declaration.
        gives: The box whose arc enters the next round.
        sinks: Sinks that were declared in the body; the compiler refuses them.
    """

    rounds: int
    body: Sequence[Declaration] = ()
    gives: str = ""
    sinks: Sequence[Sink] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the arcs that enter the loop; the start is the first."""
        inside = {self.name, *(box.name for box in self.body)}
        outer = [name for box in self.body for name in box.reads if name not in inside]
        return tuple(dict.fromkeys([self.input or "", *outer]))

    def keeps(self, arc: str, fields: frozenset[str]) -> None:
        """Return None: a loop runs on one partition, however its inputs are partitioned."""
        return None


@dataclass(frozen=True, kw_only=True)
class Map(Declaration):
    """Keeps the fields; adds some, or replaces them."""

    expressions: Mapping[str, Any]
    partitions: int | None = None

    allowed_in_loop: ClassVar[bool] = True

    def keeps(self, arc: str, fields: frozenset[str]) -> frozenset[str]:
        """Return the fields that it does not replace."""
        return fields - set(self.expressions)


@dataclass(frozen=True, kw_only=True)
class Lag(Declaration):
    """Keeps the fields; adds results over the tuple `offset` rows before, in its group."""

    by: Sequence[str]
    offset: int
    expressions: Mapping[str, Any]
    partitions: int | None = None

    def grouped_by(self, arc: str) -> Sequence[str] | None:
        """Return its group fields."""
        return self.by


@dataclass(frozen=True, kw_only=True)
class Distinct(Declaration):
    """One tuple for each combination of values of some fields."""

    by: Sequence[str]
    partitions: int | None = None

    def grouped_by(self, arc: str) -> Sequence[str] | None:
        """Return the fields that identify its tuples."""
        return self.by

    def keeps(self, arc: str, fields: frozenset[str]) -> frozenset[str] | None:
        """Return those fields: its arc has no others."""
        return fields & set(self.by)


@dataclass(frozen=True, kw_only=True)
class Aggregate(Declaration):
    """Results over windows of tuples, by group."""

    by: Sequence[str]
    window: AnyWindow | None
    mode: str
    emit: str
    results: Mapping[str, Any]
    order_by: Sequence[str] = ()
    partitions: int | None = None
    horizon: Duration | None = None

    allowed_in_loop: ClassVar[bool] = True

    def grouped_by(self, arc: str) -> Sequence[str] | None:
        """Return its group fields."""
        return self.by

    def keeps(self, arc: str, fields: frozenset[str]) -> frozenset[str]:
        """Return the group fields."""
        return fields & set(self.by)

    def loop_fault(self) -> tuple[str, str, str] | None:
        """Return why it can't be in a loop: its results must be emitted in each round."""
        if self.window is None and self.emit == ON_UPDATE:
            return None
        need = "within a loop an aggregate of whole histories that emits in each round"
        actual = f"window={self.window!r}, emit={self.emit!r}"
        return need, actual, f"write window=None, emit={ON_UPDATE!r}"

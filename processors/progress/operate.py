"""Operators: what a scope runs, and what the two tell each other about progress (Timely).

The text of 2014 pushes progress into an operator and pulls it out. As in today's Timely the two
share one record of changes instead, which each side adds to and drains, and an operator is not told
what the graph around it looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from errata.processors.progress.change_batch import ChangeBatch
from errata.processors.progress.location import Connectivity
from errata.processors.progress.timestamp import Timestamp

T = TypeVar("T", bound=Timestamp)


class Interest(IntEnum):
    """Whether an operator is to run when the frontier of one of its inputs changes."""

    NEVER = 0
    """It only looks at messages, as Map and Filter do."""
    IF_CAPABILITY = 1
    """If it holds a capability, as an aggregate with open windows does."""
    ALWAYS = 2


class Progress(Generic[T]):
    """What a scope and an operator in it tell each other; one record, drained by the other side.

    `consumeds`, `internals` and `produceds` belong together: the scope takes all of them at once,
    after the operator has run. A message consumed without what was kept or sent for it would let
    frontiers pass times that still appear.

    Args:
        inputs: How many inputs the operator has.
        outputs: How many outputs it has.

    Attributes:
        frontiers: By input, changes of its frontier; told by the scope.
        consumeds: By input, counts of messages that it has taken.
        internals: By output, changes of the capabilities that it holds.
        produceds: By output, counts of messages that it has sent.
        again: Whether the operator wants to run again though nothing reaches it; the scope looks
            at it, and sets it back, whenever the operator has run.
    """

    __slots__ = ("again", "consumeds", "frontiers", "internals", "produceds")

    def __init__(self, inputs: int, outputs: int) -> None:
        self.frontiers: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(inputs)]
        self.consumeds: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(inputs)]
        self.internals: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]
        self.produceds: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]
        self.again = False


class Schedulable(Protocol):
    """An operator at work."""

    def schedule(self) -> bool:
        """Run for a while; return whether there is work left that shows in no capability.

        Once it returns False, no frontier is left and no capability is held, it is let go.
        """


@dataclass(frozen=True)
class Initialized(Generic[T]):
    """An operator that is ready to run.

    Args:
        connectivity: What its paths make of a time, for each input.
        progress: The record it shares with its scope. What it holds in `internals` now are its
            first capabilities: the only ones that need no support (see `validity`).
        work: What runs.
    """

    connectivity: Connectivity[T]
    progress: Progress[T]
    work: Schedulable


class Operator(Protocol[T]):
    """An operator before it runs: a name, a shape, and how to make it ready."""

    @property
    def name(self) -> str:
        """Name, for messages."""

    @property
    def inputs(self) -> int:
        """How many inputs it has."""

    @property
    def outputs(self) -> int:
        """How many outputs it has."""

    @property
    def interest(self) -> Sequence[Interest]:
        """For each input, whether it is to run when that frontier changes."""

    def initialize(self) -> Initialized[T]:
        """Make it ready to run; called once."""

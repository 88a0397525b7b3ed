"""Operators: what a scope runs, and how scope and operator exchange progress (Timely).

The text of 2014 pushes progress into an operator and pulls it out. As in today's Timely, the two
share one record of changes instead, which each side adds to and drains. An operator does not know
the graph around it.
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
    """Whether an operator runs when the frontier of one of its inputs changes."""

    NEVER = 0
    """It depends on messages only, as Map and Filter do."""
    IF_CAPABILITY = 1
    """If it holds a capability, as an aggregate with open windows does."""
    ALWAYS = 2


class Progress(Generic[T]):
    """The progress record that a scope and an operator share; each side drains the other's part.

    `consumeds`, `internals` and `produceds` belong together: the scope takes all of them at once,
    after the operator has run. If it took a consumed message without the capabilities and messages
    that came from it, frontiers could pass times that still appear.

    Args:
        inputs: How many inputs the operator has.
        outputs: How many outputs it has.

    Attributes:
        frontiers: By input, changes of its frontier; reported by the scope.
        consumeds: By input, counts of messages that the operator has consumed.
        internals: By output, changes of the capabilities that it holds.
        produceds: By output, counts of messages that it has sent.
        again: Whether the operator wants to run again without new input; the scope reads and
            resets it whenever the operator has run.
    """

    __slots__ = ("again", "consumeds", "frontiers", "internals", "produceds")

    def __init__(self, inputs: int, outputs: int) -> None:
        self.frontiers: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(inputs)]
        self.consumeds: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(inputs)]
        self.internals: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]
        self.produceds: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]
        self.again = False


class Schedulable(Protocol):
    """A running operator."""

    def schedule(self) -> bool:
        """Run for a while; return whether work is left for which no capability is held.

        Once it returns False, its input frontiers are empty and it holds no capability, the scope
        drops it.
        """


@dataclass(frozen=True)
class Initialized(Generic[T]):
    """An operator that is ready to run.

    Args:
        connectivity: The path summaries from each input to the outputs.
        progress: The record it shares with its scope. The contents of `internals` at this point are
            its first capabilities, the only ones that need no support (see `validity`).
        work: The running operator.
    """

    connectivity: Connectivity[T]
    progress: Progress[T]
    work: Schedulable


class Operator(Protocol[T]):
    """An operator before it runs: its name, its shape, and its initialization."""

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
        """For each input, whether the operator runs when that frontier changes."""

    def initialize(self) -> Initialized[T]:
        """Prepare it to run; called once."""

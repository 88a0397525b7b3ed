"""Operators: what a scope runs, how both exchange progress, and which reports are valid (Timely).

The text of 2014 pushes progress into an operator and pulls it out. As in today's Timely, the two
share one record of changes instead, which each side adds to and drains. An operator does not know
the graph around it.

Every new capability and every sent message needs support: a message consumed in the same report, or
a capability held before. Without support, a time could appear that frontiers have passed. Timely's
``validate_progress`` accepts a message or an implied capability at the time or before, at any port.
Here a message counts only along a path that the operator has declared, and a capability only if it
is held at that output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from errata.processors.progress.antichain import ChangeBatch, MutableAntichain
from errata.processors.progress.location import Connectivity
from errata.processors.progress.timestamp import Timestamp
from errata.schemas.errors import ErrataError

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
        run_again: Whether the operator wants to run again without new input; the scope reads and
            resets it whenever the operator has run.
    """

    __slots__ = ("consumeds", "frontiers", "internals", "produceds", "run_again")

    def __init__(self, inputs: int, outputs: int) -> None:
        self.frontiers: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(inputs)]
        self.consumeds: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(inputs)]
        self.internals: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]
        self.produceds: list[ChangeBatch[T]] = [ChangeBatch() for _ in range(outputs)]
        self.run_again = False


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
            its first capabilities, the only ones that need no support (see `validate`).
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


class ProgressError(ErrataError):
    """An operator reports a capability or a message without support.

    Args:
        operator: Its name.
        port: The output.
        time: The time without support.
        what: "holds a new capability" or "has sent a message".
        support: What would have supported it, in words.
    """

    def __init__(self, operator: str, *, port: int, time: object, what: str, support: str) -> None:
        self.operator, self.port, self.time = operator, port, time
        super().__init__(
            f"operator '{operator}' reports that it {what} at {time!r} on output {port}, which "
            f"nothing supports: {support}; report consumed messages together with their effects, "
            "and drop a capability only after its last use"
        )


def validate(
    operator: str,
    progress: Progress[T],
    *,
    connectivity: Connectivity[T],
    held: Callable[[int], MutableAntichain[T]],
) -> None:
    """Validate a report before the scope takes it.

    Args:
        operator: Name of the operator.
        progress: Its report.
        connectivity: Its path summaries.
        held: Returns the capabilities at an output before this report.

    Raises:
        ProgressError: If a new capability or a message is supported neither by a message consumed
            in this report, which a path of the operator maps to that time or an earlier one, nor by
            a capability held at that time or an earlier one.

    Example:
        >>> from errata.processors.progress.location import fully_connected
        >>> from errata.processors.progress.summary import IDENTITY
        >>> from errata.processors.progress.timestamp import Epoch
        >>> report, paths = Progress(1, 1), fully_connected(1, 1, IDENTITY)
        >>> report.produceds[0].update(Epoch(4), 1)
        >>> report.consumeds[0].update(Epoch(3), 1)
        >>> none = MutableAntichain()
        >>> validate("map", report, connectivity=paths, held=lambda _: none)
        >>> report.consumeds[0].update(Epoch(3), -1)
        >>> try:
        ...     validate("map", report, connectivity=paths, held=lambda _: none)
        ... except ProgressError as error:
        ...     print(str(error).partition(": ")[0])
        operator 'map' reports that it has sent a message at 4 on output 0, which nothing supports
    """
    reported = (
        ("holds a new capability", progress.internals),
        ("has sent a message", progress.produceds),
    )
    for action, batches in reported:
        for port, batch in enumerate(batches):
            for time, diff in batch:
                if diff <= 0 or held(port).less_equal(time):
                    continue
                if not _consumed(progress, connectivity, port, time):
                    frontier = held(port).frontier
                    capabilities = (
                        f"only capabilities at {list(frontier)}" if frontier else "no capability"
                    )
                    support = (
                        f"it has consumed no message that leads to this output at {time!r} or "
                        f"before, and holds {capabilities} at it"
                    )
                    raise ProgressError(
                        operator, port=port, time=time, what=action, support=support
                    )


def _consumed(progress: Progress[T], connectivity: Connectivity[T], port: int, time: T) -> bool:
    """Whether some consumed message may have become this time at an output."""
    for batch, paths in zip(progress.consumeds, connectivity, strict=True):
        for consumed_time, diff in batch:
            for summary in paths.get(port, ()) if diff > 0 else ():
                result = summary.results_in(consumed_time)
                if result is not None and result.less_equal(time):
                    return True
    return False

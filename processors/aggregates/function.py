"""What there is to say of an aggregate function: its name, what it takes, how right it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from errata.processors.aggregates.calls import Call
from errata.processors.aggregates.compensating import Compensating


@dataclass(frozen=True)
class Function:
    """One aggregate function.

    Args:
        name: What it is called.
        signature: What it takes and gives.
        example: A call of it.
        exact: How right its result is.
        compensates: What can leave without the rest being looked at again.
        make: Gives the function for a call.
        also: Its other names.
        arguments: How many it takes; None if one or more.
        parameters: How many numbers, written out, it takes behind them.
        ordered: What rows are ordered by: ``order_by`` or ``event time``; "" if by nothing.
    """

    name: str
    signature: str
    example: str
    exact: str
    compensates: str
    make: Callable[[Call], Compensating]
    also: tuple[str, ...] = ()
    arguments: int | None = 1
    parameters: int = 0
    ordered: str = ""

    @property
    def takes(self) -> str:
        """How many arguments it takes, in words."""
        if self.arguments is None:
            return f"one argument or more of {self.name}"
        count = self.arguments + self.parameters
        return f"{'one argument' if count == 1 else f'{count} arguments'} of {self.name}"


@dataclass(frozen=True)
class Macro:
    """A name for an expression around calls of functions.

    Args:
        name: What it is called.
        signature: What it takes and gives.
        example: A call of it.
        stands_for: The expression, over columns with the names of its arguments.
        arguments: Their names.
        exact: How right its result is.
        compensates: What can leave without the rest being looked at again.
        also: Its other names.
    """

    name: str
    signature: str
    example: str
    stands_for: str
    arguments: tuple[str, ...]
    exact: str
    compensates: str
    also: tuple[str, ...] = ()

    @property
    def takes(self) -> str:
        """How many arguments it takes, in words."""
        return f"{len(self.arguments)} arguments of {self.name}"


BY_ORDER, BY_TIME = "order_by", "event time"

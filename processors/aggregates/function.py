"""The description of an aggregate function: its name, its arguments, its accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from errata.processors.aggregates.calls import Call
from errata.processors.aggregates.compensating import Compensating


@dataclass(frozen=True)
class Function:
    """One aggregate function.

    Args:
        name: Its name.
        signature: Its arguments and its result.
        example: A call of it.
        exact: The accuracy of its result.
        compensates: Which rows can leave without a replay of the rest.
        make: Returns the function for a call.
        also: Its other names.
        arguments: The number of arguments; None if one or more.
        parameters: The number of literal numbers after the arguments.
        ordered: The order of rows: ``order_by`` or ``event time``; "" if there is none.
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
        """The number of arguments, in words."""
        if self.arguments is None:
            return f"one argument or more of {self.name}"
        count = self.arguments + self.parameters
        return f"{'one argument' if count == 1 else f'{count} arguments'} of {self.name}"


@dataclass(frozen=True)
class Macro:
    """A name for an expression around calls of functions.

    Args:
        name: Its name.
        signature: Its arguments and its result.
        example: A call of it.
        stands_for: The expression, over columns with the names of its arguments.
        arguments: The names of its arguments.
        exact: The accuracy of its result.
        compensates: Which rows can leave without a replay of the rest.
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
        """The number of arguments, in words."""
        return f"{len(self.arguments)} arguments of {self.name}"


BY_ORDER, BY_TIME = "order_by", "event time"

"""Validity: what an operator may report (Timely's ``validate_progress``).

Every new capability and every sent message needs support: a message consumed in the same report, or
a capability held before. Without support, a time could appear that frontiers have passed. Timely
accepts a message or an implied capability at the time or before, at any port. Here a message counts
only along a path that the operator has declared, and a capability only if it is held at that
output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from errata.processors.progress.antichain import MutableAntichain
from errata.processors.progress.location import Connectivity
from errata.processors.progress.operate import Progress
from errata.processors.progress.timestamp import Timestamp
from errata.schemas.errors import ErrataError

T = TypeVar("T", bound=Timestamp)


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
            f"nothing supports: {support}; report what was consumed together with what came of it, "
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
    for what, batches in reported:
        for port, batch in enumerate(batches):
            for time, diff in batch:
                if diff <= 0 or held(port).less_equal(time):
                    continue
                if not _consumed(progress, connectivity, port, time):
                    frontier = held(port).frontier
                    kept = f"only capabilities at {list(frontier)}" if frontier else "no capability"
                    support = (
                        f"it has consumed nothing that leads there at {time!r} or before, and "
                        f"holds {kept} there"
                    )
                    raise ProgressError(operator, port=port, time=time, what=what, support=support)


def _consumed(progress: Progress[T], connectivity: Connectivity[T], port: int, time: T) -> bool:
    """Whether some consumed message may have become this time at an output."""
    for batch, paths in zip(progress.consumeds, connectivity, strict=True):
        for taken, diff in batch:
            for summary in paths.get(port, ()) if diff > 0 else ():
                result = summary.results_in(taken)
                if result is not None and result.less_equal(time):
                    return True
    return False

"""``first(x)``, ``last(x)``, ``min_by(x, y)`` and ``max_by(x, y)``."""

from __future__ import annotations

from collections.abc import Sequence

from errata.processors.aggregates.extreme import RUNGS, Extreme
from errata.processors.aggregates.ladder import Key
from errata.schemas.fields import FieldType


class First(Extreme):
    """The value of the first row by some keys; null without rows.

    The keys end with the identity, so no two rows are equal in all of them. A null value counts
    like any other, unless nulls are ignored.

    Args:
        value: Type of the value.
        order: The keys, in the order of the arguments that follow the value.
        ignore_nulls: Whether rows without a value are ignored.
        needs_key: Whether rows in which the first key is null are ignored.
        rungs: How many rows a live state keeps.

    Example:
        The price of the earliest row; when that one leaves, the next one:

        >>> import polars as pl
        >>> first = First(FieldType("double"), [Key(FieldType("timestamp-millis"), largest=False)])
        >>> groups = pl.Series([0, 0, 0], dtype=pl.UInt32)
        >>> rows = pl.DataFrame({"price": [7.0, 5.0, 6.0], "at": [300, 100, 200]})
        >>> states = first.accumulate(first.init(1), groups, rows)
        >>> first.emit(states)[0], first.emit(first.compensate(states, groups[:1], rows[1:2]))[0]
        (5.0, 6.0)
    """

    def __init__(
        self,
        value: FieldType,
        order: Sequence[Key],
        *,
        ignore_nulls: bool = False,
        needs_key: bool = False,
        rungs: int = RUNGS,
    ) -> None:
        keys = {f"by_{number}": key for number, key in enumerate(order)}
        super().__init__(
            keys,
            columns={"value": value} | {name: key.type for name, key in keys.items()},
            needed="value" if ignore_nulls else "by_0" if needs_key else None,
            rungs=rungs,
        )


def backwards(order: Sequence[Key]) -> list[Key]:
    """Return the keys of the reversed order."""
    return [Key(key.type, not key.largest) for key in order]

"""Functions as users write them, some of which raise."""

from typing import Any

import polars as pl

from errata import Compensating, CompensatingByValue


class Dot(Compensating):
    """The sum of products of two whole numbers."""

    result = "long"
    parts = {"sum": "long"}  # noqa: RUF012

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        return self._moved(states, groups, values, 1)

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        return self._moved(states, groups, values, -1)

    def _moved(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, sign: int
    ) -> pl.DataFrame:
        one, other = values.get_columns()
        product = (one.cast(pl.Int64) * other.cast(pl.Int64) * sign).alias("x")
        rows = pl.DataFrame([groups.alias("g"), product]).group_by("g").agg(pl.col("x").sum())
        change = pl.repeat(0, states.height, dtype=pl.Int64, eager=True)
        change = change.scatter(rows["g"], rows["x"])
        return pl.DataFrame([(states["sum"] + change).alias("sum")])

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame([one["sum"] + other["sum"]])

    def emit(self, states: pl.DataFrame) -> pl.Series:
        return states["sum"]


class Peak(Compensating):
    """The largest whole number, without the next largest: most deletes need a replay."""

    result = "long?"
    parts = {"peak": "long?", "left": "boolean"}  # noqa: RUF012
    kept = ("peak",)

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        here = self._peaks(states, groups, values)
        return self.merge(states, pl.DataFrame([here, states["left"]]))

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        reached = self._peaks(states, groups, values) >= states["peak"]
        return states.with_columns(states["left"] | reached.fill_null(False))

    @staticmethod
    def _peaks(states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame) -> pl.Series:
        rows = pl.DataFrame([groups.alias("g"), values.to_series(0).cast(pl.Int64).alias("x")])
        rows = rows.drop_nulls().group_by("g").agg(pl.col("x").max())
        peaks = pl.Series("peak", [None], dtype=pl.Int64).new_from_index(0, states.height)
        return peaks.scatter(rows["g"], rows["x"])

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        both = pl.DataFrame([one["peak"].alias("a"), other["peak"].alias("b")])
        peak = both.select(pl.max_horizontal("a", "b").alias("peak"))["peak"]
        return pl.DataFrame([peak, one["left"] | other["left"]])

    def exact(self, states: pl.DataFrame) -> pl.Series:
        return ~states["left"]

    def emit(self, states: pl.DataFrame) -> pl.Series:
        return states["peak"]


class Bits(Compensating):
    """The bits that are set in some whole number; a function that can't compensate."""

    result = "long?"
    parts = {"bits": "long?"}  # noqa: RUF012
    compensates = False

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        rows = pl.DataFrame([groups.alias("g"), values.to_series(0).cast(pl.Int64).alias("x")])
        rows = rows.drop_nulls().group_by("g").agg(pl.col("x").bitwise_or())
        here = pl.Series("bits", [None], dtype=pl.Int64).new_from_index(0, states.height)
        return self.merge(states, pl.DataFrame([here.scatter(rows["g"], rows["x"])]))

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        left, right = one["bits"], other["bits"]
        return pl.DataFrame([(left.fill_null(right) | right.fill_null(left)).alias("bits")])

    def emit(self, states: pl.DataFrame) -> pl.Series:
        return states["bits"]


class SlowDot(CompensatingByValue):
    """`Dot`, value by value."""

    result = "long"
    parts = {"sum": "long"}  # noqa: RUF012

    def init(self) -> tuple[int]:
        return (0,)

    def accumulate(self, state: tuple[int], one: int, other: int) -> tuple[int]:
        return (state[0] + one * other,)

    def compensate(self, state: tuple[int], one: int, other: int) -> tuple[int]:
        return (state[0] - one * other,)

    def merge(self, one: tuple[int], other: tuple[int]) -> tuple[int]:
        return (one[0] + other[0],)

    def emit(self, state: tuple[int]) -> int:
        return state[0]


class SlowPeak(CompensatingByValue):
    """`Peak`, value by value, without `compensate`."""

    result = "long?"
    parts = {"peak": "long?"}  # noqa: RUF012
    compensates = False

    def init(self) -> tuple[None]:
        return (None,)

    def accumulate(self, state: tuple[Any], value: int | None) -> tuple[Any]:
        return self.merge(state, (value,))

    def merge(self, one: tuple[Any], other: tuple[Any]) -> tuple[Any]:
        return (max((value for value in (*one, *other) if value is not None), default=None),)

    def emit(self, state: tuple[Any]) -> int | None:
        return state[0]


class Fussy(Dot):
    """A sum that does not accept 7, and refuses results that leave 1 when divided by 3."""

    def _moved(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame, sign: int
    ) -> pl.DataFrame:
        if not values.to_series(0).cast(pl.Int64).is_in([7]).not_().fill_null(True).all():
            raise ValueError("seven")
        ones = pl.repeat(1, values.height, dtype=pl.Int64, eager=True)
        return super()._moved(
            states, groups, pl.DataFrame([values.to_series(0), ones.alias("1")]), sign
        )

    def emit(self, states: pl.DataFrame) -> pl.Series:
        if (states["sum"] % 3 == 1).any():
            raise ValueError("leaves 1")
        return states["sum"]


def likes(size: int | None, product: str) -> bool:
    """Raise for a few tuples."""
    if size == 5 and product == "fig":
        raise LookupError("five figs")
    return product != "yam" or size != 1


def shared(size: int | None, product: str) -> Any:
    """Raise for a few tuples, and return an invalid value for a few others."""
    if size == 2 and product == "yam":
        return "two"
    return None if size is None else 10 // size

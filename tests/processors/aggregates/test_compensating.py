"""What the contract gives to a function that a user writes."""

import polars as pl

from processors.aggregates.compensating import Compensating
from schemas.fields import FieldType


class Latest(Compensating):
    """Keeps a part of every kind; never revised."""

    result = FieldType("string")
    parts = {  # noqa: RUF012
        "text": FieldType("string"),
        "flag": FieldType("boolean"),
        "ratio": FieldType("double"),
        "amount": FieldType("decimal", 38),
        "perhaps": FieldType("long", optional=True),
    }

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        return states

    compensate = accumulate

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        return one

    def emit(self, states: pl.DataFrame) -> pl.Series:
        return states["text"]


def test_empty_states_are_zero_and_null_where_a_part_is_optional() -> None:
    states = Latest().init(2)
    assert states.rows() == [("", False, 0.0, 0, None)] * 2
    assert states.dtypes == [pl.String, pl.Boolean, pl.Float64, pl.Int128, pl.Int64]


def test_results_are_exact_unless_a_function_says_otherwise() -> None:
    assert Latest().exact(Latest().init(2)).to_list() == [True, True]


def test_functions_share_no_state_unless_they_say_so() -> None:
    one, other = Latest(), Latest()
    assert one.state_key == one.state_key != other.state_key

"""What the contract gives to a function that a user writes."""

import polars as pl

from errata.processors.aggregates.compensating import Compensating
from errata.schemas.fields import FieldType


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


def test_parts_may_be_written_as_text() -> None:
    class Written(Latest):
        result = "string?"
        parts = {"text": "string?", "count": "long", "id": "uuid", "raw": "bytes"}  # noqa: RUF012

    assert Written().init(1).rows() == [(None, 0, "", b"")]


def test_a_function_is_given_its_arguments_as_text() -> None:
    assert Latest("price", "size * 2").arguments == ("price", "size * 2")


def test_parts_that_are_not_kept_are_empty_in_a_recalled_state() -> None:
    class Forgetful(Latest):
        kept = ("flag", "ratio")

    stored = pl.DataFrame({"flag": [True, False], "ratio": [1.5, 2.5]})
    assert Forgetful().recall(stored).rows() == [
        ("", True, 1.5, 0, None),
        ("", False, 2.5, 0, None),
    ]
    assert Latest().kept == tuple(Latest.parts)

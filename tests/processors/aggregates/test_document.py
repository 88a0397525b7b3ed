"""The page on aggregates is that of the table, and its examples run."""

from pathlib import Path

import pytest

from processors.aggregates.document import AROUND, SAMPLE, example, page
from processors.aggregates.functions import FUNCTIONS, NAMES
from processors.expressions.aggregate_call import parse_aggregate

PAGE = Path(__file__).parents[3] / "docs" / "aggregates.md"


def test_the_page_is_up_to_date() -> None:
    remedy = "run python -m processors.aggregates.document > docs/aggregates.md"
    assert PAGE.read_text(encoding="utf-8") == page(), remedy


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count(*)", "4"),
        ("count(size)", "3"),
        ("avg(price)", "10.750000"),
        ("first(price)", "10.00"),
        ("last(size)", "4"),
        ("max_by(venue, price)", "XLON"),
        ("bool_and(price > 10)", "false"),
        ("var_samp(size)", "2.3333333333333335"),
        ("sum(size) filter (where venue = 'XNYS')", "3"),
        ("max(price) - min(price)", "3.00"),
        ("first(size) filter (where price > 10.5) ignore nulls", "1"),
        ("last(size) filter (where venue = 'XNYS')", "null"),
    ],
)
def test_examples_have_the_values_that_a_person_works_out(text: str, value: str) -> None:
    assert example(text) == value


def test_every_function_has_an_example_that_calls_it() -> None:
    for name, function in FUNCTIONS.items():
        (call,) = parse_aggregate(function.example, SAMPLE.fields).calls
        assert call.function == name
    assert all(example(text) != "null" for text in AROUND)


def test_every_other_name_of_a_function_is_understood() -> None:
    for name, function in NAMES.items():
        text = FUNCTIONS[function].example.replace(f"{function}(", f"{name}(", 1)
        (call,) = parse_aggregate(text, SAMPLE.fields).calls
        assert call.function == function

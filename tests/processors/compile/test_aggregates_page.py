"""The page on aggregates is that of the table, and its examples run."""

from pathlib import Path

import pytest

from errata.processors.aggregates.aggregate_call import parse_aggregate
from errata.processors.aggregates.functions import FUNCTIONS, MACROS, NAMES
from errata.processors.compile.aggregate import Results
from errata.processors.compile.aggregates_page import AROUND, SAMPLE, example, written

PAGE = Path(__file__).parents[3] / "docs" / "aggregates.md"


def test_the_page_is_up_to_date() -> None:
    remedy = "run python -m errata.processors.compile.aggregates_page docs/aggregates.md"
    found = PAGE.read_text(encoding="utf-8")
    assert found == written(found), remedy


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
        ("percentile(price, 0.25)", "9.875"),
        ("median(size)", "3.0"),
        ("count(distinct venue)", "3"),
        ("count(distinct venue, size)", "3"),
        ("count(distinct venue) filter (where price > 10)", "2"),
        ("mode(venue)", "XNYS"),
        ("mode(price)", "9.50"),
        ("top_k(price, 2)", "[12.50,11.00]"),
        ("top_k(venue, 3)", '["XPAR","XNYS","XNYS"]'),
        (
            "most_common(venue, 2)",
            '[{"item":"XNYS","count":2},{"item":"XLON","count":1}]',
        ),
        ("top_k(at, 1)", '["1970-01-01 00:00:04"]'),
        ("covar_pop(size, size)", "1.5555555555555556"),
        ("corr(size, -2 * size)", "-1.0"),
        ("corr(size, 1)", "null"),
        ("vwap(price, size)", "10.062500"),
        ("vwap(price, size) filter (where venue = 'XNYS')", "10.000000"),
        ("vwap(price + 1, size) - vwap(price, size)", "1.000000"),
        ("realised_volatility(size * 0 + 1)", "0.0"),
        ("realised_volatility(size - 1)", "null"),
        ("realised_volatility(price) filter (where price > 12)", "null"),
    ],
)
def test_examples_have_the_values_that_a_person_works_out(text: str, value: str) -> None:
    assert example(text) == value


def test_every_function_has_an_example_that_calls_it() -> None:
    for name, function in FUNCTIONS.items():
        (call,) = parse_aggregate(function.example, SAMPLE.fields).calls
        assert call.function == name
    assert all(example(text) != "null" for text in AROUND)


def test_a_macro_is_what_it_expands_to_and_shares_its_states() -> None:
    for macro in MACROS.values():
        making = Results(SAMPLE, {})
        result, other = making.make(macro.example), making.make(macro.expansion)
        assert (result.type, result.emissions[0].state) == (other.type, other.emissions[0].state)
        assert len(making.states) == len(result.emissions)


def test_functions_of_one_argument_share_one_bag() -> None:
    making = Results(SAMPLE, {})
    calls = ("percentile(price, 0.5)", "percentile(price, 0.99)", "median(price)", "mode(price)")
    for text in (*calls, "count(distinct price)", "top_k(price, 3)", "most_common(price, 1)"):
        making.make(text)
    assert len(making.states) == 1
    making.make("median(price) filter (where size > 1)")
    making.make("median(size)")
    assert len(making.states) == 3


def test_every_other_name_of_a_function_is_understood() -> None:
    for name, function in NAMES.items():
        if name in MACROS:
            continue
        text = FUNCTIONS[function].example.replace(f"{function}(", f"{name}(", 1)
        (call,) = parse_aggregate(text, SAMPLE.fields).calls
        assert call.function == function

"""Calls of aggregate functions, cut out of what stands around them."""

from fractions import Fraction

import pytest

from errata.processors.aggregates.aggregate_call import parse_aggregate
from errata.processors.expressions.errors import ExpressionError
from errata.schemas.fields import FieldType

FIELDS = {
    "price": FieldType("decimal", 18, 2),
    "size": FieldType("long"),
    "is_buy": FieldType("boolean"),
}


def test_count_star_has_no_arguments():
    (call,) = parse_aggregate("count(*)", FIELDS).calls
    assert (call.function, call.arguments, call.position) == ("count", (), 0)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("count(price)", "count"),
        ("sum(price * size)", "sum"),
        ("try_sum(price)", "sum"),
        ("AVG(price)", "avg"),
        ("mean(price)", "avg"),
        ("Try_Avg(price)", "avg"),
        ("min(price)", "min"),
        ("max(price)", "max"),
        ("first(price)", "first"),
        ("first_value(price)", "first"),
        ("any_value(price)", "first"),
        ("last(price)", "last"),
        ("last_value(price)", "last"),
        ("variance(price)", "var_samp"),
        ("var_samp(price)", "var_samp"),
        ("var_pop(price)", "var_pop"),
        ("stddev(price)", "stddev_samp"),
        ("std(price)", "stddev_samp"),
        ("stddev_samp(price)", "stddev_samp"),
        ("stddev_pop(price)", "stddev_pop"),
        ("count_if(price > 1)", "count_if"),
        ("bool_and(price > 1)", "bool_and"),
        ("every(price > 1)", "bool_and"),
        ("bool_or(price > 1)", "bool_or"),
        ("some(price > 1)", "bool_or"),
        ("median(price)", "median"),
        ("mode(price)", "mode"),
    ],
)
def test_a_call_has_its_function_and_its_typed_argument(text, function):
    parsed = parse_aggregate(text, FIELDS)
    (call,) = parsed.calls
    assert parsed.is_bare
    assert call.function == function
    assert call.arguments[0].columns >= {"price"}
    assert call.arguments[0].text == text[text.index("(") + 1 : -1]


def test_a_function_of_two_arguments_has_them_in_order():
    (call,) = parse_aggregate("max_by(size, price)", FIELDS).calls
    assert [argument.text for argument in call.arguments] == ["size", "price"]


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("percentile(price, 0.07)", Fraction(7, 100)),
        ("percentile(price, 1e-1)", Fraction(1, 10)),
        ("percentile(price, -1)", Fraction(-1)),
        ("percentile(price, 1e-999999999)", Fraction(0)),
        ("top_k(price, 3)", Fraction(3)),
    ],
)
def test_a_parameter_is_the_number_that_is_written(text, parameter):
    (call,) = parse_aggregate(text, FIELDS).calls
    assert call.parameters == (parameter,)
    assert [argument.text for argument in call.arguments] == ["price"]


def test_count_distinct_has_all_its_arguments():
    (call,) = parse_aggregate("count(distinct price, size + 1)", FIELDS).calls
    assert call.function == "count distinct"
    assert [argument.text for argument in call.arguments] == ["price", "size + 1"]


def test_a_macro_becomes_the_calls_it_stands_for_each_with_its_filter():
    parsed = parse_aggregate("1 + vwap(price + 1, size) filter (where is_buy)", FIELDS)
    assert [(call.function, call.arguments[0].text) for call in parsed.calls] == [
        ("sum", "(price + 1) * size"),
        ("sum", "IF((price + 1) IS NULL, NULL, size)"),
    ]
    assert {call.condition.text for call in parsed.calls} == {"is_buy"}
    assert {call.position for call in parsed.calls} == {4}


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("first(price)", False),
        ("first(price, false)", False),
        ("first(price) respect nulls", False),
        ("first(price, true)", True),
        ("last(price) ignore nulls", True),
        ("any_value(price) IGNORE NULLS", True),
        ("last_value(price ignore nulls)", True),
        ("first(price) filter (where is_buy) ignore nulls", True),
        ("first(price ignore nulls) filter (where is_buy)", True),
    ],
)
def test_nulls_are_ignored_where_the_call_says_so(text, ignored):
    (call,) = parse_aggregate(text, FIELDS).calls
    assert call.ignore_nulls is ignored
    assert (call.condition is not None) is ("filter" in text)


def test_each_call_has_its_own_filter():
    text = "sum(size) filter (where is_buy) - sum(size) filter (where price > 5)"
    parsed = parse_aggregate(text, FIELDS)
    assert [call.condition.text for call in parsed.calls] == ["is_buy", "price > 5"]
    assert [call.position for call in parsed.calls] == [0, text.rindex("sum")]


def test_the_argument_is_typed_by_the_expression_rules():
    (call,) = parse_aggregate("sum(price * size)", FIELDS).calls
    assert str(call.arguments[0].type) == "decimal(38,2)?"


def test_what_is_around_is_typed_by_the_results_of_the_calls():
    parsed = parse_aggregate("sum(price) / sum(size) + count(*)", FIELDS)
    types = [FieldType.parse(kind) for kind in ("decimal(28,2)?", "long?", "long")]
    assert not parsed.is_bare
    around = parsed.around(types, {})
    assert (str(around.type), around.columns) == ("decimal(38,11)?", {"#0", "#1", "#2"})


def test_group_fields_may_stand_around_calls():
    around = parse_aggregate("if(product = 'x', count(*), 0L)", FIELDS).around(
        [FieldType("long")], {"product": FieldType("string")}
    )
    assert around.columns == {"#0", "product"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("sum(distinct price)", "DISTINCT, not supported; only count(distinct ...) accepts it"),
        ("mode(distinct price)", "DISTINCT, not supported"),
        ("percentile(distinct price, 0.5)", "DISTINCT, not supported"),
        ("vwap(distinct price, size)", "DISTINCT, not supported"),
        ("count(distinct sum(price))", "the aggregate sum inside another"),
        ("count(distinct *)", "star"),
        ("count(distinct (price, size))", "tuple"),
        ("sum(price) over (partition by size)", "OVER"),
        ("first(price order by size)", "order_by="),
        ("percentile(price)", "2 arguments of percentile, found 1"),
        ("percentile(price, 0.5, 2)", "2 arguments of percentile, found 3"),
        ("percentile(price, size)", "a number literal as the last argument of percentile"),
        ("percentile(price, '0.5')", "a number literal as the last argument of percentile"),
        ("percentile(price, 1 / 2)", "as the last argument of percentile, found 1 / 2"),
        ("percentile(price, array(0.5))", "a number literal"),
        ("top_k(price, -size)", "literal as the last argument of top_k, found -size"),
        ("most_common(price)", "2 arguments of most_common, found 1"),
        ("median(price, 1)", "needs an SQL expression"),
        ("corr(price)", "needs an SQL expression"),
        ("vwap(price)", "character 1: needs 2 arguments of vwap, found 1"),
        ("1 + vwap(prise, size)", "did you mean price"),
        ("vwap(sum(price), size)", "the aggregate sum inside another"),
        ("sum(vwap(price, size))", "the aggregate vwap inside another"),
        ("vwap(price, size) ignore nulls", "IGNORE NULLS with first or last only"),
        ("percentile_approx(price, 0.5)", "approxquantile, not supported"),
        ("mode(price, true)", "a plain mode, found deterministic"),
        ("collect_list(price) + 1", "not supported"),
        ("count(price, size)", "one argument of count, found 2"),
        ("max(price, size)", "one argument of max, found 2"),
        ("max_by(price)", "2 arguments of max_by, found 1"),
        ("count()", "one argument of count, found 0"),
        ("sum(*)", "star"),
        ("sum(price) ignore nulls", "IGNORE NULLS with first or last only"),
        ("sum(sum(price))", "character 5: needs a value of each tuple, found the aggregate sum"),
        ("sum(size) filter (where count(*) > 1)", "the aggregate count inside another"),
        ("sum(price + mean(size))", "the aggregate avg inside another"),
        ("sum(price) filter (where size)", "needs a boolean, found long"),
        ("mn(price)", "found mn; did you mean min"),
        ("price", "found the field price"),
        ("1 + 1", "needs an aggregate function, found add"),
        ("median_of(price)", "median_of"),
        ("sum(prise)", "did you mean price"),
        ("sum(price); sum(size)", "2 statements"),
        ("sum(null)", "needs a type"),
    ],
)
def test_anything_else_is_refused_clearly(text, part):
    with pytest.raises(ExpressionError) as caught:
        parse_aggregate(text, FIELDS)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "character", "part"),
    [
        ("sum(size) + size", 13, "found 'size', which differs between tuples; use max(size)"),
        ("sum(size) + 'a'", 1, "two numbers for +"),
        ("is_buy and count(*) > 1", 1, "a group field, found 'is_buy'"),
        ("count(*) + nosuch(sum(size))", 12, "nosuch"),
    ],
)
def test_what_can_not_stand_around_calls_is_refused_where_it_stands(text, character, part):
    parsed = parse_aggregate(text, FIELDS)
    with pytest.raises(ExpressionError) as caught:
        parsed.around([FieldType("long")] * len(parsed.calls), {})
    assert part in str(caught.value)
    assert caught.value.position + 1 == character

import pytest

from processors.expressions.aggregate_call import parse_aggregate
from processors.expressions.errors import ExpressionError
from schemas.fields import FieldType

FIELDS = {"price": FieldType("decimal", 18, 2), "size": FieldType("long")}


def test_count_star_has_no_arguments():
    call = parse_aggregate("count(*)", FIELDS)
    assert (call.function, call.arguments, call.star) == ("count", (), True)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("count(price)", "count"),
        ("sum(price * size)", "sum"),
        ("AVG(price)", "avg"),
        ("mean(price)", "avg"),
        ("max(price)", "max"),
    ],
)
def test_a_call_has_its_function_and_its_typed_argument(text, function):
    call = parse_aggregate(text, FIELDS)
    assert (call.function, call.star, call.text) == (function, False, text)
    assert call.columns >= {"price"}
    assert call.arguments[0].text == text[text.index("(") + 1 : -1]


def test_the_argument_is_typed_by_the_expression_rules():
    (argument,) = parse_aggregate("sum(price * size)", FIELDS).arguments
    assert str(argument.type) == "decimal(38,2)?"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("sum(price) / sum(size)", "an expression around it"),
        ("(sum(price))", "an expression around it"),
        ("sum(price) + 1", "an expression around it"),
        ("count(distinct price)", "DISTINCT"),
        ("sum(price) filter (where size > 1)", "FILTER"),
        ("sum(price) over (partition by size)", "OVER"),
        ("count(price, size)", "one argument"),
        ("max(price, size)", "one argument"),
        ("sum(*)", "star"),
        ("sum(sum(price))", "belongs in .aggregate"),
        ("min(price)", "one call of count, sum, avg, max"),
        ("price", "one call of"),
        ("median_of(price)", "median_of"),
        ("sum(prise)", "did you mean price"),
        ("sum(price); sum(size)", "2 statements"),
        ("count()", "one argument"),
    ],
)
def test_anything_else_is_refused_clearly(text, part):
    with pytest.raises(ExpressionError) as caught:
        parse_aggregate(text, FIELDS)
    assert part in str(caught.value)

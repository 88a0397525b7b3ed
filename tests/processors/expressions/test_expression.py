import math

import polars as pl
import pytest

from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.expression import compile_expression
from errata.schemas.fields import FieldType, physical

FIELDS = {
    name: FieldType.parse(declared)
    for name, declared in {
        "n": "decimal(18,2)",
        "f": "decimal(18,8)?",
        "dd": "decimal(38,38)",
        "zz": "decimal(38,0)",
        "l": "long",
        "d": "double",
        "b": "boolean",
        "s": "string",
        "at": "timestamp-millis",
        "i": "int",
        "g": "float",
        "day": "date",
        "mi": "timestamp-micros",
        "u": "uuid",
        "x": "bytes",
    }.items()
}
JULY = 1_784_073_600_000
ROW = {
    "n": 1234,
    "f": None,
    "dd": 4 * 10**37,
    "zz": 0,
    "l": 7,
    "d": 1.5,
    "b": True,
    "s": "x",
    "at": JULY,
    "i": 7,
    "g": 0.1,
    "day": JULY // 86_400_000,
    "mi": JULY * 1000 + 1,
    "u": "123e4567-e89b-12d3-a456-426614174000",
    "x": b"\x00\xff",
}


def value(text, **changes):
    tuples = pl.DataFrame([ROW | changes], schema=physical(FIELDS), orient="row")
    return compile_expression(text, FIELDS).evaluate(tuples).item()


# What a Spark 4.3.0 session answered to typeof(...).
SPARK_TYPES = {
    "n * coalesce(f, 1)": "decimal(37,10)",
    "n / 1000000": "decimal(26,10)",
    "n * (60*60)": "decimal(29,2)",
    "n * 60": "decimal(21,2)",
    "n * 60L": "decimal(21,2)",
    "n * cast(60 as bigint)": "decimal(38,2)",
    "n * -5": "decimal(20,2)",
    "n * -(5)": "decimal(29,2)",
    "n * (5)": "decimal(20,2)",
    "n * -5L": "decimal(20,2)",
    "n + null": "decimal(19,2)",
    "null / n": "double",
    "mod(null, i)": "int",
    "nanvl(g, null)": "float",
    "null + null": "double",
    "n % 5": "decimal(3,2)",
    "n % 0.7": "decimal(2,2)",
    "dd * dd": "decimal(38,37)",
    "zz * zz": "decimal(38,0)",
    "zz + dd": "decimal(38,6)",
    "zz / dd": "decimal(38,6)",
    "zz % dd": "decimal(38,38)",
    "coalesce(dd, zz)": "decimal(38,0)",
    "coalesce(n, l)": "decimal(22,2)",
    "coalesce(n, d)": "double",
    "if(b, 1, 2.5)": "decimal(11,1)",
    "nullif(n, 12.34)": "decimal(18,2)",
    "0.05": "decimal(2,2)",
    "0.0": "decimal(1,1)",
    "5.": "decimal(1,0)",
    "00012.50": "decimal(4,2)",
    "123456789012345678901234567890": "decimal(30,0)",
    "l / 2": "double",
    "l * 2": "long",
    "abs(n)": "decimal(18,2)",
    "at = '2026-01-01'": "boolean",
    "i + 1": "int",
    "i + l": "long",
    "g + g": "float",
    "g + i": "double",
    "g / g": "double",
    "g * n": "double",
    "i div i": "long",
    "coalesce(day, at)": "timestamp-millis",
    "coalesce(at, mi)": "timestamp-micros",
    "coalesce(at, '2026-01-01 00:00:00.000001')": "timestamp-micros",
    "cast(s as timestamp)": "timestamp-millis",
    "cast(mi as timestamp)": "timestamp-micros",
    "to_timestamp(s)": "timestamp-millis",
    "date_trunc('hour', mi)": "timestamp-micros",
    "day + 1": "date",
    "day + interval 1 week": "date",
    "day + interval 1 hour": "timestamp-millis",
    "at + interval 1 microsecond": "timestamp-micros",
    "coalesce(u, '123e4567-e89b-12d3-a456-426614174001')": "uuid",
    "coalesce(u, s)": "string",
    "upper(u)": "string",
    "round(n, 1)": "decimal(18,1)",
    "floor(n)": "decimal(17,0)",
    "X'00'": "bytes",
}


@pytest.mark.parametrize(("text", "kind"), SPARK_TYPES.items())
def test_an_expression_has_the_type_that_spark_gives_it(text, kind):
    assert str(compile_expression(text, FIELDS).type.required) == kind


@pytest.mark.parametrize(
    ("text", "optional"),
    {
        "n + n": False,
        "n * f": True,
        "n / 1000000": False,
        "n / 0.0": True,
        "n / n": True,
        "zz + zz": True,
        "l + 1": True,
        "d + l": False,
        "d / 2": False,
        "d / 2e0": True,
        "l % 2": False,
        "n > 5": False,
        "dd > 5": False,
        "f > 5": True,
        "f <=> 5": False,
        "f is null": False,
        "coalesce(f, 1)": False,
        "case when b then 1 end": True,
        "case when b then 1 else 2 end": False,
        "cast(l as double)": False,
        "cast(l as int)": True,
        "cast(n as decimal(18,3))": True,
        "cast(n as decimal(19,3))": False,
        "cast(n as decimal(18,1))": False,
        "cast(n as decimal(17,1))": True,  # 9999999999999999.99 rounds to 17 digits and a tenth
        "cast(s as bigint)": True,
        "n in (1, 2)": False,
        "n in (1, null)": True,
        "hour(at)": False,
        "year(day)": False,
        "cast(at as date)": False,
        "at + interval 1 day": True,
        "at = mi": True,  # milliseconds reach further
        "upper(s)": False,
        "concat_ws('-', s, f)": False,
        "greatest(f, 1)": False,
        "round(n, 1)": False,
        "ln(d)": True,
        "timestamp_millis(l)": True,
    }.items(),
)
def test_a_result_is_optional_where_it_can_be_null(text, optional):
    assert compile_expression(text, FIELDS).type.optional is optional


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "n / 1000000": 123400,
        "coalesce(f, 1)": 10**8,
        "l / 0": None,
        "l % 0": None,
        "n / 0": None,
        "d / 0": None,
        "9223372036854775807 + l": None,
        "-9223372036854775808 - l": None,
        "9223372036854775807 * l": None,
        "-l % 4": -3,
        "zz + 99999999999999999999999999999999999999": 10**38 - 1,
        "zz + 99999999999999999999999999999999999999 + 1": None,
        "dd = zz": True,  # Spark compares as decimal(38,0)
        "(n = n) is null": False,
        "b and null": None,
        "not b and null": False,
        "b or null": True,
        "if(null, 1, 2)": 2,
        "n in (null, 1)": None,
        "n in (null, 12.34)": True,
        "null = null": None,
        "null <=> null": True,
        "l between 7 and 8": True,
        "l between 6 and 7": True,
        "l between 8 and null": False,
        "case l when 7 then 'a' else s end": "a",
        "case when f > 1 then 'a' else 'b' end": "b",
        "cast(0.1D as decimal(38,20))": 10**19,
        "cast(1.005D as decimal(10,2))": 101,
        "cast(-n as bigint)": -12,
        "cast(2147483648D as int)": None,
        "cast('1.5' as bigint)": None,
        "cast(' +15 ' as bigint)": 15,
        "cast('9223372036854775808' as bigint)": None,
        "cast('1e3' as decimal(10,2))": 100000,
        "cast('1.005' as decimal(10,2))": 101,
        "cast('1e400' as decimal(10,2))": None,
        "cast('1e-400' as decimal(10,2))": 0,
        "cast('.' as decimal(10,2))": None,
        "cast('1_0' as decimal(10,2))": None,
        "cast('1.5d' as double)": 1.5,
        "cast('-Infinity' as double)": -math.inf,
        "cast('' as double)": None,
        "cast(' Yes ' as boolean)": True,
        "cast('on' as boolean)": None,
        "cast(2.5 as boolean)": True,
        "cast(b as decimal(5,2))": 100,
        "cast(at as bigint)": JULY // 1000,
        "cast(l as string)": "7",
        "cast('nan' as double) = cast('NaN' as double)": True,
        "cast('nan' as double) > cast('inf' as double)": True,
        "-0e0 = 0e0": True,
        "at = TIMESTAMP '2026-07-15 00:00:00'": True,
        "at = '2026-07-15T02:00:00.000+02:00'": True,
        "at between '2026-07-14' and '2026-07-16 00:00'": True,
        "coalesce(at, '2026-01-01')": JULY,
        "'it\\'s'": "it's",
        "-9223372036854775808L": -(2**63),
        "cast(0.99999999999999999999 as int)": 1,  # by way of a double
        "l - 7 >= 0.000000000000000000000000000001": False,
        "i + 2147483640": 2147483647,
        "i + 2147483641": None,
        "u = '123E4567-E89B-12D3-A456-426614174000'": True,
        "at < mi": True,
        "at = day": True,
        "x = X'00FF'": True,
        "length(x)": 2,
        "g = 0.1": False,
        "cast(g as decimal(20,10))": 1000000015,
        "hour(at) * 60 + minute(at + interval 37 minutes)": 37,
        "day + interval 36 hours": JULY + 36 * 3_600_000,
        "cast(X'ff' as string)": None,
        "cast(concat(' 2026-07-15T02:00:00.0019', '+02:00') as timestamp)": JULY + 1,
        "timestamp_millis(9223372036854775807)": None,
        "pmod(-l, -4)": -3,
        "repeat(s, 3)": "xxx",
        "'50%' like '50!%' escape '!'": True,
        "'a' rlike '^[a-c]$'": True,
        "8192344.0 / 1e3": 8192.344,  # polars's own division gives 8192.344000000001
        "cast(8192.344 as double)": 8192.344,
    }.items(),
)
def test_a_value_is_what_spark_answers(text, expected):
    assert value(text) == expected


def test_a_long_is_negated_and_made_positive_but_for_the_one_that_has_no_opposite():
    assert value("-l", l=-(2**63)) is None
    assert value("abs(l)", l=-(2**63)) is None
    assert value("abs(l)", l=-(2**63) + 1) == 2**63 - 1


def test_columns_are_the_lineage():
    expression = compile_expression("case when b then n else coalesce(f, 1) end", FIELDS)
    assert expression.columns == {"b", "n", "f"}
    assert compile_expression("1 + 1", FIELDS).columns == frozenset()


def test_where_needs_a_boolean():
    with pytest.raises(ExpressionError, match="needs a boolean, found long"):
        compile_expression("l + 1", FIELDS, needs="boolean")
    assert str(compile_expression("null", FIELDS, needs="boolean").type) == "boolean?"


def test_an_operand_of_case_runs_once_however_deep_the_nesting():
    text = "l"
    for _ in range(15):
        text = f"case {text} when 1 then 2 when 2 then 3 else 4 end"
    assert value(text) == 4  # 2^15 runs of the operand would be felt


def test_a_formula_over_many_rows_is_that_of_each():
    tuples = pl.DataFrame({"l": range(10_000)})
    remainders = compile_expression("l % 7", FIELDS).evaluate(tuples).to_list()
    assert remainders == [number % 7 for number in range(10_000)]
    powers = compile_expression("power(l, 2)", FIELDS).evaluate(tuples).to_list()
    assert powers == [number**2 for number in range(10_000)]


def test_a_power_does_not_depend_on_the_tuples_beside_it():
    tuples = pl.DataFrame({"d": [number / 7 for number in range(1, 2000)]})
    power = compile_expression("power(d, -1.7)", FIELDS)
    apart = [power.evaluate(tuples[row]).item() for row in range(1999)]
    assert power.evaluate(tuples).to_list() == apart

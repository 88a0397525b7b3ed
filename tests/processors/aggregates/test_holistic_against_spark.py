"""Functions of a whole content, and of two arguments, against a Spark 4.3 session, group by group.

Percentiles and covariances are rounded once by us and a few times by Spark: they are compared to
13 digits, all else exactly.
"""

import math
import random
from decimal import Context, Decimal
from typing import Any

import polars as pl
import pytest

from errata.processors.compile.aggregate import Results
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType, physical

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

_WIDE = Context(prec=60)
FIELDS = {
    name: FieldType.parse(kind)
    for name, kind in {
        "id": "long",
        "at": "timestamp-millis",
        "g": "int",
        "x": "long?",
        "y": "double?",
        "d": "decimal(38,10)?",
        "s": "string?",
        "b": "boolean?",
    }.items()
}
ARC = Arc("rows", FIELDS, ("id",), "at", ())
GROUPS = 12
SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)

EXACT = {
    **{
        f"count(distinct {names})": f"count(distinct {names})"
        for names in ("x", "y", "d", "s", "b", "x, s", "b, y, s")
    },
    "count(distinct x) filter (where b)": "count(distinct x) filter (where b)",
    **{f"mode({name})": f"mode({name}, true)" for name in ("x", "d", "s", "b")},
}
"""What we write and what Spark does; of its modes it gives any unless told."""

NEAR = [
    *(f"percentile({name}, {p})" for name in "xyd" for p in ("0", "0.07", "0.5", "0.99", "1")),
    *(f"median({name})" for name in "xyd"),
    "percentile(x, 0.25) filter (where b)",
    *(
        f"{name}({pair})"
        for name in ("corr", "covar_samp", "covar_pop")
        for pair in ("x, d", "x, y", "y, d", "d, d", "x * 3, -x")
    ),
]


def rows() -> list[tuple[Any, ...]]:
    """Return groups of few rows and of many; some hold NaN and infinities, one only nulls."""
    dice = random.Random(6)
    found: list[tuple[Any, ...]] = []
    for group in range(GROUPS):
        for _ in range(3 * group + 3):
            y = dice.choice([dice.uniform(-5, 5), float(dice.randrange(3))])
            if group % 4 == 1 and dice.random() < 0.3:
                y = dice.choice(SPECIAL)
            values = (
                dice.choice([dice.randrange(-4, 5), dice.randrange(-(10**15), 10**15)]),
                y,
                dice.choice([dice.randrange(-4, 5), dice.randrange(-(10**27), 10**27)]),
                dice.choice(["", "a", "b", "ä", "\U0001f600"]),
                dice.random() < 0.5,
            )
            shown = (None if dice.random() < 0.15 or not group else value for value in values)
            found.append((len(found), 0, group, *shown))
    return found


@pytest.fixture(scope="module")
def table(spark: Any) -> Any:
    kinds = {"long": "bigint", "timestamp-millis": "bigint"}
    schema = ", ".join(
        f"`{name}` {kinds.get(kind.kind, str(kind.required))}" for name, kind in FIELDS.items()
    )
    plain = [
        tuple(
            Decimal(value).scaleb(-10, _WIDE) if name == "d" and value is not None else value
            for name, value in zip(FIELDS, row, strict=True)
        )
        for row in rows()
    ]
    frame = spark.createDataFrame(plain, schema)
    frame.createOrReplaceTempView("holistic_rows")
    return frame


def ours(text: str) -> list[Any]:
    """Return a result of each group."""
    making = Results(ARC, {})
    result = making.make(text)
    tuples = pl.DataFrame(rows(), schema=physical(FIELDS), orient="row")
    numbers = pl.Series(range(tuples.height), dtype=pl.UInt32)
    columns = []
    for state in making.states.values():
        empty = pl.DataFrame(state.init(GROUPS))
        groups = tuples["g"].cast(pl.UInt32)
        columns += state.move(empty, tuples, rows=numbers, groups=groups, sign=1)
    values = result.emitted(pl.DataFrame(columns))[0].to_list()
    if result.type.kind != "decimal":
        return values
    scale = result.type.scale
    return [None if value is None else Decimal(value).scaleb(-scale, _WIDE) for value in values]


def spark_results(spark: Any, texts: list[str]) -> list[list[Any]]:
    """Return the results of each group, a column a text."""
    selected = ", ".join(f"{text} as `r{number}`" for number, text in enumerate(texts))
    found = spark.sql(f"select g, {selected} from holistic_rows group by g order by g").collect()
    return [[row[number + 1] for row in found] for number in range(len(texts))]


def test_exact_functions_give_what_spark_gives(spark: Any, table: Any) -> None:
    for text, theirs in zip(EXACT, spark_results(spark, list(EXACT.values())), strict=True):
        assert ours(text) == theirs, text
        assert len(set(theirs)) > 1, text


def test_rounded_functions_give_what_spark_gives_but_for_the_last_digits(
    spark: Any, table: Any
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")  # else it stops where a variance is 0
    try:
        theirs = spark_results(spark, NEAR)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    for text, column in zip(NEAR, theirs, strict=True):
        for group, (found, expected) in enumerate(zip(ours(text), column, strict=True)):
            assert near(found, expected), (text, group, found, expected)
        assert sum(value is not None for value in column) > GROUPS / 2, text


def near(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    if math.isnan(found) or math.isnan(expected):
        return math.isnan(found) and math.isnan(expected)
    return math.isclose(found, expected, rel_tol=1e-13, abs_tol=1e-12)


@pytest.mark.parametrize("values", ["(1, 1D), (1, 2D)", "(1, 2D), (2, 2D)", "(1, 2D)"])
def test_a_correlation_is_null_where_spark_has_none(spark: Any, values: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        (row,) = spark.sql(f"select corr(a, b) from values {values} t(a, b)").collect()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert row[0] is None

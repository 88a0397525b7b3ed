"""Every form and function against a Spark 4.3 session, value by value and type by type.

A case is our text and Spark's: its default (ANSI) mode stops where we give null, so operators that
can fail stand there in their `try_` form. Values are compared exactly, floats bit for bit, but for
exp, power and logarithms: the last bits of those belong to the C library and to Java.
"""

import polars as pl
import pytest

from errata.processors.expressions.expression import compile_expression
from errata.processors.expressions.vocabulary import ENTRIES, FUNCTIONS
from errata.schemas.fields import physical
from tests.processors.expressions.in_spark import difference, evaluated, in_spark
from tests.processors.expressions.spark_cases import ALIASES, FAMILIES
from tests.processors.expressions.spark_rows import FIELDS, rows

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

_NEAR = ("exp", "power", "ln", "log10", "log2")


@pytest.fixture(scope="module")
def tuples():
    return pl.DataFrame(rows(), schema=physical(FIELDS))


@pytest.fixture(scope="module")
def table(spark, tuples):
    """The same tuples in Spark."""
    return in_spark(spark, tuples, FIELDS)


def test_every_function_and_form_is_compared():
    texts = [ours for cases in FAMILIES.values() for ours, _ in cases()]
    words = " ".join(texts).lower()
    assert [name for name in FUNCTIONS if f"{name}(" not in words and name not in ALIASES] == []
    forms = {"field", "literal", "bytes", "boolean", "parentheses", "escape"}
    assert [e.name for e in ENTRIES if e.name not in forms and e.name.split()[0] not in words] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_oracle_values_and_types_are_those_of_spark(family, table, tuples):
    cases = list(dict.fromkeys(FAMILIES[family]()))
    theirs = evaluated(table, [spark for _, spark in cases])
    wrong = []
    for (text, spark_text), (kind, expected) in zip(cases, theirs, strict=True):
        expression = compile_expression(text, FIELDS)
        near = text.startswith(_NEAR)
        if found := difference(expression, tuples, kind, expected, near=near):
            wrong.append(f"{text} [{spark_text}]: {found}")
    assert wrong == [], f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)

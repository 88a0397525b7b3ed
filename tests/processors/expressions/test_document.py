"""The vocabulary as a whole: what the page says, and what holds for every form."""

from pathlib import Path

import polars as pl
import pytest

from errata.processors.expressions import document
from errata.processors.expressions.expression import compile_expression
from errata.schemas.fields import physical
from tests.processors.expressions.spark_cases import FAMILIES
from tests.processors.expressions.spark_rows import FIELDS, rows


@pytest.mark.parametrize("height", [0, 1, 3])
@pytest.mark.parametrize("text", [*document.examples(), "size / 2e0", "1 + 1", "coalesce(7, size)"])
def test_every_form_of_the_vocabulary_gives_one_value_a_tuple(text, height):
    fields = {name: kind.nullable for name, kind in document.FIELDS.items()}
    expression = compile_expression(text, fields)
    nothing = dict.fromkeys(fields)
    tuples = pl.DataFrame(
        [document.TUPLE, nothing, document.TUPLE][:height], schema=physical(fields), orient="row"
    )
    values = expression.evaluate(tuples)
    assert (len(values), values.dtype) == (height, expression.type.dtype)


def test_the_page_about_expressions_is_up_to_date():
    page = Path(__file__).parents[3] / "docs" / "expressions.md"
    remedy = "run: python -m errata.processors.expressions.document > docs/expressions.md"
    assert page.read_text(encoding="utf-8") == "\n".join(document.page()) + "\n", remedy


@pytest.mark.parametrize("family", FAMILIES)
def test_a_result_is_null_only_where_its_type_is_optional(family):
    fields = {name: kind.required for name, kind in FIELDS.items()}
    last = {"day": 2**31 - 1, "eve": 2**31 - 1, "at": 2**63 - 1, "mi": 2**63 - 1}
    tuples = pl.DataFrame(rows(), schema=physical(fields)).select(pl.all().drop_nulls().head(200))
    tuples = tuples.with_columns(
        pl.Series(name, [value, -value, *tuples[name][2:]], dtype=tuples[name].dtype)
        for name, value in last.items()
    )
    wrong = []
    for text in dict.fromkeys(ours for ours, _ in FAMILIES[family]()):
        expression = compile_expression(text, fields)
        if not expression.type.optional and expression.evaluate(tuples).null_count():
            wrong.append(text)
    assert wrong == []

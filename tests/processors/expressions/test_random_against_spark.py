"""Random nested expressions over random tuples against Spark, value by value and type by type.

Longer: ``ERRATA_EXPRESSION_ROUNDS=2:100 pytest`` this file runs the rounds with those seeds.
"""

import os
from collections.abc import Iterator

import polars as pl
import pytest
from sqlglot import exp

from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.expression import compile_expression
from errata.processors.expressions.parse import parse
from errata.processors.expressions.vocabulary import ENTRIES, FUNCTIONS
from errata.schemas.fields import PHYSICAL
from tests.processors.expressions.in_spark import difference, evaluated, in_spark
from tests.processors.expressions.random_expressions import Tree, random_expressions
from tests.processors.expressions.spark_rows import FIELDS, REQUIRED, random_tuples

ROUNDS = range(*map(int, os.environ.get("ERRATA_EXPRESSION_ROUNDS", "0:2").split(":")))
COUNT = 300
HEIGHT = 40
ALL = FIELDS | REQUIRED


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", ROUNDS)
def test_oracle_random_expressions_are_those_of_spark(seed, spark):
    tuples = random_tuples(seed, HEIGHT)
    table = in_spark(spark, tuples, ALL)
    trees = list(random_expressions(seed, COUNT))
    differing = [tree for tree, found in compared(trees, table, tuples) if found]
    told = []
    for tree in differing:  # the smallest part that differs
        part, found = next(p for p in compared([*tree.walk()], table, tuples) if p[1])
        told.append(f"{part.ours} [{part.spark}]: {found}\n  in {tree.ours}")
    table.unpersist()
    assert told == [], f"{len(told)} of {COUNT}:\n" + "\n".join(told)


def compared(trees: list[Tree], table, tuples) -> Iterator[tuple[Tree, str | None]]:
    """Return each expression with the first difference between ours and Spark's."""
    theirs = evaluated(table, [tree.spark for tree in trees])
    for tree, (kind, expected) in zip(trees, theirs, strict=True):
        expression = compiled(tree.ours)
        yield (
            tree,
            expression and difference(expression, tuples, kind, expected, near=tree.near),
        )


def compiled(text: str):
    try:
        return compile_expression(text, ALL)
    except ExpressionError as error:
        if "overflows" in error.found:  # constants only, refused on purpose
            return None
        raise


def test_random_expressions_have_every_form_function_and_type():
    texts = [part.ours for tree in random_expressions(0, COUNT) for part in tree.walk()]
    nodes = [node for text in texts for node in parse(text).walk()]
    assert {entry.node for entry in ENTRIES} - {type(node) for node in nodes} == set()
    called = {node.name for node in nodes if isinstance(node, exp.Anonymous)}
    assert called == set(FUNCTIONS)
    found = [compiled(text) for text in texts]
    assert {expression.type.kind for expression in found if expression} == set(PHYSICAL)


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_random_expression_gives_its_type_and_the_same_in_any_batch(seed):
    tuples = random_tuples(seed, HEIGHT)
    batches = [tuples[:1], tuples[1:2], tuples[2:20], tuples[20:20], tuples[20:]]
    wrong = []
    for tree in random_expressions(seed, COUNT):
        if (expression := compiled(tree.ours)) is None:
            continue
        values = expression.evaluate(tuples)
        apart = pl.concat(map(expression.evaluate, batches))
        if repr(values.to_list()) != repr(apart.to_list()):
            wrong.append(f"{tree.ours}: {values.to_list()} apart {apart.to_list()}")
        nulls = values.null_count() and not expression.type.optional
        if values.dtype != expression.type.dtype or nulls:
            wrong.append(f"{tree.ours}: {values.dtype}, {nulls} nulls of {expression.type}")
    assert wrong == []

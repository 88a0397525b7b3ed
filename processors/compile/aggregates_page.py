"""Generates the page ``docs/aggregates.md`` from the table of functions.

``python -m errata.processors.compile.aggregates_page docs/aggregates.md`` regenerates it, down to
`BY_HAND`.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import polars as pl

from errata.processors.aggregates.functions import FUNCTIONS, MACROS, Function, Macro
from errata.processors.compile.aggregate import Results
from errata.schemas.arc import Arc
from errata.schemas.fields import FieldType, physical

_TYPES = {
    "id": "string",
    "at": "timestamp-millis",
    "venue": "string",
    "price": "decimal(9,2)",
    "size": "long?",
}
_ROWS = (
    ("a", 1000, "XNYS", 1000, 3),
    ("b", 2000, "XLON", 1250, 1),
    ("c", 3000, "XNYS", 1100, None),
    ("d", 4000, "XPAR", 950, 4),
)
SAMPLE = Arc(
    "trades",
    {name: FieldType.parse(kind) for name, kind in _TYPES.items()},
    ("id",),
    "at",
    (),
)
"""The arc that the examples are run on."""

AROUND = (
    "sum(price * size) / sum(size)",
    "max(price) - min(price)",
    "case when count(*) > 3 then last(venue) end",
    "sum(size) filter (where venue = 'XNYS')",
    "first(size) filter (where price > 10.5) ignore nulls",
)
"""Examples of expressions around calls, and of clauses after them."""

_INTRODUCTION = """# Aggregate functions

Results of `.aggregate(...)` are SQL in Spark's dialect, by name:
`vwap="sum(price * size) / sum(size)"`. This page is generated from the table that the compiler
reads. The values of the examples are computed over these tuples of an arc:

"""

_RULES = """
Rules that hold for all of them:

* Functions ignore a null argument. The exceptions are `count(*)`, and `first` and `last` without
  `ignore nulls`. A window without a value gives null; `count` and `count_if` give 0. A window
  without a tuple has no result at all.
* `filter (where p)` after a call leaves out the tuples for which `p` is not true.
* An expression may combine calls, each with its own `filter`. It may use the fields of `by` and
  `window_start`. A failure in it (an overflow, a division by zero) gives null.
* The arguments are expressions over the fields of a tuple. An aggregate inside an aggregate is
  refused: use two boxes.
* `first` and `last` order tuples by event time, or by the `order_by` of the box. `min_by` and
  `max_by` take the earliest of the tuples with the same key. The identity breaks remaining ties, so
  results never depend on the order of arrival. Null orders below everything, NaN above.
* Every result is revised exactly when a tuple leaves or changes. Where a function says *replayed*,
  a change that takes away the last of the best few values it remembers makes the box replay that
  window.
* Doubles are summed with an error term, so a tuple that leaves takes its rounding with it.
* *Never from a stored result* means that the state is the whole content of a window, which no
  result carries. `mode="downstream"` is refused beside such a function; an adaptive box replays.
  Functions of the same argument share that state.
* `errata.ohlc("price")` gives the four results of a bar, for `fields=`.
* Not supported: `distinct` in calls other than `count`, `over`, `order by` inside a call, and
  collections.

A function of your own is a class. `errata.Compensating` works on columns;
`errata.CompensatingByValue` is plain Python on one group and one row, and slower. If rows can only
enter, set `compensates = False`: the box then replays a window that a row leaves. For tuples that
it raises for, see [Networks](networks.md#when-a-function-of-yours-raises).

"""

BY_HAND = "## Moving averages"
"""From this heading on the page is written by hand."""


def example(text: str) -> str:
    """Return the value of an aggregate over the sample, as text.

    Example:
        >>> example("sum(price)")
        '43.00'
    """
    builder = Results(SAMPLE, {})
    result = builder.make(text)
    columns = zip(*_ROWS, strict=True)
    types = physical(SAMPLE.fields)
    tuples = pl.DataFrame(dict(zip(SAMPLE.fields, columns, strict=True)), schema=types)
    rows = pl.Series(range(tuples.height), dtype=pl.UInt32)
    group = pl.repeat(0, tuples.height, dtype=pl.UInt32, eager=True)
    columns_of_states = []
    for state in builder.states.values():
        empty = pl.DataFrame(state.init(1))
        columns_of_states += state.move(empty, tuples, rows=rows, groups=group, sign=1)
    values, _ = result.emitted(pl.DataFrame(columns_of_states))
    return shown(values[0], result.type)


def shown(value: object, kind: FieldType) -> str:
    """Return a physical value as text for the page.

    Example:
        >>> shown(1050, FieldType.parse("decimal(9,2)")), shown(None, FieldType.parse("long?"))
        ('10.50', 'null')
    """
    if value is None:
        return "null"
    if kind.kind == "decimal":
        return str(Decimal(str(value)).scaleb(-kind.scale))
    return str(value).lower() if kind.kind == "boolean" else str(value)


def page() -> str:
    """Return the page."""
    sample = [
        [shown(value, kind) for value, kind in zip(row, SAMPLE.fields.values(), strict=True)]
        for row in _ROWS
    ]
    names = [f"{name} {kind}" for name, kind in SAMPLE.fields.items()]
    entries: list[Function | Macro] = [*FUNCTIONS.values(), *MACROS.values()]
    functions = [
        [
            f"`{function.name}`" + "".join(f", `{name}`" for name in function.also),
            function.signature,
            f"`{function.example}`",
            example(function.example),
            function.exact,
            function.compensates,
        ]
        for function in entries
    ]
    heads = ["function", "takes and gives", "example", "value", "how exact", "tuples may leave"]
    around = [[f"`{text}`", example(text)] for text in AROUND]
    return (
        _INTRODUCTION
        + _table(names, sample)
        + _RULES
        + _table(heads, functions)
        + "\nExpressions around calls, and filters after them:\n\n"
        + _table(["expression", "value"], around)
    )


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def written(before: str) -> str:
    """Return the page with the part by hand of an earlier version."""
    return f"{page()}\n{before[before.index(BY_HAND) :]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")

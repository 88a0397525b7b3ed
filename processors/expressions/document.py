"""Writes ``docs/expressions.md`` from the vocabulary; every value in it is computed.

Run as ``python -m errata.processors.expressions.document > docs/expressions.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from errata.processors.expressions import casts, rules
from errata.processors.expressions.expression import compile_expression
from errata.processors.expressions.function import Function
from errata.processors.expressions.parse import MAX_DEPTH, MAX_LENGTH, MAX_NESTING
from errata.processors.expressions.text import MAX_REPEAT
from errata.processors.expressions.vocabulary import ENTRIES, GROUPS
from errata.schemas.fields import FieldType, physical

FIELDS = {
    name: FieldType.parse(declared)
    for name, declared in {
        "name": "string",
        "note": "string?",
        "size": "long",
        "price": "decimal(18,2)",
        "unit price": "decimal(18,2)",
        "rate": "double",
        "flag": "boolean",
        "at": "timestamp-millis",
        "day": "date",
        "code": "bytes",
        "trade": "uuid",
    }.items()
}
"""The fields of the tuple that the examples use."""

TUPLE: dict[str, Any] = {
    "name": "Errata",
    "note": None,
    "size": 7,
    "price": 1250,
    "unit price": 99,
    "rate": 0.25,
    "flag": True,
    "at": 1_784_107_800_250,
    "day": 20_484,
    "code": b"\x00\xff",
    "trade": "123e4567-e89b-12d3-a456-426614174000",
}
"""The tuple that the examples use, in physical values."""

_INTRODUCTION = f"""\
# Expressions

`where`, `map`, `route` and the arguments of aggregates take one SQL scalar expression in **Spark's
dialect**, with Spark's function names. Values are those of Spark 4.3 in its default mode, with the
`try_` forms of everything that can fail, in the time zone UTC: **a tuple for which an expression
has no value (an overflow, a division by zero, a failed cast) gets null, and nothing stops**. Errata
refuses any form that is not on this page, and names its position in the text.

Field names are as declared (case counts), in backticks where they are not plain names. Strings
are in single quotes. Double quotes make a string too, as in Spark, and never a field. A quote in a
string is written `\\'`.

## Null

An operator or function gives null when one of its arguments is null, unless its line below says
otherwise. `and` and `or` know three values: `false and null` is false, `true or null` is true.
`where` keeps a tuple only where its expression is true. `x <=> y` compares nulls as equal values.

## Types

| Type | Literal | Beside another type |
|---|---|---|
| `int` | `1` | 32 bits; with `long` a `long`, with `decimal` a decimal of 10 digits |
| `long` | `1L` | 64 bits; with `decimal` a decimal of 20 digits |
| `decimal(p,s)` | `1.5`, `1bd` | exact, up to 38 digits |
| `float` | `1.5f` | single precision among floats; with any other number a `double` |
| `double` | `1e7`, `1.5d` | with any number a `double` |
| `boolean` | `true`, `false` | |
| `string` | `'text'` | |
| `bytes` | `X'00ff'` | compared and chosen from; `length`, `hex`, `md5`, `sha2` |
| `date` | `date '2026-07-15'` | with a timestamp its midnight in UTC |
| `timestamp-millis` | `timestamp '2026-07-15 09:30:00'` | with micros a `timestamp-micros` |
| `timestamp-micros` | `timestamp '2026-07-15 09:30:00.000001'` | |
| `uuid` | a string beside one | text in small letters |

*Decimals.* A whole literal beside a decimal counts with its own digits: with `price decimal(18,2)`,
`price / 1000000` is a `decimal(26,10)`. Results follow Spark's rules for digits, rounded half away
from zero; more than 38 digits before the point are null.

*Floats and doubles.* NaN equals NaN and is larger than any number; -0.0 equals 0.0.

*Times.* Spark has one timestamp, in microseconds. Here a function of a timestamp returns the kind
of its argument. `cast(x as timestamp)`, `to_timestamp` and literals give `timestamp-millis`, which
event times need. A microsecond field keeps its type; a literal with more than three digits of a
second, and `timestamp_micros`, give `timestamp-micros`. Text that is cast to milliseconds is
rounded down. A string literal beside a date, timestamp or uuid is read as one, and refused if it
is not one. Text is read as `yyyy[-mm[-dd]]`, for timestamps with
`[ T]hh[:mm[:ss[.fraction][zone]]]` where a zone is `Z`, `UTC` or `+hh:mm`; zones by name are null.

*Casts.* Whole numbers and decimals can be cast to a string. How Spark prints a double
depends on its Java, so cast it to a decimal first.

## Limits

At most {MAX_LENGTH:,} characters, {MAX_NESTING} brackets inside each other and {MAX_DEPTH}
operators in a chain. `repeat`, `lpad` and `rpad` give at most {MAX_REPEAT:,} copies or characters.
Arguments shown as `'text'` or `1` below must be literals, not fields. Left out on purpose: whatever
differs between Java and the columnar engine (regular expressions beyond the part named at `rlike`,
`initcap`, formats of dates) and whatever is not a function of the tuple (the current time, random
numbers).

## Where Spark differs

Random expressions of every form are compared with Spark 4.3, value by value and type by type. They
agree exactly, except for

- the last bit of powers, exponentials and logarithms, and capital and small letters up to the
  version of Unicode;
- `-x` and `abs(x)` of a decimal of more than 34 digits: exact here, rounded to 34 in Spark;
- a double cast to a decimal: its shortest digits, in Spark those of its Java (before Java 19 some
  have a digit more);
- `like` with an emoji beside `_`: Spark finds no match;
- a null beside a decimal literal that no `long` holds, as in `size < 1e20bd`: null, true in Spark;
- `lower(upper(x))` and `cast(cast(size as float) as double)`: Spark leaves the inner one out;
- the ends of ranges: where Spark wraps or stops (dates and timestamps out of range, `pmod` near the
  least `long`, `%` of decimals far apart) values are null or exact; a long as a timestamp beyond
  Spark's last is null, bytes that are no UTF-8 are null as a string.

Errata accepts some calls that Spark refuses: a `long` for the days of `date_add`.

## Examples

The values are computed from a tuple with these fields:

"""


def main() -> None:
    """Print the page."""
    print("\n".join(page()))


def page() -> Iterator[str]:
    """Return the lines of the page."""
    yield _INTRODUCTION + "| Field | Type | Value |\n|---|---|---|"
    for name, kind in FIELDS.items():
        yield f"| `{name}` | `{kind}` | {_code(shown(_quoted(name)))} |"
    yield "\n## Operators and forms\n\n| Name | Form | Example | Value |\n|---|---|---|---|"
    for entry in ENTRIES:
        yield _row(entry.name, entry.signature, entry.example)
    for title, functions in GROUPS.items():
        yield f"\n## {title}\n\n| Name | Form | Example | Value |\n|---|---|---|---|"
        yield from (_row(f.name, _form(f), f.example) for f in functions)


def examples() -> list[str]:
    """Return every example of the vocabulary."""
    functions = (function.example for group in GROUPS.values() for function in group)
    return [*(entry.example for entry in ENTRIES), *functions]


def shown(example: str) -> str:
    """Return the value of an expression over `TUPLE`, written as a literal.

    Example:
        >>> shown("price / 3"), shown("day + 1"), shown("nullif(1, 1)")
        ('4.166667', "date '2026-02-01'", 'null')
    """
    expression = compile_expression(example, FIELDS)
    tuples = pl.DataFrame([TUPLE], schema=physical(FIELDS), orient="row")
    values = expression.evaluate(tuples)
    kind, value = expression.type, values.item()
    if value is None:
        return "null"
    if kind.kind == "bytes":
        return f"X'{value.hex()}'"
    if kind.kind in ("float", "double"):
        return repr(value)
    text = casts.cast(kind.required, rules.STRING)(values).item()
    if kind.kind in rules.TEMPORAL:
        return f"{'date' if kind.kind == 'date' else 'timestamp'} '{text}'"
    return repr(text) if kind.kind in rules.TEXT else str(text)


def _form(function: Function) -> str:
    also = f"; also {', '.join(function.aliases)}" if function.aliases else ""
    return function.signature + also


def _row(name: str, form: str, example: str) -> str:
    form = _escaped(form).replace("[", "\\[")  # no link
    return f"| {_code(name)} | {form} | {_code(example)} | {_code(shown(example))} |"


def _code(text: str) -> str:
    mark = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{mark}{pad}{_escaped(text)}{pad}{mark}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _quoted(name: str) -> str:
    return f"`{name}`"


if __name__ == "__main__":
    main()

"""The forms that random expressions are made of, each in our words and in Spark's.

Where we give null and Spark's ANSI mode stops, Spark's words are the `try_` form or a guard. What
no form brings, for Spark there is not what we want to be:

- an exp, power or logarithm inside another form: its last bits belong to the C library and Java;
- a cast of a double to more than 12 digits there: before Java 19 they are not the shortest ones;
- minus and abs of decimals with more than 34 digits: Spark rounds them to 34;
- `%` of decimals far apart, `div` and rounding to tens of wide ones, pmod of large divisors: Spark
  stops, or wraps;
- dates and timestamps at the ends of their range: Spark stops, or wraps;
- lower(upper(x)), or a cast to double of one of a long to float: Spark leaves the inner one out;
- an emoji in a pattern of LIKE: beside ``_`` Spark looks for half of it;
- a whole number beside a decimal literal that no long holds: Spark takes its null for a number.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.processors.expressions.random_kinds import (
    Rule,
    arithmetic,
    chosen,
    common,
    comparison,
    first,
    moved,
    nan_or,
    own,
    quotient,
    timestamp,
    truth_to_decimal,
    whole_part,
)


@dataclass(frozen=True)
class Form:
    """A form of an expression.

    Args:
        gives: Its kind, or the rule that has it from the kinds of its arguments.
        ours: Its text, with a word of `random_kinds` in braces for each argument.
        spark: Spark's, with the argument's number in braces; ours if empty.
        near: Whether the last bit of its values may differ.
    """

    gives: str | Rule
    ours: str
    spark: str = ""
    near: bool = False

    @property
    def takes(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.ours)

    def text(self, arguments: list[str]) -> str:
        rest = iter(arguments)
        return re.sub(r"\{\w+\}", lambda _: next(rest), self.ours)

    def spark_text(self, arguments: list[str]) -> str:
        return self.spark.format(*arguments) if self.spark else self.text(arguments)


def each(
    names: str, gives: str | Rule, ours: str, spark: str = "", *, near: bool = False
) -> Iterator[Form]:
    """Return a form for each of some names, which stand where it has ``@``."""
    for name in names.split(", "):
        yield Form(gives, ours.replace("@", name), spark.replace("@", name), near)


_OPPOSITE = "try_subtract(0, {0})"
_REMAINDER = "try_mod({0}, {1})"
_FITS = "{0} >= -9223372036854775808D and {0} < 9223372036854775808D"

ARITHMETIC = (
    Form(arithmetic, "({number} + {number})", "try_add({0}, {1})"),
    Form(arithmetic, "({number} - {number})", "try_subtract({0}, {1})"),
    Form(arithmetic, "({number} * {number})", "try_multiply({0}, {1})"),
    Form(quotient, "({number} / {number})", "try_divide({0}, {1})"),
    Form(arithmetic, "({modest} % {modest})", _REMAINDER),
    Form(arithmetic, "mod({modest}, {modest})", _REMAINDER),
    Form(arithmetic, "pmod({bounded}, {few})", "pmod({0}, nullif({1}, 0))"),
    Form(
        "decimal",
        "pmod(cast({number} as decimal(9,4)), {divisor})",
        "pmod(try_cast({0} as decimal(9,4)), {1})",
    ),
    Form("long", "({int} div {whole})", "({0} div nullif({1}, 0))"),
    Form("long", "({slight} div {slight})", "({0} div nullif({1}, 0))"),
    *each("(-({real})), abs({real})", own, "@"),
    *each("(-({slight})), abs({slight})", "decimal", "@"),
    Form(own, "(-({whole}))", _OPPOSITE),
    Form(own, "abs({whole})", f"if({{0}} < 0, {_OPPOSITE}, {{0}})"),
    Form("few", "({int} % 1000)", "try_mod({0}, 1000)"),
    Form("slight", "cast({number} as decimal(9,4))", "try_cast({0} as decimal(9,4))"),
    Form("seconds", "({long} % 100000000000L)", "try_mod({0}, 100000000000L)"),
    Form("millis", "({long} % 100000000000000L)", "try_mod({0}, 100000000000000L)"),
    Form("micros", "({long} % 100000000000000000L)", "try_mod({0}, 100000000000000000L)"),
)

CHOICES = (
    *each("=, <>, <, <=, >, >=, <=>, !=, ==", comparison, "({compared} @ {compared})"),
    *each("and, or", "boolean", "({boolean} @ {boolean})"),
    Form("boolean", "(not {boolean})"),
    *each("is null, is not null", "boolean", "({any} @)"),
    *each("isnull, isnotnull", "boolean", "@({any})"),
    *each("in, not in", comparison, "({any} @ ({any}, {any}))"),
    *each("between, not between", comparison, "({any} @ {any} and {any})"),
    Form(common, "coalesce({any}, {any}, {any})"),
    Form(common, "coalesce({any})"),
    *each("ifnull, nvl, least", common, "@({any}, {any})"),
    *each("string, decimal", chosen, "nvl2({@}, {any}, {any})"),
    Form(first, "nullif({any}, {any})"),
    Form(common, "greatest({any}, {any}, {any})"),
    Form(chosen, "if({boolean}, {any}, {any})"),
    Form(chosen, "(case when {boolean} then {any} else {any} end)"),
    Form(chosen, "(case when {boolean} then {any} end)"),
    Form("int", "(case when {boolean} then 1 when {boolean} then {int} else 2 end)"),
    Form(truth_to_decimal, "(case {any} when {any} then 1.5 when {any} then 0.25 end)"),
    Form("boolean", "isnan({number})"),
    Form(nan_or, "nanvl({number}, {number})"),
)

NUMERIC = (
    *each("round, bround", own, "@({real}, {digits})"),
    *each("round, bround", "decimal", "@({slight}, {digits})"),
    *each("round, bround", "decimal", "@({decimal}, {places})"),
    *each("round, bround", "int", "@({few}, {digits})"),
    *each("round, bround", own, "@({number})"),
    *each("floor, ceil, ceiling", whole_part, "@({exact})"),
    *each("floor, ceil, ceiling", "long", "@({real})", f"if({_FITS}, @({{0}}), null)"),
    *each("sign, signum, sqrt", "double", "@({number})"),
    *each("exp, ln, log, log10, log2", "double", "@({number})", near=True),
    Form("double", "power({number}, {number})", near=True),
    Form("double", "pow({number}, {small})", near=True),
)

TEXT = (
    *each("upper, ucase, lower, lcase", "string", "@({text})", "@({0} || '')"),
    *each("trim, ltrim, rtrim, reverse", "string", "@({text})"),
    *each("length, char_length, character_length, len", "int", "@({text})"),
    Form("int", "length({bytes})"),
    *each("hex, md5", "string", "@({octets})"),
    Form("string", "sha2({octets}, {bits})"),
    Form("string", "substring({text}, {int}, {int})"),
    Form("string", "substring({text}, {few}, {few})"),
    Form("string", "substr({text}, {few})"),
    *each("left, right", "string", "@({text}, {few})"),
    *each("left, right", "string", "@({text}, {int})"),
    Form("string", "concat({text}, {text}, {text})"),
    Form("string", "({text} || {text})"),
    Form("string", "concat_ws({quoted}, {text}, {text})"),
    *each("replace, translate", "string", "@({text}, {quoted}, {quoted})"),
    Form("string", "replace({text}, {quoted})"),
    *each("lpad, rpad", "string", "@({text}, {small}, {quoted})"),
    *each("lpad, rpad, repeat", "string", "@({text}, {small})"),
    *each("instr, locate, position", "int", "@({text}, {text})"),
    Form("int", "locate({text}, {text}, {few})"),
    *each("startswith, endswith, contains", "boolean", "@({text}, {text})"),
    Form("string", "split_part({text}, {quoted}, {part})"),
    *each("like, not like, ilike, not ilike", "boolean", "({text} @ {like})"),
    Form("boolean", "({text} like {marked} escape '!')"),
    *each("rlike, not rlike", "boolean", "({text} @ {regex})"),
    *each("regexp_like, regexp, rlike", "boolean", "@({text}, {regex})"),
)

_DAY_PARTS = "year, quarter, month, day, dayofmonth, dayofweek, weekday, dayofyear, weekofyear"
_MILLIS = "timestamp_millis(unix_millis(try_@))"

TIMES = (
    *each(_DAY_PARTS, "int", "@({dated})"),
    *each("hour, minute, second", "int", "@({timed})"),
    Form(timestamp, "date_trunc({unit}, {timed})"),
    Form("date", "trunc({dated}, {day_unit})"),
    Form("date", "last_day({dated})"),
    *each("{date} + {few}, {few} + {date}, {date} - {few}", "date", "(@)"),
    *each("date_add, dateadd, date_sub, add_months", "date", "@({dated}, {few})"),
    *each("datediff, date_diff", "int", "@({dated}, {dated})"),
    Form(
        "date",
        "make_date(({few} + 2000), {few}, {few})",
        "try_cast(concat({0} + 2000, '-', {1}, '-', {2}) as date)",
    ),
    *each("{temporal} + {days}, {days} + {temporal}, {temporal} - {days}", moved, "(@)"),
    *each("{temporal} + {hours}, {temporal} - {hours}", timestamp, "(@)"),
    Form("timestamp-micros", "({temporal} + {instants})"),
    *each("to_date, date", "date", "@({dated})"),
    Form("date", "to_date({written})", "try_cast({0} as date)"),
    *each("to_timestamp, timestamp", timestamp, "@({instant})"),
    Form("timestamp-millis", "timestamp_seconds({seconds})"),
    Form("timestamp-millis", "timestamp_millis({millis})"),
    Form("timestamp-micros", "timestamp_micros({micros})"),
    *each("unix_seconds, unix_millis, unix_micros", "long", "@({instant})"),
    *each("from_utc_timestamp, to_utc_timestamp", timestamp, "@({instant}, {zone})"),
    Form(
        timestamp,
        "convert_timezone({zone}, {zone}, {instant})",
        "cast(convert_timezone({0}, {1}, {2}) as timestamp)",
    ),
    *each("to_timestamp({0})", "timestamp-millis", "to_timestamp({written})", _MILLIS),
)

_NUMBERS = {"int": "int", "bigint": "long", "double": "double"}
_DECIMALS = "decimal(12,3), decimal(38,18), decimal"
_CAST, _TRY = "cast({%s} as @)", "try_cast({0} as @)"
_FLOAT = "(try_cast({0} as float) * 1f)"

CASTS = (
    *(
        form
        for target, kind in {**_NUMBERS, _DECIMALS: "decimal"}.items()
        for source in ("exact", "string", "boolean")
        for form in each(target, kind, _CAST % source, _TRY)
    ),
    *(
        form
        for target, kind in {**_NUMBERS, "decimal(12,3), decimal": "decimal"}.items()
        for source in ("real", "instant")
        for form in each(target, kind, _CAST % source, _TRY)
    ),
    *each("exact, real, string, boolean, instant", "float", "cast({@} as float)", _FLOAT),
    Form("decimal", "cast({real} as decimal(38,18))", _TRY.replace("@", "decimal(38,18)"), True),
    *each("number, string", "boolean", "cast({@} as boolean)", "try_cast({0} as boolean)"),
    *each("cast, try_cast", "string", "@({text} as string)"),
    Form("bytes", "cast({string} as binary)"),
    Form("string", "cast({bytes} as string)", "try_validate_utf8(cast({0} as string))"),
    *each("temporal, written", "date", "cast({@} as date)", "try_cast({0} as date)"),
    Form(timestamp, "cast({temporal} as timestamp)"),
    Form("timestamp-millis", "cast({seconds} as timestamp)"),
    *each("cast({0} as timestamp)", "timestamp-millis", "cast({written} as timestamp)", _MILLIS),
    Form("int", "(({number})::int)", "try_cast({0} as int)"),
)

FORMS: tuple[Form, ...] = (*ARITHMETIC, *CHOICES, *NUMERIC, *TEXT, *TIMES, *CASTS)

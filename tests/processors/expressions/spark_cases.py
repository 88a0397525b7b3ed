"""Pairs of texts, ours and Spark's, that give the same values; together they use every form."""

from itertools import product

from tests.processors.expressions.spark_text_cases import text_cases


def arithmetic_cases():
    tries = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide"}
    tries["%"] = "try_mod"
    pairs = [*product("imqprfd", "nlptge"), *product("kjv", "nptkjvg"), ("p", "j"), ("e", "k")]
    for a, b in pairs:
        for symbol, name in tries.items():
            if symbol != "%" or not {a, b} & {"k", "j"}:  # where Spark stops with many digits
                yield f"{a} {symbol} {b}", f"{name}({a}, {b})"
    for a in "nlfdp":
        for symbol, name in tries.items():
            yield f"null {symbol} {a}", f"{name}(null, {a})"
            yield f"{a} {symbol} null", f"{name}({a}, null)"
    yield "mod(null, n)", "try_mod(null, n)"
    yield "pmod(null, n)", "pmod(null, nullif(n, 0))"
    yield "hour(at) * 60 + minute(at)", "hour(at) * 60 + minute(at)"
    yield "p * coalesce(q, 1)", "try_multiply(p, coalesce(q, 1))"
    for a, b in product("ilptfd", "nltge"):
        if b != "l":  # Spark stops where it has too many digits, and wraps near the least long
            yield f"pmod({a}, {b})", f"pmod({a}, nullif({b}, 0))"
        yield f"mod({a}, {b})", f"try_mod({a}, {b})"
    for a, b in [*product("il", "nl"), ("t", "n"), ("n", "t"), ("t", "t")]:
        yield f"{a} div {b}", f"{a} div nullif({b}, 0)"
    for digits in ("7", "0", "1000000", "2.5", "3e0", "60L", "-5L", "1.5f", "-5", "0.0", "(7)"):
        for symbol, name in tries.items():
            for a in "nlpfd":
                yield f"{a} {symbol} {digits}", f"{name}({a}, {digits})"
    yield from ((f"-{a}", f"-{a}") for a in "nlpqvfd")  # not of 38 digits: Spark keeps 34
    yield "-i", "try_subtract(0, i)"
    yield "-m", "try_subtract(0L, m)"
    yield from ((f"abs({a})", f"abs({a})") for a in "nlpqfd")
    for name, a in product(("floor", "ceil"), "nlpqrtkjvfd"):
        fits = f"{a} >= -9223372036854775808D and {a} < 9223372036854775808D"
        whole = f"{name}({a})"  # Spark stops beyond 64 bits
        yield whole, f"if({fits}, {whole}, null)" if a in "fd" else whole


def choice_cases():
    numbers = "ilpqrfd"
    pairs = [*product(numbers, "nmtge"), ("s", "z"), ("x", "x"), ("b", "c"), ("at", "mi")]
    columns = (
        "at day, mi day, day eve, at at, i 7, p 12, q 1.5, f 0.1, f 0.1f, d 1, s 'ab', x X'61', "
        "k j, k l, j t, v q, i -2.5, m 0.5, u u, u s, null n, null at, null s, null x"
    )
    pairs += [tuple(pair.split()) for pair in columns.split(", ")]
    pairs += [("at", "'1970-01-01'"), ("mi", "'1970-01-01 00:00:00.000001'"), ("s", "null")]
    pairs += [("'1970-01-01 00:00:00.001'", "at"), ("day", "'1970-01-02'")]
    pairs += [("at", "date '1970-01-01'"), ("l", f"0.{'0' * 29}1"), (f"-0.{'0' * 29}1", "l")]
    for a, b in pairs:
        for how in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            yield f"{a} {how} {b}"
        yield from (f"coalesce({a}, {b})", f"nvl({b}, {a})", f"if(b, {a}, {b})")
        if a != "null":  # which has no type of its own
            yield f"nullif({a}, {b})"
        yield from (f"nvl2({a}, {a}, {b})", f"{a} in ({b}, {a})", f"{b} not in ({b}, null)")
        yield from (
            f"case when b then {a} when c then {b} end",
            f"case {a} when {b} then 1 else 2 end",
        )
        if a != "x" and "'" not in a + b:
            yield from (f"greatest({a}, {b})", f"least({a}, null, {b})")
    yield from (
        "b and c",
        "b or c",
        "not b",
        "b and null",
        "b or null",
        "isnull(s)",
        "isnotnull(s)",
    )
    yield from ("p between 0 and q", "s not between 'a' and z", "day between '1970-01-01' and at")
    yield from ("s is null", "s is not null", "ifnull(n, 1.5)", "l in (1, 7, null)", "!b", "i != n")
    yield from ("nanvl(f, null)", "nanvl(null, f)", "nanvl(n, null)", "nanvl(null, null)")
    yield from ("nanvl(f, g)", "nanvl(d, 1)", "nanvl(f, d)", "isnan(f)", "isnan(d)", "isnan(n)")


def number_cases():
    for a in "nlpqrtkjvfd":
        yield from (
            f"sign({a})",
            f"sqrt({a})",
            f"exp({a})",
            f"ln({a})",
        )
        yield from (f"log10({a})", f"log2({a})", f"power({a}, 2)", f"power({a}, g)")
        for digits in (0, 1, 2, 5, -1, -3) if a not in "nlk" else (0, 2):  # Spark stops beyond
            yield from (f"round({a}, {digits})", f"bround({a}, {digits})")
        yield from (f"round({a})", f"bround({a})")
    yield from (f"round(n, {digits})" for digits in (-1, -2, -12))
    yield from (f"bround(n * 5, {digits})" for digits in (-1, -2))
    yield from ("round(t, -9)", "bround(r, 0)", "round(q, 8)", "round(r, 20)")


def time_cases():
    for a in ("at", "mi", "day", "'2024-02-29'"):
        for name in ("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday"):
            yield f"{name}({a})"
        yield from (f"dayofyear({a})", f"weekofyear({a})", f"last_day({a})")
        yield from (f"hour({a})", f"minute({a})", f"second({a})")
        for unit in ("year", "YY", "quarter", "mon", "week", "dd", "hour", "minute", "second"):
            yield f"date_trunc('{unit}', {a})"
        yield from (f"date_trunc('{unit}', {a})" for unit in ("millisecond", "microsecond"))
        yield from (f"trunc({a}, '{unit}')" for unit in ("year", "quarter", "MM", "week"))
        yield from (
            f"date_add({a}, n)",
            f"date_sub({a}, n)",
            f"add_months({a}, n)",
            f"datediff({a}, eve)",
        )
        yield from (f"datediff(eve, {a})", f"to_date({a})", f"to_timestamp({a})", f"date({a})")
        yield f"add_months({a}, 13)"
    units = [
        "microsecond",
        "milliseconds",
        "second",
        "minutes",
        "hour",
        "day",
        "weeks",
        "month",
        "year",
    ]
    for a in ("at", "mi", "day"):
        for unit in units:
            yield from (f"{a} + interval 5 {unit}", f"{a} - interval '13' {unit}")
            yield f"interval '-1' {unit} + {a}"
        yield f"{a} + interval 1.5 seconds"
    for a in ("at", "mi"):
        yield from (f"unix_seconds({a})", f"unix_millis({a})", f"unix_micros({a})")
    yield from (
        "day + 1",
        "1 + day",
        "day - n",
        "day + n",
        "timestamp_micros(n)",
        "timestamp_seconds(n)",
    )
    yield from (
        "timestamp_millis(i)",
        "timestamp_seconds(i)",
        "timestamp_micros(l)",
        "timestamp '2026-07-15'",
    )
    yield from (
        "date '2026-07-15'",
        "timestamp '2026-07-15 09:30:00.123456+02:00'",
        "cast('2026-1-2' as date)",
    )


def cast_cases():
    kinds = {"int": "nilmpqrtkjvfdbw", "bigint": "ilmpqrtkjvfdbw", "float": "ilmpqrtkjvfdbw"}
    kinds |= {
        "double": "ilmpqrtkjvfdbw",
        "decimal(12,3)": "ilmpqrtkjvfdbw",
        "decimal(38,18)": "ilpqrtfdbw",
    }
    kinds |= {"decimal(3,0)": "ilpqtfdbw", "boolean": "ilpqrtkjvfdbw", "string": "ilmpqrtkjvbs"}
    for target, names in kinds.items():
        for name in names:
            yield f"cast({name} as {target})", f"try_cast({name} as {target})"
    moments = [
        "int",
        "bigint",
        "double",
        "float",
        "decimal(20,6)",
        "decimal(12,3)",
        "string",
        "date",
    ]
    for target, name in product([*moments, "timestamp"], ["at", "mi"]):
        yield f"cast({name} as {target})", f"try_cast({name} as {target})"
    for target, name in product(["string", "date", "timestamp"], ["day", "w"]):
        yield f"cast({name} as {target})", f"try_cast({name} as {target})"
    yield from both(["cast(i as timestamp)", "cast(s as binary)"])
    zones = ["America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo"]
    for name, zone in product(["at", "mi", "day"], [*zones, "UTC"]):
        yield from both(f"{way}_utc_timestamp({name}, '{zone}')" for way in ("from", "to"))
        converted = f"convert_timezone('{zone}', 'Europe/Berlin', {name})"
        yield converted, f"cast({converted} as timestamp)"
    yield from [("to_date(w)", "try_cast(w as date)"), ("to_timestamp(w)", "try_to_timestamp(w)")]
    yield "cast(cast(s as binary) as string)", "s"
    yield "cast(x as string)", "try_validate_utf8(cast(x as string))"
    last = "concat('294247-01-10', left(z, 0))"
    yield f"cast({last} as timestamp)", f"try_cast({last} as timestamp)"
    yield "make_date(n + 2000, n, n)", "case when n > 0 then make_date(n + 2000, n, n) end"
    yield (
        "make_date(n + 2020, 2, n + 25)",
        (
            "case when n + 25 <= day(last_day(make_date(n + 2020, 2, 1))) "
            "then make_date(n + 2020, 2, n + 25) end"
        ),
    )


def precedence_cases():
    signs = ["+", "-", "*", "/", "%", "div"]
    for one, other in product(signs, signs):
        if (one, other) != ("/", "div"):
            yield from (f"n {one} 3 {other} 2", f"-n {one} 3 {other} -2")
    for sign in signs:
        yield from (f"n {sign} 2 = n", f"n {sign} 2 is null", f"n {sign} -2::bigint")
        yield f"n {sign} 2 in (n, 1 {sign} 2)"
        yield f"n {sign} 2 between n {sign} 1 and n {sign} 3 and b"
        yield f"case n when n {sign} 1 then 1 else 2 end"
    yield from (f"n {sign} 2 || 'x'" for sign in signs if sign != "/")
    for how in ("=", "<>", "<", "<=", ">", ">=", "<=>", "==", "!="):
        yield from (f"not n {how} 1", f"n {how} 1 or n {how} 2 and b", f"b and n {how} 1 or c")
        yield from (f"not b and n {how} 1", f"-n {how} n + 1", f"! n {how} 1", f"- n {how} -1")
    yield from ("b or c and not b", "b and not c or b", "not b or c", "not not b", "!b or c")
    yield from ("not n is null", "not s like 'a%'", "not n in (1, 2)", "not n between 1 and 2")
    yield from ("s || z like 'a%'", "n between 1 and 2 or b", "n not between 1 and 2 and b")
    yield from ("s not in ('a') and b", "s rlike 'a' and b or c", "s like 'a!_' escape '!' or b")
    yield from ("- -n", "- n % 2", "-n * -n", "n - -1", "n -1", "n*-1", "n - 1 - 1 - 1", "2 * -n")
    yield from ("day + 1 = day", "at - interval 1 day < at", "interval 1 day + day = day")
    yield from ("if(b, 1, 2) + 1", "case when b then 1 else 2 end + 1", "s = 'a' and not z = 'b'")


def both(texts):
    return ((text, text) for text in texts)


FAMILIES = {
    "arithmetic": arithmetic_cases,
    "choices": lambda: both(choice_cases()),
    "numbers": lambda: both(number_cases()),
    "text": lambda: both(text_cases()),
    "times": lambda: both(time_cases()),
    "casts": cast_cases,
    "precedence": lambda: both(precedence_cases()),
}

_ALIASES = """
    ceiling character_length date_diff dateadd ifnull lcase len log
    pow regexp rlike signum timestamp ucase
"""
ALIASES = set(_ALIASES.split())
"""Other names of functions that are compared."""

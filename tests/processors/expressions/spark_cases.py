"""Pairs of texts, ours and Spark's, that give the same values; together they use every form."""

from itertools import product

_PATTERNS = r"""
    a ^a b$ ^a.b$ [a-c]+$ a|X$ (ab)+ a{2} \\d \\s$ ^\\w+$ [^a]$ ^\\s+$ ^.$ a.?b (?:a|b), 50\\%
    a*?b [\\s,] \\W \\D \\S ^ $ ^$ ^\\S*\\s$ \\. r\\n?$ e. é [é😀] ^.b [.*] x.$
"""
"""What RLIKE has in common with Java's, as written in a literal."""


def arithmetic_cases():
    tries = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide"}
    tries["%"] = "try_mod"
    for a, b in product("imqprfd", "nlptge"):
        for symbol, name in tries.items():
            yield f"{a} {symbol} {b}", f"{name}({a}, {b})"
    for a, b in product("ilptfd", "nltge"):
        if b != "l":  # Spark stops where it has too many digits, and wraps near the least long
            yield f"pmod({a}, {b})", f"pmod({a}, nullif({b}, 0))"
        yield f"mod({a}, {b})", f"try_mod({a}, {b})"
    for a, b in [*product("il", "nl"), ("t", "n"), ("n", "t"), ("t", "t")]:
        yield f"{a} div {b}", f"{a} div nullif({b}, 0)"
    for digits in ("7", "0", "1000000", "2.5", "3e0", "60L", "1.5f", "-5", "0.0"):
        for symbol, name in tries.items():
            for a in "nlpfd":
                yield f"{a} {symbol} {digits}", f"{name}({a}, {digits})"
    yield from ((f"-{a}", f"-{a}") for a in "nlpqfd")
    yield "-i", "try_subtract(0, i)"
    yield "-m", "try_subtract(0L, m)"
    yield from ((f"abs({a})", f"abs({a})") for a in "nlpqfd")


def choice_cases():
    numbers = "ilpqrfd"
    pairs = [*product(numbers, "nmtge"), ("s", "z"), ("x", "x"), ("b", "c"), ("at", "mi")]
    columns = (
        "at day, mi day, day eve, at at, i 7, p 12, q 1.5, f 0.1, f 0.1f, d 1, s 'ab', x X'61'"
    )
    pairs += [tuple(pair.split()) for pair in columns.split(", ")]
    pairs += [("at", "'1970-01-01'"), ("mi", "'1970-01-01 00:00:00.000001'"), ("s", "null")]
    pairs += [("'1970-01-01 00:00:00.001'", "at"), ("day", "'1970-01-02'")]
    pairs += [("at", "date '1970-01-01'")]
    for a, b in pairs:
        for how in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            yield f"{a} {how} {b}"
        yield from (
            f"coalesce({a}, {b})",
            f"nvl({b}, {a})",
            f"if(b, {a}, {b})",
            f"nullif({a}, {b})",
        )
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
    yield from ("nanvl(f, g)", "nanvl(d, 1)", "nanvl(f, d)", "isnan(f)", "isnan(d)", "isnan(n)")


def number_cases():
    for a in "nlpqrtfd":
        yield from (
            f"floor({a})",
            f"ceil({a})",
            f"sign({a})",
            f"sqrt({a})",
            f"exp({a})",
            f"ln({a})",
        )
        yield from (f"log10({a})", f"log2({a})", f"power({a}, 2)", f"power({a}, g)")
        for digits in (0, 1, 2, 5, -1, -3) if a not in "nl" else (0, 2):
            yield from (f"round({a}, {digits})", f"bround({a}, {digits})")
        yield from (f"round({a})", f"bround({a})")
    yield from (f"round(n, {digits})" for digits in (-1, -2, -12))
    yield from (f"bround(n * 5, {digits})" for digits in (-1, -2))
    yield from ("round(t, -9)", "bround(r, 0)", "round(q, 8)", "round(r, 20)")


def text_cases():
    for a in ("s", "z"):
        yield from (
            f"{name}({a})" for name in ("upper", "lower", "trim", "ltrim", "rtrim", "length")
        )
        yield from (f"{name}({a})" for name in ("reverse", "md5", "hex", "char_length"))
        yield from (f"{name}({a}, n)" for name in ("left", "right", "substring", "substr"))
        yield from (f"instr({a}, z)", f"locate(z, {a})", f"locate(z, {a}, n)", f"position(z, {a})")
        yield from (f"{name}({a}, z)" for name in ("startswith", "endswith", "contains"))
        yield from (f"concat({a}, z, n)", f"{a} || z", f"concat({a})", f"concat_ws('-', {a}, z, l)")
        for old, new in (("a", "X"), ("", "X"), ("ab", ""), ("😀", "e")):
            yield from (f"replace({a}, '{old}', '{new}')", f"translate({a}, '{old}', '{new}')")
        yield from (
            f"translate({a}, 'aab', 'xyz')",
            f"replace({a}, 'a')",
            f"translate({a}, 'abX', '.')",
        )
        for fill in ("' '", "'xy'", "''", "'😀'"):
            for count in (0, 3, 6, -1):
                yield from (f"lpad({a}, {count}, {fill})", f"rpad({a}, {count}, {fill})")
        yield from (f"lpad({a}, 4)", f"repeat({a}, 3)", f"repeat({a}, 0)", f"repeat({a}, -1)")
        for number in (1, 2, -1, -3, 9):
            yield from (f"split_part({a}, ',', {number})", f"split_part({a}, 'ab', {number})")
            yield f"split_part({a}, '', {number})"
        for start, count in product((0, 1, 3, -1, -2, -9, 2147483647), (0, 1, 3, -1, 2147483647)):
            yield f"substring({a}, {start}, {count})"
        yield f"substring({a}, n, n)"
        yield from (f"sha2({a}, {bits})" for bits in (0, 224, 256, 384, 512))
        for pattern in (
            "a%",
            "%b",
            "%b%",
            "a_b",
            "_",
            "",
            "%",
            r"50\\%",
            r"a\_b",
            r"a\\\\b",
            "ΣΑΣ",
            "A%",
        ):
            yield from (
                f"{a} like '{pattern}'",
                f"{a} not like '{pattern}'",
                f"{a} ilike '{pattern}'",
            )
        yield from (f"{a} like 'a!_b' escape '!'", f"{a} like '50!%' escape '!'")
        for pattern in (*_PATTERNS.split(), "d\n", ""):
            yield from (f"{a} rlike '{pattern}'", f"not {a} rlike '{pattern}'")
            yield f"regexp_like({a}, '{pattern}')"
    yield from (
        "length(x)",
        "md5(x)",
        "hex(x)",
        "sha2(x, 256)",
        "length(at)",
        "upper(n)",
        "left(l, 2)",
    )
    yield from (
        r"'a\1b\12\123\377\0001\%\_\q\n\'\"\\'",
        r"'\u00e9\U0001F600\ud83d\ude00'",
        r'"it\'s"',
    )
    yield from (
        "X'0'",
        "X''",
        "X'00fF'",
        "'é😀'",
        "1.5f",
        "1bd",
        "0.05",
        "00012.50",
        "1e7",
        "5.",
        "-7",
    )


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
    kinds = {"int": "nilmpqrtfdbw", "bigint": "ilmpqrtfdbw", "float": "ilmpqrtfdbw"}
    kinds |= {
        "double": "ilmpqrtfdbw",
        "decimal(12,3)": "ilmpqrtfdbw",
        "decimal(38,18)": "ilpqrtfdbw",
    }
    kinds |= {"decimal(3,0)": "ilpqtfdbw", "boolean": "ilpqrtfdbw", "string": "ilmpqrtbs"}
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
    yield "make_date(n + 2000, n, n)", "case when n > 0 then make_date(n + 2000, n, n) end"
    yield (
        "make_date(n + 2020, 2, n + 25)",
        (
            "case when n + 25 <= day(last_day(make_date(n + 2020, 2, 1))) "
            "then make_date(n + 2020, 2, n + 25) end"
        ),
    )


def both(texts):
    return ((text, text) for text in texts)


FAMILIES = {
    "arithmetic": arithmetic_cases,
    "choices": lambda: both(choice_cases()),
    "numbers": lambda: both(number_cases()),
    "text": lambda: both(text_cases()),
    "times": lambda: both(time_cases()),
    "casts": cast_cases,
}

_ALIASES = """
    ceiling character_length date_diff dateadd ifnull lcase len log
    pow regexp rlike signum timestamp ucase
"""
ALIASES = set(_ALIASES.split())
"""Other names of functions that are compared."""

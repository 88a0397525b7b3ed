"""Pairs of texts about text: ours, which are Spark's too."""

from itertools import product

_PATTERNS = r"""
    a ^a b$ ^a.b$ [a-c]+$ a|X$ (ab)+ a{2} \\d \\s$ ^\\w+$ [^a]$ ^\\s+$ ^.$ a.?b (?:a|b), 50\\%
    a*?b [\\s,] \\W \\D \\S ^ $ ^$ ^\\S*\\s$ \\. r\\n?$ e. é [é😀] ^.b [.*] x.$
"""
"""What RLIKE has in common with Java's, as written in a literal."""


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
            "a😀%",  # with _ beside it Spark finds nothing: it looks for half a character
            "%😀%",
            "e_%",
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
        "-9223372036854775808L",
        "-9223372036854775808",
        "-2147483648",
        "-0e0",
        "-1.5bd",
    )

"""What stands for a kind of random expressions when it is written out."""

import random
from collections.abc import Callable
from functools import partial

_TIMES = (
    "'2026-07-15 10:00'",
    "'1969-12-31 23:59:59.999'",
    "'0001-01-01 00:00:00'",
    "'2024-02-29T12:00:00.000001+02:00'",
)
_MICROS, _LMT = f"timestamp {_TIMES[3]}", "timestamp '1883-11-18 12:03:58.000001'"

_LISTED = {
    "int": "0, 1, -1, 7, 1000000, 2147483647, -2147483648",
    "long": "0L, 1L, -7L, 3000000000, 9223372036854775807L, -9223372036854775808L",
    "decimal": "0.5, 1.25, -0.005, 12345678901234.5, 1bd, 0.0, "
    f"0.{'0' * 29}1, -{'9' * 18}.{'9' * 20}",
    "float": "1.5f, -0.1f, 3e38f, 0f",
    "double": "3.1e0, -0e0, 1e308, -2.5d, 1e-300, 5e-324",
    "boolean": "true, false",
    "bytes": "X'', X'00ff', X'c3a9', X'41'",
    "date": "date '2024-02-29', date '1969-12-31', date '1582-10-10', date '0001-01-01', "
    "date '9999-12-31', date '1900-03-01'",
    "timestamp-millis": ", ".join(f"timestamp {time}" for time in _TIMES[:3]),
    "timestamp-micros": f"{_MICROS}, {_LMT}",
    "void": "null",
    "few": "0, 1, -1, 2, 3, -4, 31, -12",
    "slight": "0.5, -1.5, 2.5, 0.0001, 99999.9999",
    "divisor": "7, -4, 1000, 2.5",
    "seconds": "0L, -1L, 1784107800L",
    "millis": "0L, -1L, 1784107800250L",
    "micros": "0L, -1L, 1784107800250001L",
    "written": "'2024-02-29', '1969'",
    "day_text": "'2024-02-29', '1970-01-01', '1969-12', '2026'",
    "time_text": ", ".join(_TIMES),
    "digits": "0, 1, 2, 5, -1, -3",
    "places": "0, 1, 2, 7, 40",
    "small": "0, 1, 2, 5, -1",
    "part": "1, 2, -1, -2, 9",
    "bits": "0, 224, 256, 384, 512",
    "unit": "'year', 'YYYY', 'quarter', 'mon', 'MM', 'week', 'day', 'DD', 'hour', 'minute', "
    "'second', 'millisecond', 'microsecond'",
    "day_unit": "'year', 'YY', 'quarter', 'month', 'mm', 'week'",
    "days": "interval 1 day, interval '-40' days, interval 2 weeks, interval 13 months, "
    "interval '-1' year, interval 1 month",
    "hours": "interval 5 hours, interval '-90' minutes, interval 86401 seconds, "
    "interval 1.5 seconds, interval 250 milliseconds",
    "instants": "interval 1 microsecond, interval '-1001' microseconds, interval 0.000001 seconds",
    "zone": "'UTC', 'America/New_York', 'Asia/Kolkata', 'Australia/Lord_Howe', "
    "'America/Sao_Paulo', 'Europe/Berlin'",
}

_CHARACTERS = ("a", "b", "X", " ", ",", "é", "😀", "ß", "1", "%", "_", r"\u0301", r"\\", r"\n", "Σ")
_PATTERN = ("%", "_", "%", "_", "a", "b", "é", "Σ", "X", ".", "(", r"\n")
_ATOMS = ("a", "b", "X", ".", "[a-c]", "[^b]", r"\\d", r"\\s", r"\\w", r"\\W")
_ATOMS += ("é", "(ab|X)", "(?:x|1)", "😀")
_COUNTS = ("", "", "*", "+", "?", "{1,2}", "*?")


def _one(texts: list[str], dice: random.Random) -> str:
    return dice.choice(texts)


def _text(dice: random.Random) -> str:
    return "'" + "".join(dice.choices(_CHARACTERS, k=dice.randrange(4))) + "'"


def _like(dice: random.Random, escape: str = r"\\") -> str:
    parts = [*_PATTERN, f"{escape}%", f"{escape}_"]
    return "'" + "".join(dice.choices(parts, k=dice.randrange(5))) + "'"


def _regex(dice: random.Random) -> str:
    atoms = (dice.choice(_ATOMS) + dice.choice(_COUNTS) for _ in range(dice.randrange(1, 4)))
    return "'" + dice.choice(("", "^")) + "".join(atoms) + dice.choice(("", "$")) + "'"


LITERALS: dict[str, Callable[[random.Random], str]] = {
    kind: partial(_one, listed.split(", ")) for kind, listed in _LISTED.items()
} | {
    "quoted": _text,
    "string": _text,
    "like": _like,
    "marked": lambda dice: _like(dice, "!"),
    "regex": _regex,
}
"""Draws what is written for a kind."""
